package cuda

import (
	"context"
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
	"github.com/gmemtop/gmemtop/traces/stats"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// measurer carries one plan out on one opened device, in sessions that each begin and end with nothing held.
//
// The order is verify, keep-all, plan, keep-all. Keeping everything before and after shows whether the device
// itself changed its speed (clocks fall as it warms up, others use it); the plan's time means something only
// beside those two.
type measurer struct {
	ctx   context.Context
	led   *ledger
	k     []driver.Kernel
	opt   Options
	rates rates
	free  int64 // of the device, before anything was taken
	m     plan.Measurement

	progress func(doing string) // may be nil
}

func (r *measurer) say(doing string) {
	if r.progress != nil {
		r.progress(doing)
	}
}

// session runs do on a plan and gives everything back.
func (r *measurer) session(p *plan.Problem, pl *plan.Plan, limit int64,
	do func(*execution) error) (err error) {
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
		return fmt.Errorf("the plan needs %s and %s of the device may be used: %w", inUnits(need),
			inUnits(r.led.limit), driver.ErrOutOfMemory)
	}
	if !r.opt.skipVerification {
		r.say("verify")
		if err := r.session(p, pl, hold, (*execution).verify); err != nil {
			return err
		}
		r.m.Verified = true
	}
	if !p.HasTimes {
		r.m.Notes = append(r.m.Notes, "the recording has no times: kernels are left out, and the step time "+
			"is that of launches, copies and allocations")
	}
	all, err := r.keepAllPlan(p)
	if err != nil {
		return err
	}
	if r.m.KeepAllBefore, err = r.keepAll(p, all); err != nil {
		return err
	}
	r.say("time")
	if err := r.session(p, pl, hold, r.timed); err != nil {
		return err
	}
	r.m.KeepAllAfter, err = r.keepAll(p, all)
	return err
}

// keepAllPlan returns the plan of keeping everything, nil if there is no room even for its largest buffer. If
// it does not fit the device, blocks overlap: the results are then worthless, but the time does not depend on
// addresses.
func (r *measurer) keepAllPlan(p *plan.Problem) (*plan.Plan, error) {
	all, err := KeepAll(p)
	if err != nil {
		return nil, err
	}
	room := (r.led.limit - resultBytes) &^ (torchalloc.MinBlock - 1)
	if all.Footprint <= room {
		return all, nil
	}
	offsets := make([]int64, len(all.Instances))
	for i := range offsets {
		x := &all.Instances[i]
		if x.Size > room {
			r.m.Notes = append(r.m.Notes,
				fmt.Sprintf("keeping everything cannot be timed: a buffer of %s is larger than the %s that "+
					"may be used", inUnits(x.Size), inUnits(room)))
			return nil, nil
		}
		offsets[i] = x.Offset % (room - x.Size + 1) &^ (torchalloc.MinBlock - 1)
	}
	r.m.Notes = append(r.m.Notes, fmt.Sprintf("keeping everything takes %s and %s may be used: its step "+
		"was timed with blocks on top of each other", inUnits(all.Footprint), inUnits(room)))
	all.Place(offsets)
	return all, nil
}

// keepAll returns the step time of keeping everything, 0 if there is no plan for it.
func (r *measurer) keepAll(p *plan.Problem, all *plan.Plan) (int64, error) {
	if all == nil {
		return 0, nil
	}
	r.say("keep everything")
	var step int64
	err := r.session(p, all, r.led.limit, func(x *execution) error {
		t, err := newTiming(x, r.rates, false)
		if err != nil {
			return err
		}
		times, err := t.measure(0, r.opt.WarmUp, (r.opt.Iterations+1)/2)
		step = stats.Median(times)
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
	r.m.StepTime, r.m.StepP95 = stats.Median(times), stats.Percentile(times, 95)
	r.m.DriverCalls = (x.led.calls - calls + n - 1) / n
	r.m.Retries = (x.store.figures().Retries - figures.Retries + n - 1) / n
	held, err := x.store.footprint()
	if err != nil {
		return err
	}
	if x.pl.Policy == nil || x.pl.Policy.Name == plan.PolicyAsync {
		r.m.Footprint = held
	}
	r.m.PinnedPeak = x.prog.pinned
	free, _, err := x.led.MemInfo()
	if err != nil {
		return err
	}
	if counted := r.free - free; counted != x.led.held {
		r.m.Notes = append(r.m.Notes, fmt.Sprintf("the driver has %s less free than before, and the "+
			"executor holds %s", inUnits(counted), inUnits(x.led.held)))
	}
	if r.opt.Used != nil {
		if n, known := r.opt.Used(); known {
			r.m.Notes = append(r.m.Notes,
				fmt.Sprintf("NVML counts %s for this process, context included; the executor holds %s",
					inUnits(n), inUnits(x.led.held)))
		}
	}
	return r.traced(x)
}

// traced fills in what needs events around every step.
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
	r.m.Dry, r.m.Launches = t.trace.dry/n, t.trace.launches/n
	out, in := x.pl.Moved()
	r.m.SwappedOut, r.m.SwappedIn = out/n, in/n
	if seen.outTime > 0 {
		r.m.OutRate = float64(out) / float64(seen.outTime) * 1e9
	}
	if seen.inTime > 0 {
		r.m.InRate = float64(in) / float64(seen.inTime) * 1e9
	}
	if r.opt.Charts {
		r.m.Spans = seen.spans
	}
	return nil
}

// dryIterations run before an online allocator's footprint is taken; as many as in the simulator, so that the
// two can be compared.
const dryIterations = 2

// sizes finds what an online allocator holds without a cap and the smallest cap under which the iteration
// completes, on the device's own memory and with no work on it. It returns the cap to run under: the limit
// or, if that is too little, the smallest cap.
func (r *measurer) sizes(p *plan.Problem, pl *plan.Plan, limit int64) (int64, error) {
	if pl.Policy.Name == plan.PolicyAsync {
		return r.led.limit, nil
	}
	held, ok, err := r.completes(p, pl, r.led.limit, dryIterations)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, fmt.Errorf("the allocator %q does not complete the iteration in the %s of the device "+
			"that may be used: %w",
			pl.Policy.Name, inUnits(r.led.limit), driver.ErrOutOfMemory)
	}
	r.m.Reserved, r.m.Footprint = held, held
	if !allocator.Caches(pl.Policy.Name) {
		return r.led.limit, nil
	}
	low, _ := pl.PeakLive()
	need, err := allocator.SmallestCap(low, held, func(limit int64) (int64, bool, error) {
		_, ok, err := r.completes(p, pl, limit, dryIterations+1)
		return limit, ok, err
	})
	if err != nil {
		return 0, err
	}
	r.m.Footprint = need
	if limit > 0 && held > limit {
		return min(max(limit, need), r.led.limit), nil
	}
	return r.led.limit, nil
}

// completes reports whether an online allocator gets through n iterations under a cap, and the most that it
// held. The device gets no work, so nothing has to wait for work.
func (r *measurer) completes(p *plan.Problem, pl *plan.Plan, limit int64,
	n int) (held int64, ok bool, err error) {
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
