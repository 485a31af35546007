package live

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/described"
)

// The cost of a plan if a CPU trains.
//
// Problem: a CPU has no copy engines. The thread that trains does all of a plan's work itself: copies that
// fetch fresh pages from the kernel, Python calls for each saved tensor, a dispatch mode around each op. No
// preset knows how long that takes on this machine.
//
// Approach: measure it in the training. The training runs a few steps of each kind in turn: without a plan,
// with hooks that keep everything, with a mode that notes nothing, with a plan that swaps what it can, and
// with one that runs some ops again. We compare the thread's own processor time, which other processes hardly
// disturb. Two costs are too small to see in whole steps: the fixed cost of a swap, and what running an op
// again takes beside the op itself. The agent times these on tensors of its own after the steps that it
// captures (costs.py).
//
// Rejected: timing everything in a loop. In a loop, hooks find all of Python in the processor's caches and
// took a quarter of their time between real ops. Copies find the tensor in the caches and their memory
// already in the process, and were up to six times as fast.
//
// A captured step takes longer, because the agent works between its ops and, on a busy machine, others do
// too. So we scale it to the processor time of steps that nobody captures: first the gaps between ops shrink,
// then the ops. Shares of a step are shares of the thread's work, which is what a step takes if nobody else
// uses the machine and data arrive in time.
//
// Also rejected: a preset with a high bandwidth (it makes swapping free), and one plan's measurements as the
// next plan's costs (the first plan would have none).

// Hardware is what a training's problem is planned on.
type Hardware struct {
	plan.Hardware
	// Chosen says that the user named this hardware. Otherwise a training on a CPU is measured instead.
	Chosen bool
	// Of returns the hardware of a GPU, given its driver's name for it. It may be nil.
	Of func(name string) (plan.Hardware, bool)
}

// on returns the hardware to plan on if device d trains: its own, unless the user chose another.
func (h Hardware) on(d *timeline.Device) plan.Hardware {
	if h.Chosen || h.Of == nil || d.Info.Kind != traces.DeviceGPU || d.Info.Name == "" {
		return h.Hardware
	}
	if own, ok := h.Of(d.Info.Name); ok {
		return own
	}
	return h.Hardware
}

// costs are what the agent measured: see costs.py. Times are in nanoseconds.
type costs struct {
	Bytes [2]int64 `json:"bytes"`
	Out   [2]int64 `json:"out"`
	In    [2]int64 `json:"in"`
	Again int64    `json:"again"`
}

// link returns the line through the times of two sizes.
func link(bytes, took [2]int64) plan.Link {
	n, t := bytes[1]-bytes[0], max(took[1]-took[0], 1)
	l := plan.Link{BytesPerSecond: float64(n) / float64(t) * 1e9}
	l.Latency = max(took[0]-int64(float64(bytes[0])/l.BytesPerSecond*1e9), 0)
	return l
}

// tried returns the hardware that a recording's costs describe; ok is false if it has none.
func tried(tr *traces.Trace) (h plan.Hardware, ok bool) {
	i := slices.IndexFunc(tr.Settings, func(s traces.Setting) bool { return s.Key == described.CostsSetting })
	if i < 0 {
		return h, false
	}
	var c costs
	if err := json.Unmarshal([]byte(tr.Settings[i].Value), &c); err != nil || c.Bytes[0] <= 0 ||
		c.Bytes[1] <= c.Bytes[0] ||
		min(c.Out[0], c.Out[1], c.In[0], c.In[1]) <= 0 || c.Again < 0 {
		return h, false
	}
	return plan.Hardware{
		Name: "the training's own thread",
		Origin: fmt.Sprintf("measured in the training: copies of %d and %d bytes, hooks and ops that run "+
			"again, by the thread that trains", c.Bytes[0], c.Bytes[1]),
		D2H: link(c.Bytes, c.Out), H2D: link(c.Bytes, c.In), AgainTime: c.Again,
		NoEngines: true, Measured: true, Together: 1,
	}, true
}

