package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/cuda"
)

// calibrated returns the figures of a GPU, and says where they were measured and kept.
func (c *compareCommand) calibrated(ctx context.Context, d *device) (plan.Hardware, error) {
	h, path, err := calibrate(ctx, d, c.devices.calibrate)
	var unkept *unkeptError
	switch {
	case errors.As(err, &unkept):
		c.note("the calibration of %s could not be kept: %v", d.target.Name(), unkept.err)
		return h, nil
	case err == nil && path != "":
		c.note("measured what copies, launches and allocations cost on %s (%s): kept in %s, and simulated with from now on", d.target.Name(), d.info.Name, path)
	}
	return h, err
}

// unkeptError says why a calibration was not saved; it was made all the same.
type unkeptError struct{ err error }

func (e *unkeptError) Error() string { return e.err.Error() }

// calibrate returns the figures of a GPU: those that were measured and saved, or measured now where there are
// none or again is set; path is where they were saved now, "" where nothing was measured. The error is an
// [*unkeptError] where they could not be saved.
func calibrate(ctx context.Context, d *device, again bool) (h plan.Hardware, path string, err error) {
	path, unkept := cuda.CalibrationPath(d.info)
	if unkept == nil && !again {
		if h, err := hardware.Load(path); err == nil {
			return h, "", nil
		}
	}
	base, err := hardware.ByName(d.info.Name)
	if err != nil {
		if base, err = hardware.ByName(defaultHardware); err != nil {
			return base, "", err
		}
	}
	if h, err = d.target.Calibrate(ctx, base); err != nil {
		return h, "", err
	}
	if unkept == nil {
		unkept = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if unkept == nil {
		unkept = hardware.Save(path, h)
	}
	if unkept != nil {
		return h, "", &unkeptError{unkept}
	}
	return h, path, nil
}

// calibratedHere returns the figures that were measured on the first GPU of this machine that any were
// measured on; ok is false where there are none.
func calibratedHere() (h plan.Hardware, ok bool) {
	folder, err := cuda.CalibrationFolder()
	if err != nil {
		return h, false
	}
	if saved, err := filepath.Glob(filepath.Join(folder, "*.json")); err != nil || len(saved) == 0 {
		return h, false // the driver's counters take a moment to open
	}
	lib, err := nvml.Open(nvml.Options{})
	if err != nil {
		return h, false
	}
	defer lib.Close()
	devices, err := lib.Devices()
	if err != nil {
		return h, false
	}
	for _, d := range devices {
		h, err := hardware.Load(filepath.Join(folder, strings.TrimPrefix(d.UUID, "GPU-")+".json"))
		if err == nil {
			return h, true
		}
	}
	return h, false
}
