package planner

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
)

// Mistake is the error for an unusable value: another value helps, trying again does not.
type Mistake struct{ err error }

func (m *Mistake) Error() string { return m.err.Error() }

// Unwrap returns the cause.
func (m *Mistake) Unwrap() error { return m.err }

func mistake(format string, args ...any) error { return &Mistake{fmt.Errorf(format, args...)} }

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
	Seed            uint64
	Work            int64

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
	if err != nil || n < 0 {
		return 0, mistake("--%s %q is not a size: write 512MiB", flag, text)
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
		return h, &Mistake{err}
	}
	return h, nil
}

// LiveHardware returns the hardware to plan a running training with.
func (t *Task) LiveHardware() (live.Hardware, error) {
	h, err := t.ChosenHardware()
	return live.Hardware{Hardware: h, Chosen: t.Hardware != "", Of: hardwareOf}, err
}

// OfNetwork makes the problem of the network at a batch size; 0 means the given size, or the network's usual
// one.
func (t *Task) OfNetwork(size int) (*plan.Problem, error) {
	net, err := networks.ByName(t.Network)
	if err != nil {
		return nil, &Mistake{err}
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
	o := networks.Options{Sequence: t.AtSequence}
	switch len(t.Sequence) {
	case 0:
	case 1:
		o.Sequence = t.Sequence[0]
	default:
		return nil, mistake("--network has one sequence length: --sequence 1024")
	}
	p, err := net.Problem(size, hw, o)
	if err != nil {
		return nil, &Mistake{err}
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

// number parses the number of the iteration, -1 for none.
func (t *Task) number() (int, error) {
	if t.Iteration == "" {
		return -1, nil
	}
	n, err := strconv.Atoi(strings.TrimPrefix(t.Iteration, "it"))
	if err != nil || n < 0 {
		return 0, mistake("--iteration %q is not the number of an iteration: write 2, or it2", t.Iteration)
	}
	return n, nil
}

// OfDevice makes the problem of an iteration of a device; name is the recording's name.
func (t *Task) OfDevice(ctx context.Context, d *timeline.Device, name string) (*plan.Problem, error) {
	o := plan.BuildOptions{Name: name, EagerOnly: t.EagerOnly}
	var err error
	if o.Hardware, err = t.ChosenHardware(); err != nil {
		return nil, err
	}
	if o.Iteration, err = t.number(); err != nil {
		return nil, err
	}
	if o.Iteration >= 0 {
		it := steps.Of(d)
		i, err := it.Find(strconv.Itoa(o.Iteration))
		if err == nil && i == len(it.List) {
			err = fmt.Errorf("the last iteration is %d", o.Iteration-1)
		}
		if err != nil {
			return nil, mistake("--iteration %s: %w", t.Iteration, err)
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

// Described describes a training and makes the problem of the step that it runs, under a name.
func (t *Task) Described(ctx context.Context, d Describer, name string) (*plan.Problem, error) {
	h, err := t.LiveHardware()
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

// Describer is a target that can describe what runs on it.
type Describer interface {
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
			err = mistake("--budget 0 leaves no room for anything")
		}
		return n, err
	}
	percent, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
	if err != nil || !(percent > 0 && percent <= 1000) { // NaN is neither
		return 0, mistake("--budget %q is not a share: write 50%%", text)
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