// Plans that move nothing: hooks that keep everything, and in addition a mode that looks for an op that does
// not exist.
const (
	keeping = `{"version":1,"device":"cpu","slab":0,"values":[],"groups":[]}`
	noting  = `{"version":1,"device":"cpu","slab":0,"values":[],"groups":[[["gmemtop::none",0]]]}`
)

// The kinds of steps take trialTurns turns. Each turn times trialSteps steps, after an untimed one. Where
// steps are longer than longStep, in nanoseconds, there is one turn only and longTrialSteps in it: fixed
// costs hardly matter there, and the user waits.
const (
	trialTurns     = 3
	trialSteps     = 4
	longStep       = 1_000_000_000
	longTrialSteps = 2
)

// trial is the time of steps without and with parts of a plan, in nanoseconds.
type trial struct {
	time int64 // median of steps without, including the time that other processes used the processor
	// what hooks, and a mode in addition, add to a step's processor time; 0 if unknown
	hooks, modes int64
	out, in      int64        // of copies
	moved        [2]int64     // bytes out and in
	again        int64        // of rerun ops
	work         [kinds]int64 // processor time
}

// kinds of steps.
const kinds = 5

// try times steps of each kind, see above. It skips a plan that is refused, such as one for which the host
// has no room. It reports how many steps have been timed.
func (t *Target) try(ctx context.Context, swaps, reruns []byte, tell func(News)) (r trial, err error) {
	defer func() { t.takeOff(ctx, &err) }()
	var ran [kinds][]Step
	plans := [kinds][]byte{nil, []byte(keeping), []byte(noting), swaps, reruns}
	// one short turn must be enough until the length of a step is known
	turns, each, timed := 1, longTrialSteps, 0
	for turn := 0; turn < turns; turn++ {
		for k, words := range plans {
			if k > 0 && words == nil {
				continue
			}
			tell(News{Stage: Describing, Timed: timed, Time: timed + left(plans, k, turns-turn, each)})
			steps, err := t.some(ctx, words, each)
			switch {
			case err != nil && (k < 3 || ctx.Err() != nil):
				return r, err
			case err != nil:
				plans[k], ran[k] = nil, nil
			default:
				ran[k] = append(ran[k], steps...)
			}
			timed += 1 + each
			if ran[0][0].Time <= longStep {
				turns, each = trialTurns, trialSteps
			}
		}
	}
	r.time, _ = spread(ran[0])
	// a limit on what a plan may cost needs more steps
	if t.opt.MostOverhead == 0 && turns == trialTurns {
		t.without = ran[0]
	}
	for k := range ran[:3] {
		if r.work[k] = work(ran[k]); r.work[k] == 0 {
			return r, nil
		}
	}
	r.hooks, r.modes = max(r.work[1]-r.work[0], 0), max(r.work[2]-r.work[1], 0)
	if swapped := ran[3]; len(swapped) > 0 {
		r.moved = [2]int64{swapped[0].Out, swapped[0].In}
		r.out, r.in = undisturbed(swapped, func(s Step) int64 {
			return s.OutTime
		}), undisturbed(swapped, func(s Step) int64 { return s.InTime })
	}
	if again := ran[4]; len(again) > 0 && !slices.ContainsFunc(again, func(s Step) bool {
		return s.Missed > 0
	}) {
		r.again = undisturbed(again, func(s Step) int64 { return s.Again })
	}
	return r, nil
}

// left returns how many steps are still to be timed before the k-th kind in the first of the turns, if so
// many are timed each time.
func left(plans [kinds][]byte, k, turns, each int) (steps int) {
	for turn := range turns {
		for i, words := range plans {
			if (i == 0 || words != nil) && (turn > 0 || i >= k) {
				steps += 1 + each
			}
		}
	}
	return steps
}

// some times a few steps under a plan, or without one.
func (t *Target) some(ctx context.Context, words []byte, count int) (steps []Step, err error) {
	number := int64(0)
	if words == nil {
		err = t.carrier.Carry(ctx, Order{})
	} else {
		number, err = t.tryOut(ctx, words)
	}
	if err == nil {
		steps, err = t.carrier.Steps(ctx, number, 1+count)
	}
	if err != nil {
		return nil, err
	}
	return steps[1:], nil
}

