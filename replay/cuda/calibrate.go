package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// Calibration.
//
// Problem: the simulator's figures for a device come from a data sheet or another machine. The cost of a
// copy, a launch or an allocation depends on the card's slot, the host's memory and the driver.
//
// Solution: each figure is measured as the simulator uses it. A link is a line through a small and a large
// pinned copy: the slope gives its rate, the value at size zero its latency. Together is the share of its
// speed that each direction keeps while both copy without a pause. A launch, an allocation, a free and a
// mapping are host times, the median of many. Figures that the simulation does not use are not measured:
// arithmetic stays as in the base description.
//
// Rejected: the mean (one interrupt spoils it); copies of one size (they do not separate latency from rate).

const (
	copyRuns   = 9
	smallCopy  = 64 << 10
	launchRuns = 400
	callRuns   = 31
)

// Calibrate measures what copies, launches and allocations cost on the device, and returns base with its
// figures replaced by these; its Origin says which are measured. The error is the device's or the context's.
func (t *Target) Calibrate(ctx context.Context, base plan.Hardware) (plan.Hardware, error) {
	h := base
	err := t.with(ctx, func(led *ledger, k []driver.Kernel) error {
		info := led.Info()
		h.Name, h.MemoryBytes, h.Measured = info.Name, info.Total, true
		c := &calibration{ctx: ctx, led: led, k: k, h: &h}
		for _, step := range []func() error{c.copies, c.launches, c.calls, c.bandwidth} {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := errors.Join(step(), led.clear()); err != nil {
				return err
			}
		}
		h.Origin = fmt.Sprintf("measured on %s (%s): copies, launches, allocations, memory bandwidth",
			info.Name, info.UUID)
		if h.FlopsPerSecond > 0 {
			h.Origin += "; arithmetic is of " + base.Name + ", " + base.Origin
		}
		return nil
	})
	if err != nil {
		return plan.Hardware{}, t.explain(err)
	}
	return h, nil
}

// CalibrationFolder returns where calibrations belong: a folder of the user's cache.
func CalibrationFolder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the calibration: %w", err)
	}
	return filepath.Join(cache, "gmemtop", "hardware"), nil
}

// CalibrationPath returns where a device's calibration belongs: a file named after the device.
func CalibrationPath(info driver.Info) (string, error) {
	folder, err := CalibrationFolder()
	if err != nil {
		return "", err
	}
	return filepath.Join(folder, info.UUID+".json"), nil
}

type calibration struct {
	ctx context.Context
	led *ledger
	k   []driver.Kernel
	h   *plan.Hardware
}

// copies measures both links, alone and together.
func (c *calibration) copies() error {
	size := min(128<<20, c.led.limit/8) &^ 4095
	if size < 16*smallCopy {
		return fmt.Errorf("%s of the device are too few to measure copies: %w", inUnits(c.led.limit),
			driver.ErrOutOfMemory)
	}
	var streams [2]driver.Stream
	var at [2]driver.Ptr
	var host [2][]byte
	for i := range streams {
		var err error
		if streams[i], err = c.led.NewStream(); err != nil {
			return err
		}
		if at[i], err = c.led.Alloc(size); err != nil {
			return err
		}
		if host[i], err = c.led.pin(size); err != nil {
			return err
		}
	}
	one := func(way int, n int64) error {
		if way == 0 {
			return c.led.CopyOut(unsafe.Pointer(&host[0][0]), at[0], n, streams[0])
		}
		return c.led.CopyIn(at[1], unsafe.Pointer(&host[1][0]), n, streams[1])
	}
	var alone [2]int64
	for way, link := range []*plan.Link{&c.h.D2H, &c.h.H2D} {
		small, err := repeat(c.led, streams[way], copyRuns, func() error { return one(way, smallCopy) })
		if err != nil {
			return err
		}
		large, err := repeat(c.led, streams[way], copyRuns, func() error { return one(way, size) })
		if err != nil {
			return err
		}
		alone[way] = stats.Median(large)
		if alone[way] <= stats.Median(small) {
			return fmt.Errorf("the device's clock says that %d bytes take %d ns and %d bytes %d: no rate "+
				"follows from that",
				size, alone[way], int64(smallCopy), stats.Median(small))
		}
		rate := float64(size-smallCopy) / float64(alone[way]-stats.Median(small)) // bytes a nanosecond
		latency := stats.Median(small) - int64(smallCopy/rate)
		*link = plan.Link{BytesPerSecond: rate * 1e9, Latency: max(latency, 0)}
	}
	return c.together(streams, alone, func(way int) error { return one(way, size) })
}

