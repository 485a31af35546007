package cuda

import (
	"context"
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

// measurer carries one plan out on one opened device, in sessions that each begin and end with nothing held.
//
// The order is verify, keep-all, plan, keep-all. Keeping everything before and after shows whether the device itself changed its
// speed meanwhile (clocks fall as it warms up, others use it); the plan's time is only worth something beside those two.
type measurer struct {
	ctx   context.Context
	led   *ledger
	k     []driver.Kernel
	opt   Options
	rates rates
	free  int64 // of the device, before anything was taken
	m     plan.Measurement
}

func (r *measurer) say(what string) {
	if r.opt.Progress != nil {
		r.opt.Progress(what)
	}
}

// session runs do on a plan and gives everything back.
func (r *measurer) session(p *plan.Problem, pl *plan.Plan, limit int64, do func(*execution) error) (err error) {
	defer func() {
		if e := r.led.clear(); err == nil {
			err = e
		}
	}()
	x, err := newExecution(r.ctx, r.led, r.k, p, pl, limit)
	if err != nil {
		return err
	}
	if r.opt.omit != nil {
		x.omit = r.opt.omit
	}
	return do(x)
}

func (r *measurer) run(p *plan.Problem, pl *plan.Plan, limit int64) error {
	hold := r.led.limit
	var err error
	if r.free, _, err = r.led.MemInfo(); err != nil {
		return err
	}
	if pl.Policy != nil {
		r.say("find the smallest footprint")
		if hold, err = r.sizes(p, pl, limit); err != nil {
			return err
		}
	} else if need := pl.Footprint + resultBytes; need > r.led.limit {
		return fmt.Errorf("the plan needs %d bytes and %d of the device may be used: %w", need, r.led.limit, driver.ErrOutOfMemory)
	}
	if !r.opt.SkipVerification {
		r.say("verify")
		if err := r.session(p, pl, hold, (*execution).verify); err != nil {
			return err
		}
	}
	if !p.HasTimes {
		r.m.Notes = append(r.m.Notes, "the recording has no times: kernels are left out, and the step time is that of launches, copies and allocations")
	}
	before, err := r.keepAll(p, pl)
	if err != nil {
		return err
	}
	r.say("time")
	if err := r.session(p, pl, hold, r.timed); err != nil {
		return err
	}
	after, err := r.keepAll(p, pl)
	if err != nil {
		return err
	}
	if before > 0 && after > 0 {
		r.m.Notes = append(r.m.Notes, fmt.Sprintf("keeping everything took %d ns an iteration before and %d ns after", before, after))
	}
	return nil
}

// keepAll returns the step time of keeping everything, 0 where that is what the plan does or it does not fit the device.
func (r *measurer) keepAll(p *plan.Problem, pl *plan.Plan) (int64, error) {
	if len(pl.Absences) == 0 && pl.Policy == nil && pl.Variants == nil {
		return 0, nil
	}
	all, err := KeepAll(p)
	if err != nil {
		return 0, err
	}
	if all.Footprint+resultBytes > r.led.limit {
		return 0, nil
	}
	r.say("keep everything")
	var step int64
	err = r.session(p, all, r.led.limit, func(x *execution) error {
		t, err := newTiming(x, r.rates, false)
		if err != nil {
			return err
		}
		times, err := t.measure(0, r.opt.WarmUp, (r.opt.Iterations+1)/2)
		step = median(times)
		return err
	})
	return step, err
}

// timed fills the measurement.
func (r *measurer) timed(x *execution) error {
	t, err := newTiming(x, r.rates, false)
	if err != nil {
		return err
	}
	if _, err := t.measure(0, r.opt.WarmUp, 0); err != nil {
		return err
	}
	calls, figures := x.led.calls, x.store.figures()
	times, err := t.measure(r.opt.WarmUp, 0, r.opt.Iterations)
	if err != nil {
		return err
	}
	n := int64(r.opt.Iterations)
	r.m.StepTime, r.m.StepP95 = median(times), p95(times)
	r.m.DriverCalls = (x.led.calls - calls + n - 1) / n
	r.m.Retries = (x.store.figures().Retries - figures.Retries + n - 1) / n
	held, err := x.store.footprint()
	if err != nil {
		return err
	}
	if x.pl.Policy == nil || x.pl.Policy.Name == asyncPolicy {
		r.m.Footprint = held
	}
	r.m.PinnedPeak = x.prog.pinned
	free, _, err := x.led.MemInfo()
	if err != nil {
		return err
	}
	if counted := r.free - free; counted != x.led.held {
		r.m.Notes = append(r.m.Notes, fmt.Sprintf("the driver counts %d bytes less free, of which the executor holds %d", counted, x.led.held))
	}
	return r.traced(x)
}

// traced fills what needs events around every step.
func (r *measurer) traced(x *execution) error {
	t, err := newTiming(x, r.rates, true)
	if err != nil {
		return err
	}
	if _, err := t.measure(0, 1, 1); err != nil {
		return err
	}
	seen, err := t.read()
	if err != nil {
		return err
	}
	n := int64(x.p.Iterations)
	r.m.Makespan, r.m.Stall, r.m.RecomputeTime = seen.makespan, seen.stall/n, seen.again/n
	out, in := x.pl.Moved()
	r.m.SwappedOut, r.m.SwappedIn = out/n, in/n
	for _, c := range []struct {
		way         string
		bytes, time int64
	}{{"to", out, seen.outTime}, {"from", in, seen.inTime}} {
		if c.time > 0 {
			r.m.Notes = append(r.m.Notes, fmt.Sprintf("copies %s the host reached %.1f GB/s", c.way, float64(c.bytes)/float64(c.time)))
		}
	}
	if r.opt.Charts {
		r.m.Spans = seen.spans
	}
	return nil
}

// The search for an online allocator's footprint; the simulator's is the same, so that the two can be compared.
const (
	dryIterations = 2
	bisections    = 12
	capTolerance  = allocator.Granularity
)

// sizes finds what an online allocator holds when nothing presses it and the smallest cap under which the iteration completes, on
// the device's own memory and with no work on it; and returns the cap to run under: the limit, or the least that it needs where
// that is more.
func (r *measurer) sizes(p *plan.Problem, pl *plan.Plan, limit int64) (int64, error) {
	if pl.Policy.Name == asyncPolicy {
		return r.led.limit, nil
	}
	held, ok, err := r.completes(p, pl, r.led.limit, dryIterations)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, fmt.Errorf("the allocator %q does not complete the iteration in the %d bytes of the device that may be used: %w",
			pl.Policy.Name, r.led.limit, driver.ErrOutOfMemory)
	}
	r.m.Reserved, r.m.Footprint = held, held
	if name := pl.Policy.Name; name == "direct" || name == "arena" { // they keep nothing that they could give back
		return r.led.limit, nil
	}
	low, _ := pl.PeakLive()
	high := held
	for k := 0; k < bisections && high-low > capTolerance; k++ {
		mid := (low + high) / 2
		_, ok, err := r.completes(p, pl, mid, dryIterations+1)
		if err != nil {
			return 0, err
		}
		if ok {
			high = mid
		} else {
			low = mid
		}
	}
	r.m.Footprint = high
	if limit > 0 && held > limit {
		return min(max(limit, high), r.led.limit), nil
	}
	return r.led.limit, nil
}

// completes reports whether an online allocator gets through n iterations under a cap, and the most that it held. No work is
// given to the device, so that whatever waits for work waits for nothing.
func (r *measurer) completes(p *plan.Problem, pl *plan.Plan, limit int64, n int) (held int64, ok bool, err error) {
	err = r.session(p, pl, limit, func(x *execution) error {
		for range n {
			for s := range pl.Steps {
				if s%checkEvery == 0 && r.ctx.Err() != nil {
					return r.ctx.Err()
				}
				var err error
				switch st := &pl.Steps[s]; st.Kind {
				case plan.Alloc:
					err = x.store.alloc(st.Instance)
				case plan.Free:
					err = x.store.free(st.Instance)
				}
				if err != nil {
					return err
				}
			}
			x.store.turn()
		}
		held, err = x.store.footprint()
		return err
	})
	if errors.Is(err, allocator.ErrOutOfMemory) {
		return 0, false, nil
	}
	return held, err == nil, err
}