// undisturbed returns the lowest eighth of the steps' processor times: through the caches, other processes
// only ever add to them.
func undisturbed(steps []Step, of func(Step) int64) int64 {
	figures := make([]int64, len(steps))
	for i, s := range steps {
		figures[i] = of(s)
	}
	slices.Sort(figures)
	return figures[len(figures)/8]
}

// work returns the processor time of steps, 0 if none reports it.
func work(all []Step) int64 {
	steps := slices.DeleteFunc(slices.Clone(all), func(s Step) bool { return !s.Work.IsKnown() })
	if len(steps) == 0 {
		return 0
	}
	return undisturbed(steps, func(s Step) int64 { return s.Work.Or(0) })
}

// measured sets the hardware of a problem on a CPU to what was measured there, and its times to those of
// steps that are not captured. It reports progress.
func (t *Target) measured(ctx context.Context, p *plan.Problem, tr *traces.Trace, tell func(News)) error {
	h, ok := tried(tr)
	if !ok {
		p.Notes = append(p.Notes, "what copies take in this training was not measured: they are taken to "+
			"be made beside compute, as on a GPU")
		return nil
	}
	swaps, err := swapping(p, mostTried)
	if err != nil {
		return err
	}
	reruns, again, err := rerunning(p)
	if err != nil {
		return err
	}
	r, err := t.try(ctx, swaps, reruns, tell)
	if err != nil {
		return err
	}
	for _, l := range []struct {
		link        *plan.Link
		bytes, time int64
	}{{&h.D2H, r.moved[0], r.out}, {&h.H2D, r.moved[1], r.in}} {
		if x := rate(l.bytes, l.time); x > 0 {
			l.link.BytesPerSecond = x
		}
	}
	var saves, ops int64
	for i := range p.Ops {
		switch op := &p.Ops[i]; {
		case op.Name == plan.SaveOp:
			saves++
		case op.Name != plan.LoadOp && op.Phase == traces.PhaseForward && op.Module != "":
			ops++
		}
	}
	h.SaveTime, h.NoteTime = r.hooks/max(saves, 1), r.modes/max(ops, 1)
	h.LaunchGap, h.PinnedBytes, h.MemoryBytes = 0, p.Hardware.PinnedBytes, p.Hardware.MemoryBytes
	p.Hardware = h
	if r.work[0] > 0 {
		asLong(p, r.work[0])
		if r.again > 0 {
			for _, o := range again {
				r.again -= p.Ops[o].Duration
			}
			p.Hardware.AgainTime = max(r.again/int64(len(again)), h.AgainTime)
		}
		if float64(r.time) > waits*float64(r.work[0]) {
			p.Notes = append(p.Notes, fmt.Sprintf("a step takes %s, of which the thread that trains works "+
				"%s: all shares are of that. In the rest it waits, for data or for a "+
				"processor that others have",
				timeline.Duration(r.time), timeline.Duration(r.work[0])))
		}
	}
	return nil
}

// waits is how many times longer than its work a step must take before we mention that it waits.
const waits = 1.2

// asLong shortens the ops of a problem so that together they take at most step nanoseconds: first the gaps
// between ops, then all ops alike.
func asLong(p *plan.Problem, step int64) {
	var all, host int64
	for i := range p.Ops {
		all += p.Ops[i].Duration
		if p.Ops[i].Name == plan.HostOp {
			host += p.Ops[i].Duration
		}
	}
	if step >= all {
		return
	}
	ops := all - host
	hostShare, opShare := 0.0, 1.0
	if ops > step {
		opShare = float64(step) / float64(ops)
	} else {
		hostShare = float64(step-ops) / float64(host)
	}
	for i := range p.Ops {
		if op := &p.Ops[i]; op.Name == plan.HostOp {
			op.Duration = int64(float64(op.Duration) * hostShare)
		} else {
			op.Duration = int64(float64(op.Duration) * opShare)
		}
	}
}