// together measures how much of its speed each direction keeps while both copy: each has copies before and
// after the timed one, so that the other is busy throughout.
func (c *calibration) together(streams [2]driver.Stream, alone [2]int64, one func(way int) error) error {
	var from, to [2]driver.Event
	for way := range 2 {
		for _, e := range []*driver.Event{&from[way], &to[way]} {
			var err error
			if *e, err = c.led.NewEvent(true); err != nil {
				return err
			}
		}
	}
	var shares []int64 // in millionths
	for range copyRuns {
		for turn := range 4 {
			for way := range 2 {
				if turn == 1 {
					if err := c.led.Record(from[way], streams[way]); err != nil {
						return err
					}
				}
				if err := one(way); err != nil {
					return err
				}
				if turn == 2 {
					if err := c.led.Record(to[way], streams[way]); err != nil {
						return err
					}
				}
			}
		}
		if err := c.led.Synchronize(); err != nil {
			return err
		}
		var share float64
		for way := range 2 {
			ns, err := c.led.Elapsed(from[way], to[way])
			if err != nil {
				return err
			}
			share += float64(2*alone[way]) / float64(max(ns, 1)) / 2
		}
		shares = append(shares, int64(share*1e6))
	}
	c.h.Together = min(max(float64(stats.Median(shares))/1e6, 0.01), 1)
	return nil
}

// launches measures the host's time to issue an op.
func (c *calibration) launches() error {
	s, err := c.led.NewStream()
	if err != nil {
		return err
	}
	x := &execution{led: c.led, kernels: c.k, blocks: 1, streams: []driver.Stream{s}}
	for round := range 2 { // the first warms up
		began := time.Now()
		for range launchRuns {
			if err := x.launch(kernelWork, 0, 1, 0, 0, 0, 0, 0, 0, 0); err != nil {
				return err
			}
		}
		if round == 1 {
			c.h.LaunchGap = time.Since(began).Nanoseconds() / launchRuns
		}
		if err := c.led.Synchronize(); err != nil {
			return err
		}
	}
	return nil
}

// calls measures allocations, frees and mappings on an idle device.
func (c *calibration) calls() error {
	size, err := c.led.Granularity()
	if err != nil {
		return err
	}
	at, err := c.led.Reserve(size)
	if err != nil {
		return err
	}
	var mallocs, frees, maps []int64
	timed := func(to *[]int64, do func() error) {
		began := time.Now()
		if e := do(); err == nil {
			err = e
		}
		*to = append(*to, time.Since(began).Nanoseconds())
	}
	large := min(10*size, c.led.limit/4) // as PyTorch's large segments are
	for range callRuns {
		var p driver.Ptr
		timed(&mallocs, func() (e error) { p, e = c.led.Alloc(large); return e })
		if err != nil {
			return err
		}
		timed(&frees, func() error { return c.led.Free(p) })
		var h driver.Handle
		timed(&maps, func() (e error) {
			if h, e = c.led.Create(size); e != nil {
				return e
			}
			return c.led.Map(at, size, h)
		})
		if err != nil {
			return err
		}
		if err := errors.Join(c.led.Unmap(at, size), c.led.Release(h)); err != nil {
			return err
		}
	}
	c.h.MallocTime, c.h.FreeTime, c.h.MapTime = stats.Median(mallocs), stats.Median(frees), stats.Median(maps)
	return nil
}

// bandwidth measures the sustained bandwidth of the device's memory.
func (c *calibration) bandwidth() error {
	r, err := measureRates(c.led, c.k)
	if err == nil {
		c.h.BytesPerSecond = 8 / r.word * 1e9
	}
	return err
}
