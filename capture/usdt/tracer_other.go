//go:build !(linux && amd64)

package usdt

import (
	"fmt"
	"runtime"
	"time"
)

func supported() error {
	return fmt.Errorf("%w on %s/%s: they need Linux on x86-64; %s", ErrUnsupported, runtime.GOOS,
		runtime.GOARCH, instead)
}

func monotonic() int64 { return time.Now().UnixNano() }

func attach(Options, []Site) (tracer, error) { return nil, supported() }

func tryLoading(host) error { return supported() }
