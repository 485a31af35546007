//go:build !(cgo && linux)

package nvml

import (
	"fmt"
	"runtime"
)

// Library is NVML, opened. This build has none: [Open] never returns one.
type Library struct{}

// Options are the choices of [Open].
type Options struct {
	// Path is the library's file, "" for libnvidia-ml.so.1 as the dynamic linker finds it.
	Path string
}

// Open returns an error that wraps [ErrUnavailable]: this build cannot load NVML.
func Open(Options) (*Library, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("%w on %s; run gmemtop on the Linux machine that has the GPU", ErrUnavailable,
			runtime.GOOS)
	}
	return nil, fmt.Errorf("%w in this build, which was made without cgo; build it on Linux with a C "+
		"compiler and CGO_ENABLED=1 "+
		"(go build ./cmd/gmemtop)", ErrUnavailable)
}

// Driver returns nothing.
func (*Library) Driver() Driver { return Driver{} }

// Devices returns ErrUnavailable.
func (*Library) Devices() ([]Device, error) { return nil, ErrUnavailable }

// Read returns ErrUnavailable.
func (*Library) Read(int) (Reading, error) { return Reading{}, ErrUnavailable }

// Close does nothing.
func (*Library) Close() error { return nil }
