package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
	"github.com/gmemtop/gmemtop/timeline"
)

// Options say which device and how much of it. The zero value is the first GPU with 20 timed iterations.
type Options struct {
	// Ordinal is the device's number, as CUDA_VISIBLE_DEVICES leaves it.
	Ordinal int
	// Library is the driver's library; "" for the one that the system has.
	Library string
	// Margin is how much of the device's free memory is left alone, in bytes; 0 for 512 MiB.
	Margin int64
	// Iterations are timed, after WarmUp that are not; 0 for 20 and 3.
	Iterations, WarmUp int
	// skipVerification leaves out the verification before a plan is timed.
	skipVerification bool
	// Used, if not nil, is another counter of the device memory of this process, including its context, such
	// as NVML's; known is false if it does not know. The notes list it next to what the executor holds.
	Used func() (bytes int64, known bool)
	// Charts records what each queue did.
	Charts bool

	omit func(kind waitKind, n int) bool // for tests: a wait to leave out
}

func (o *Options) fill() {
	if o.Margin == 0 {
		o.Margin = 512 << 20
	}
	if o.Iterations <= 0 {
		o.Iterations = 20
	}
	if o.WarmUp <= 0 {
		o.WarmUp = 3
	}
}

// Target is one GPU. It may be used from several goroutines: runs wait for each other.
type Target struct {
	opt   Options
	turn  chan struct{}
	rates *rates // measured in the first run; nil before
}

// New returns a target for a device, which only runs open: if there is none, Run fails. [Open] checks first.
func New(opt Options) *Target {
	opt.fill()
	return &Target{opt: opt, turn: make(chan struct{}, 1)}
}

// Open returns a target for a device that was found and could be opened, and what it is. The error wraps one
// of package driver's: ErrNotBuilt, ErrNoDriver, ErrNoDevice, ErrTooOld, ErrBusy.
func Open(ctx context.Context, opt Options) (*Target, driver.Info, error) {
	t := New(opt)
	var info driver.Info
	err := t.with(ctx, func(led *ledger, _ []driver.Kernel) error {
		info = led.Info()
		return nil
	})
	return t, info, err
}

// Name implements replay.Target: cuda:0.
func (t *Target) Name() string { return fmt.Sprintf("cuda:%d", t.opt.Ordinal) }

// Devices lists the GPUs. library is the driver's, "" for the one that the system has.
func Devices(library string) ([]driver.Info, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d, err := driver.Open(library)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Devices()
}

// with opens the device on this goroutine's thread, passes it to do behind a ledger, and gives everything
// back, whatever do does.
func (t *Target) with(ctx context.Context, do func(*ledger, []driver.Kernel) error) (err error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d, err := driver.Open(t.opt.Library)
	if err != nil {
		return err
	}
	defer d.Close()
	dev, err := d.Open(t.opt.Ordinal)
	if err != nil {
		return err
	}
	led := newLedger(dev, 0)
	defer func() { // on a panic, too
		if e := led.Close(); err == nil {
			err = e
		}
	}()
	free, total, err := led.MemInfo()
	if err != nil {
		return err
	}
	if led.limit = free - t.opt.Margin; led.limit <= 0 {
		return fmt.Errorf("%s of %s of the device are free, and %s are left alone: %w", inUnits(free),
			inUnits(total), inUnits(t.opt.Margin), driver.ErrOutOfMemory)
	}
	k, err := led.Load(kernels, kernelNames[:]...)
	if err != nil {
		return err
	}
	return do(led, k)
}

// Run implements replay.Target: it verifies a plan on the device, times it between two timings of keeping
// everything, and measures it. An online allocator without a cap may use all free memory. Run opens the
// device, and has given everything back when it returns.
//
// The error wraps [errWrong] if the device found that the plan loses bytes, one of package driver's about the
// device, or the context's.
func (t *Target) Run(ctx context.Context, p *plan.Problem, pl *plan.Plan,
	o plan.RunOptions) (plan.Measurement, error) {
	began := time.Now()
	p, err := pl.Of(p)
	if err != nil {
		return plan.Measurement{}, err
	}
	var m plan.Measurement
	err = t.with(ctx, func(led *ledger, k []driver.Kernel) error {
		r := &measurer{ctx: ctx, led: led, k: k, opt: t.opt, progress: o.Progress}
		if err := t.measureRates(r); err != nil {
			return err
		}
		r.m.Target = t.Name()
		r.m.PeakLive, _ = pl.PeakLive()
		if err := r.run(p, pl, o.Cap); err != nil {
			return err
		}
		m = r.m
		return nil
	})
	if err != nil {
		return plan.Measurement{}, t.explain(err)
	}
	m.Elapsed = time.Since(began)
	return m, nil
}

// measureRates measures the cost of work, once for each target.
func (t *Target) measureRates(r *measurer) error {
	if t.rates == nil {
		got, err := measureRates(r.led, r.k)
		if e := r.led.clear(); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
		t.rates = &got
	}
	r.rates = *t.rates
	return nil
}

// inUnits prints a number of bytes for people.
func inUnits(n int64) string { return timeline.IEC.Bytes(n) }

// explain names the device of an error.
func (t *Target) explain(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%s: %w", t.Name(), err)
}
