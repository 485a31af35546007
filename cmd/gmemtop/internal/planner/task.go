package planner

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Task is one iteration to plan and the terms to plan it on, as flags give them. Each field is the value of
// the flag of its name.
type Task struct {
	// Budget is a size, or a share of what a step holds at its peak, as [plan.Problem.Held] counts it.
	Budget, Margin, Outside string
	// Hardware is a name or a JSON file, Network the name of a network to plan instead of a recording.
	Hardware, Network string
	// Iteration is the number of the iteration, "" for the steady one of the highest peak.
	Iteration string
	// Batch and Sequence are the sizes of the network, or of each recording.
	Batch, Sequence []int
	AtSequence      int
	// InPlace is the network's [networks.Options.GradientsInPlace].
	InPlace bool
	Seed    uint64
	Work    int64

	// EagerOnly is [plan.BuildOptions]'s.
	EagerOnly bool
	// Measured is the hardware of the GPU to measure on, nil if none.
	Measured *plan.Hardware
}

// Bytes parses the size that a flag gives, 0 for "".
func Bytes(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := timeline.ParseBytes(text)
	switch {
	case err != nil || n < 0:
		return 0, exit.Mistakef("--%s %q is not a size: write 12GiB or 512MiB", flag, text)
	case timeline.LacksUnit(text, n):
		return 0, exit.Mistakef("--%s %q has no unit: write %[2]sGiB, or %[2]sB for bytes", flag,
			strings.TrimSpace(text))
	}
	return n, nil
}

// ChosenHardware returns the named hardware, or else what was measured on a GPU of this machine, or else the
// default.
func (t *Task) ChosenHardware() (plan.Hardware, error) {
	name := t.Hardware
	switch {
	case name != "":
	case t.Measured != nil:
		return *t.Measured, nil
	default:
		if h, ok := calibratedHere(); ok {
			return h, nil
		}
		name = DefaultHardware
	}
	if strings.HasSuffix(name, ".json") {
		return hardware.Load(name)
	}
	h, err := hardware.ByName(name)
	if err != nil {
		return h, exit.AsMistake(err)
	}
	return h, nil
}

// liveHardware returns the hardware to plan a running training with.
func (t *Task) liveHardware() (live.Hardware, error) {
	h, err := t.ChosenHardware()
	return live.Hardware{Hardware: h, Chosen: t.Hardware != "", Of: hardwareOf}, err
}

// OfNetwork makes the problem of the network at a batch size; 0 means the given size, or the network's usual
// one.
func (t *Task) OfNetwork(size int) (*plan.Problem, error) {
	net, err := networks.ByName(t.Network)
	if err != nil {
		return nil, exit.AsMistake(err)
	}
	hw, err := t.ChosenHardware()
	if err != nil {
		return nil, err
	}
	switch {
	case size > 0:
	case len(t.Batch) > 0:
		size = t.Batch[0]
	default:
		size = net.Batches[0]
	}
	o := networks.Options{Sequence: t.AtSequence, GradientsInPlace: t.InPlace}
	switch len(t.Sequence) {
	case 0:
	case 1:
		o.Sequence = t.Sequence[0]
	default:
		return nil, exit.Mistakef("--network has one sequence length: --sequence 1024")
	}
	p, err := net.Problem(size, hw, o)
	if err != nil {
		return nil, exit.AsMistake(err)
	}
	return t.withOutside(p)
}

// withOutside adds the memory outside of tensors to a problem.
func (t *Task) withOutside(p *plan.Problem) (*plan.Problem, error) {
	n, err := Bytes("outside", t.Outside)
	if err != nil {
		return nil, err
	}
	p.Outside = n
	return p, nil
}

// number parses the number of the iteration, unknown for none.
func (t *Task) number() (maybe.Int, error) {
	if t.Iteration == "" {
		return maybe.Int{}, nil
	}
	n, err := strconv.Atoi(strings.TrimPrefix(t.Iteration, "it"))
	if err != nil || n < 0 {
		return maybe.Int{}, exit.Mistakef("--iteration %q is not the number of an iteration: write 2, or it2",
			t.Iteration)
	}
	return maybe.Known(int64(n)), nil
}

// ofDevice makes the problem of an iteration of a device; name is the recording's name.
func (t *Task) ofDevice(ctx context.Context, d *timeline.Device, name string) (*plan.Problem, error) {
	o := plan.BuildOptions{Name: name, EagerOnly: t.EagerOnly, Iteration: plan.SteadyIteration}
	var err error
	if o.Hardware, err = t.ChosenHardware(); err != nil {
		return nil, err
	}
	number, err := t.number()
	if err != nil {
		return nil, err
	}
	if n, ok := number.Value(); ok {
		it := steps.Of(d)
		i, err := it.Find(strconv.FormatInt(n, 10))
		if err == nil && i == len(it.List) {
			err = fmt.Errorf("the last iteration is %d", n-1)
		}
		if err != nil {
			return nil, exit.Mistakef("--iteration %s: %w", t.Iteration, err)
		}
		o.Iteration = i
	}
	if h, ok := hardwareOf(d.Info.Name); ok && t.Hardware == "" && t.Measured == nil {
		o.Hardware = h
	}
	p, err := plan.FromDevice(ctx, d, o)
	if err != nil {
		return nil, err
	}
	return t.withOutside(p)
}

