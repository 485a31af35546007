package live

import (
	"context"
	"errors"
	"slices"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// describeTries bounds how often a training is described: until the steps are alike or, if batches vary in
// shape, to find the largest, which is planned for.
const describeTries = 5

// suspectTries is how many captures are compared with each other after a plan has ended that did not fit.
const suspectTries = 2

// settlingSteps is how many steps pass before we capture again while the optimizer's work still changes: five
// captures then span about fifty steps.
const settlingSteps = 10

// Problem captures steps of the training and returns the iteration that it runs, for [plan.TorchEager]. The
// hardware is h if the user chose it, else the GPU that trains or, on a CPU, what is measured there. For a
// pool the problem is what the training allocates. If the captured steps are not alike, Problem captures
// again, up to five times or until it meets the same difference again; if only the optimizer's ops differ
// then, the error wraps [ErrUneven]. If they run the same ops on batches of other shapes, the result is the
// largest step of five captures, with the largest sizes of some more steps: a plan for that step serves
// smaller ones too. If autograd saves other tensors in each step, or no two steps run the same ops, the
// result also has the other captured steps.
func (t *Target) Problem(ctx context.Context, h Hardware) (_ *plan.Problem, err error) {
	describing := t.opt.Describing
	if describing == nil {
		describing = func(News) {}
	}
	if t.pool != nil {
		describing(News{Stage: Describing, Try: 1, Tries: 1})
		return t.poolProblem(ctx, h)
	}
	var largest *plan.Problem
	var of *traces.Trace
	var uneven error
	vary, crossed, steps := false, false, 0
	var captured []*traces.Trace
	opsVary := false
	suspect := t.ended       // the steps that its plan was made for may have been alike by chance
	met := map[string]bool{} // differences between steps
	for try := 1; try <= describeTries; try++ {
		if try > suspectTries && took(captured) > int64(t.opt.Patience) && !errors.Is(uneven, errSettling) {
			break
		}
		if largest != nil && !vary && !crossed && !opsVary && !(suspect && try <= suspectTries) {
			break
		}
		describing(News{Stage: Describing, Try: try, Tries: describeTries})
		tr, err := t.carrier.Describe(ctx, 0)
		if err != nil {
			return nil, err
		}
		if crossed { // the steps of the capture before ended elsewhere
			captured = nil
		}
		captured = append(captured, tr)
		opsVary = opsVary || (suspect || vary) && savesVary(captured...)
		p, err := problem(ctx, tr, h)
		if errors.Is(err, ErrUneven) {
			uneven = err
			if opsVary = opsVary || savesVary(tr) || suspect && placeable(err, tr); opsVary {
				continue
			}
			if met[err.Error()] { // capturing again would cost the job time and show the same
				break
			}
			met[err.Error()] = true
			if errors.Is(err, errSettling) && try < describeTries && !t.opt.NeverWithout {
				if _, err := t.carrier.Steps(ctx, 0, settlingSteps); err != nil {
					return nil, err
				}
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		vary, steps = vary || varies(tr), steps+DescribedSteps
		if largest == nil || crossed || p.Held() > largest.Held() {
			largest, of = p, tr
		}
		// from now on the process ends steps where no graph is pending, if there is such a place
		crossed = try == 1 && crosses(tr)
	}
	// The steps save the same tensors and run different ops: the program evaluates now and then, or a module
	// draws which of its ops to run. That does not move the places of other modules.
	opsVary = opsVary || largest == nil && placeable(uneven, captured...)
	if opsVary {
		if largest, of, err = varied(ctx, captured, h); err != nil {
			return nil, err
		}
		vary, steps = true, len(largest.Varied)+1
	}
	if largest == nil {
		return nil, uneven
	}
	if !h.Chosen && !t.opt.NeverWithout && onCPU(largest) { // measuring takes steps without a plan
		if err := t.measured(ctx, largest, of, describing); err != nil {
			return largest, err
		}
	}
	if vary {
		each := took(captured) / int64(DescribedSteps*max(len(captured), 1))
		return t.sized(ctx, largest, steps, each, describing)
	}
	return largest, nil
}

// took returns how long the steps of some captures took, in nanoseconds.
func took(captured []*traces.Trace) (sum int64) {
	for _, tr := range captured {
		for m := range stepMarks(tr) {
			sum += m.End - m.Start
		}
	}
	return sum
}

// placeable reports whether uneven steps can be planned for by place: not only the optimizer's ops differ,
// and each recording has several steps.
func placeable(uneven error, captured ...*traces.Trace) bool {
	if errors.Is(uneven, errSettling) {
		return false
	}
	for _, tr := range captured {
		if len(slices.Collect(stepMarks(tr))) < DescribedSteps {
			return false
		}
	}
	return len(captured) > 0
}

// varied returns the problem of a program whose steps run different ops: the largest of the captures' last
// steps, of which it is known what they take over, with all others in [plan.Problem.Varied], and its trace.
func varied(ctx context.Context, captured []*traces.Trace, h Hardware) (*plan.Problem, *traces.Trace, error) {
	var largest *plan.Problem
	var of *traces.Trace
	var all []*plan.Problem
	for _, tr := range captured {
		k := 0
		for range stepMarks(tr) {
			k++
		}
		for i := range k {
			p, err := step(ctx, tr, h, i)
			if err != nil {
				return nil, nil, err
			}
			all = append(all, p)
			if i == k-1 && (largest == nil || preferred(p, largest)) {
				largest, of = p, tr
			}
		}
	}
	if err := pinShifted(all); err != nil {
		return nil, nil, err
	}
	largest.Varied = slices.DeleteFunc(all, func(p *plan.Problem) bool { return p == largest })
	return largest, of, nil
}

// muchAsLarge is the share of another step's bytes from which a step counts as about as large.
const muchAsLarge = 0.95

// preferred reports whether to plan for step p rather than q: if it is clearly larger or, of two about as
// large, if it runs more ops and so has more places.
func preferred(p, q *plan.Problem) bool {
	x, y := float64(p.Held()), float64(q.Held())
	if min(x, y) < muchAsLarge*max(x, y) {
		return x > y
	}
	return len(p.Ops) > len(q.Ops)
}

// problem returns the problem of a capture's last step. If its steps are not alike, the error wraps
// [ErrUneven].
func problem(ctx context.Context, tr *traces.Trace, h Hardware) (*plan.Problem, error) {
	if err := alike(tr); err != nil {
		return nil, err
	}
	return step(ctx, tr, h, plan.LastIteration)
}

// step returns the problem of a step of a capture.
func step(ctx context.Context, tr *traces.Trace, h Hardware, iteration int) (*plan.Problem, error) {
	d, err := trainingDevice(ctx, tr)
	if err != nil {
		return nil, err
	}
	p, err := plan.FromDevice(ctx, d, plan.BuildOptions{Iteration: iteration, Hardware: h.on(d),
		EagerOnly: true, Name: "the running training"})
	if err != nil {
		return nil, err
	}
	p.Scattered = true
	pinExposed(p)
	return p, nil
}

// trainingDevice returns the device that trains: the GPU with the highest peak, or the CPU if there is no
// GPU.
func trainingDevice(ctx context.Context, tr *traces.Trace) (*timeline.Device, error) {
	tl, err := timeline.Build(ctx, tr, nil)
	if err != nil {
		return nil, err
	}
	var best *timeline.Device
	for _, d := range tl.Devices {
		if best == nil || d.Info.Kind == traces.DeviceGPU && best.Info.Kind != traces.DeviceGPU ||
			d.Info.Kind == best.Info.Kind && d.Totals.PeakAllocated > best.Totals.PeakAllocated {
			best = d
		}
	}
	if best == nil {
		return nil, errors.New(say.HoldsNoMemory.Text())
	}
	return best, nil
}
