//go:build !(cgo && linux)

package nvml

import (
	"fmt"
	"runtime"
)

// Library reads NVML's figures through nvidia-smi: this build cannot load NVIDIA's library.
type Library struct{ smi *smi }

// Options are the choices of [Open].
type Options struct {
	// Path is the library's file, "" for libnvidia-ml.so.1 as the dynamic linker finds it. This build ignores
	// it.
	Path string
}

// Open runs nvidia-smi. If that does not answer, the error wraps [ErrUnavailable].
func Open(Options) (*Library, error) {
	if runtime.GOOS == "darwin" {
		return nil, fmt.Errorf("%w on %s; run gmemtop on the Linux machine that has the GPU", ErrUnavailable,
			runtime.GOOS)
	}
	s, err := openSMI()
	if err != nil {
		return nil, err
	}
	return &Library{s}, nil
}

// Driver describes the installed driver.
func (l *Library) Driver() Driver { return l.smi.driver() }

// Devices describes the devices in nvidia-smi's order, which is NVML's.
func (l *Library) Devices() ([]Device, error) { return l.smi.devices() }

// Read returns the state of a device as nvidia-smi last printed it: it may be some seconds old.
func (l *Library) Read(index int) (Reading, error) { return l.smi.read(index) }

// Close does nothing.
func (*Library) Close() error { return nil }