// ErrNoDevice is the error for a trace without a device.
var ErrNoDevice = errors.New("this trace has no device whose memory could be planned")

// OfTimeline makes the problem of an iteration of a recording: of the first of the chosen devices, by default
// of the main one. The error wraps [traces.ErrFormat] if the recording is impossible: sizes beyond any
// device, work without memory for it.
func (t *Task) OfTimeline(ctx context.Context, tl *timeline.Timeline, of report.Devices,
	name string) (*plan.Problem, error) {
	d := tl.Main()
	if !of.IsZero() {
		devices, err := of.Of(tl)
		if err != nil {
			return nil, exit.AsMistake(err)
		}
		if len(devices) > 0 {
			d = devices[0]
		}
	}
	if d == nil {
		return nil, ErrNoDevice
	}
	p, err := t.ofDevice(ctx, d, name)
	if errors.Is(err, plan.ErrInvalid) {
		return nil, fmt.Errorf("%s: %w: %w", name, traces.ErrFormat, err)
	}
	return p, err
}

// Described describes a training and makes the problem of the step that it runs, under a name.
func (t *Task) Described(ctx context.Context, d describer, name string) (*plan.Problem, error) {
	h, err := t.liveHardware()
	if err != nil {
		return nil, err
	}
	p, err := d.Problem(ctx, h)
	if err != nil {
		return nil, err
	}
	p.Name = name
	return t.withOutside(p)
}

// describer is a target that can describe what runs on it.
type describer interface {
	Problem(ctx context.Context, h live.Hardware) (*plan.Problem, error)
}

// Check returns an error if the task cannot be planned for any recording. It needs no recording.
func (t *Task) Check() error {
	if t.Hardware != "" {
		if _, err := t.ChosenHardware(); err != nil {
			return err
		}
	}
	_, err := t.number()
	return err
}

// BudgetFor returns the budget for a problem, 0 for none.
func (t *Task) BudgetFor(p *plan.Problem) (int64, error) {
	text := strings.TrimSpace(t.Budget)
	share, isShare := strings.CutSuffix(text, "%")
	if !isShare {
		n, err := Bytes("budget", text)
		if err == nil && text != "" && n == 0 {
			err = exit.Mistakef("--budget 0 leaves no room for anything")
		}
		return n, err
	}
	percent, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
	if err != nil || !(percent > 0 && percent <= 1000) { // NaN is neither
		return 0, exit.Mistakef("--budget %q is not a share: write 50%%", text)
	}
	return int64(float64(p.Held()) * percent / 100), nil
}

// Options returns the budget for a problem, how much of it to keep free, and how managers search.
func (t *Task) Options(p *plan.Problem) (o replay.Options, err error) {
	o.Seed, o.Work = t.Seed, t.Work
	if o.Budget, err = t.BudgetFor(p); err != nil {
		return o, err
	}
	o.Margin, err = Bytes("margin", t.Margin)
	return o, err
}

// Made returns the result of a comparison of one manager: of its plan, or if eager is set of the part of it
// that eager PyTorch can run. With an error, which says why there is no such plan, it returns the result that
// shows it.
func Made(c *replay.Comparison, eager bool) (*replay.Result, error) {
	r := &c.Results[0]
	if eager {
		r = &c.Results[len(c.Results)-1] // what eager PyTorch can run comes after the plan in theory
	}
	switch {
	case !r.Available:
		return r, fmt.Errorf("%s: %s", r.Info.Name, r.Reason)
	case eager && r.Executor != plan.TorchEager && len(r.Plan.Absences) > 0:
		return r, fmt.Errorf("%s: eager PyTorch cannot run any of this plan; leave out --eager to write it "+
			"as it is", r.Info.Name)
	}
	return r, nil
}

// net returns how much of the budget for a problem is left for tensors, 0 if there is no budget.
func (t *Task) net(p *plan.Problem) (int64, error) {
	o, err := t.Options(p)
	if err != nil || o.Budget == 0 {
		return 0, err
	}
	outside, err := Bytes("outside", t.Outside)
	return o.Budget - o.Margin - outside, err
}

// TooSmall explains in the user's units what a too small budget must hold; ok is false for any other error.
func TooSmall(err error, budget int64, u timeline.Units) (text string, ok bool) {
	var small *plan.TooSmall
	if !errors.As(err, &small) {
		return "", false
	}
	of := "the budget is " + u.Bytes(small.Budget)
	if small.Budget != budget {
		of = fmt.Sprintf("of the budget of %s --outside and --margin leave %s", u.Bytes(budget),
			u.Bytes(small.Budget))
	}
	return fmt.Sprintf("not possible: %s need %s, and %s", small.Held, u.Bytes(small.Need), of), true
}
