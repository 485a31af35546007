package planner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/cuda"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
	"github.com/gmemtop/gmemtop/timeline"
)

// Unkept says why a calibration could not be saved. The calibration itself is valid.
type Unkept struct{ err error }

func (e *Unkept) Error() string { return e.err.Error() }

// Calibrate returns the figures of a GPU: the saved ones, or new measurements if there are none or again is
// set. path is where new ones were saved, "" if nothing was measured. The error is an [*Unkept] if they could
// not be saved.
func (d *Device) Calibrate(ctx context.Context, again bool) (h plan.Hardware, path string, err error) {
	path, unkept := cuda.CalibrationPath(d.Info)
	if unkept == nil && !again {
		if h, err := hardware.Load(path); err == nil {
			return h, "", nil
		}
	}
	base, err := hardware.ByName(d.Info.Name)
	if err != nil {
		if base, err = hardware.ByName(DefaultHardware); err != nil {
			return base, "", err
		}
	}
	if h, err = d.Target.Calibrate(ctx, base); err != nil {
		return h, "", err
	}
	if unkept == nil {
		unkept = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if unkept == nil {
		unkept = hardware.Save(path, h)
	}
	if unkept != nil {
		return h, "", &Unkept{unkept}
	}
	return h, path, nil
}

// calibratedHere returns the figures of the first calibrated GPU of this machine; ok is false if there is
// none.
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

// DefaultHardware is the hardware to plan for by default.
const DefaultHardware = "A100"

// hardwareOf returns what is known of a GPU that a recording or a training names: measurements of a GPU of
// that name on this machine, or a preset.
func hardwareOf(name string) (plan.Hardware, bool) {
	if h, ok := calibratedHere(); ok && h.Name == name {
		return h, true
	}
	h, err := hardware.ByName(name)
	return h, err == nil
}

// Device is an open GPU.
type Device struct {
	Target *cuda.Target
	Info   driver.Info
}

// About describes a GPU: NVIDIA H200, 139.8 GiB, driver for CUDA 12.4.
func About(i driver.Info) string {
	s := fmt.Sprintf("%s, %s", i.Name, timeline.IEC.Bytes(i.Total))
	if i.CUDA > 0 {
		s += fmt.Sprintf(", driver for CUDA %d.%d", i.CUDA/1000, i.CUDA%1000/10)
	}
	return s
}

// Replay returns the GPU as a device that comparisons measure on.
func (d *Device) Replay() replay.Device {
	return replay.Device{Target: d.Target, About: About(d.Info)}
}

// open opens a GPU.
func open(ctx context.Context, o cuda.Options) (*Device, error) {
	_, info, err := cuda.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("cuda:%d: %w", o.Ordinal, err)
	}
	o.Used = nvml.UsedBy(os.Getpid(), func(uuid string) bool { return uuid == info.UUID })
	return &Device{cuda.New(o), info}, nil
}
