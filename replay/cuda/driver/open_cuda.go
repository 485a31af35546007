//go:build cuda && linux && cgo

package driver

import (
	"errors"
	"fmt"

	"gorgonia.org/cu"

	"github.com/gmemtop/gmemtop/replay/cuda/driver/libcuda"
)

// oldest is the CUDA version that introduced the newest function called here (stream-ordered allocation from
// one's own pools).
const oldest = 11020

type library struct{ version int }

// Open opens the CUDA driver's library at a path, "" for the one that the dynamic linker finds. The error
// wraps [ErrNoDriver], [ErrNoDevice], [ErrTooOld] or [ErrBusy], or is an [*Error].
func Open(path string) (Driver, error) {
	missing, err := libcuda.Open(path)
	switch {
	case errors.Is(err, libcuda.ErrNoLibrary):
		return nil, fmt.Errorf("%w (%w)", ErrNoDriver, err)
	case err != nil:
		return nil, wrap("start the driver", err)
	}
	v := cu.Version()
	if v < oldest {
		libcuda.Close()
		return nil, fmt.Errorf("%w (it supports CUDA %d.%d, and %d.%d is needed; %d functions are missing)",
			ErrTooOld, v/1000, v%1000/10, oldest/1000, oldest%1000/10, missing)
	}
	return &library{version: v}, nil
}

// Version implements Driver.
func (l *library) Version() int { return l.version }

// Close implements Driver.
func (l *library) Close() { libcuda.Close() }

// Devices implements Driver.
func (l *library) Devices() ([]Info, error) {
	n, err := cu.NumDevices()
	if err != nil {
		return nil, wrap("count the GPUs", err)
	}
	if n == 0 {
		return nil, ErrNoDevice
	}
	all := make([]Info, n)
	for i := range all {
		if all[i], err = l.info(i); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (l *library) info(ordinal int) (Info, error) {
	d, err := cu.GetDevice(ordinal)
	if err != nil {
		return Info{}, wrap(fmt.Sprintf("find GPU %d", ordinal), err)
	}
	i := Info{Ordinal: ordinal, CUDA: l.version}
	if i.Name, err = d.Name(); err != nil {
		return Info{}, wrap("ask for the GPU's name", err)
	}
	if i.Total, err = d.TotalMem(); err != nil {
		return Info{}, wrap("ask for the GPU's memory", err)
	}
	id, err := d.UUID()
	if err != nil {
		return Info{}, wrap("ask for the GPU's UUID", err)
	}
	i.UUID = id.String()
	attribute := func(a cu.DeviceAttribute) int {
		v, e := d.Attribute(a)
		if e != nil && err == nil {
			err = wrap("ask for the GPU's attributes", e)
		}
		return v
	}
	i.Processors, i.Major, i.Minor = attribute(cu.MultiprocessorCount), attribute(cu.ComputeCapabilityMajor),
		attribute(cu.ComputeCapabilityMinor)
	i.Virtual, i.Pools = attribute(attributeVirtual) != 0, attribute(attributePools) != 0
	return i, err
}

// Attributes that gorgonia.org/cu has no names for (CU_DEVICE_ATTRIBUTE_*).
const (
	attributeVirtual cu.DeviceAttribute = 102 // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
	attributePools   cu.DeviceAttribute = 115 // MEMORY_POOLS_SUPPORTED
	attributeMode    cu.DeviceAttribute = 20  // COMPUTE_MODE
)

const modeProhibited = 2

// Open implements Driver.
func (l *library) Open(ordinal int) (Device, error) {
	i, err := l.info(ordinal)
	if err != nil {
		return nil, err
	}
	if mode, err := cu.Device(ordinal).Attribute(attributeMode); err == nil && mode == modeProhibited {
		return nil, fmt.Errorf("open GPU %d: %w (compute mode prohibited)", ordinal, ErrBusy)
	}
	ctx, err := cu.Device(ordinal).MakeContext(cu.SchedAuto)
	if err != nil {
		return nil, wrap(fmt.Sprintf("make a context on GPU %d", ordinal), err)
	}
	d := &device{info: i, ctx: ctx}
	d.memory.device = ordinal
	d.virtual.device = ordinal
	d.memory.streams = &d.queues
	d.kernels.streams = &d.queues
	return d, nil
}

// wrap makes an Error from an answer of gorgonia.org/cu or package libcuda.
func wrap(call string, err error) error {
	if err == nil {
		return nil
	}
	return NewError(call, code(err), err.Error())
}
