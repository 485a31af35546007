package crew

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/pool"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// Member is one process of a training.
type Member struct {
	// History is what we know of the process, and Control takes orders for it. Both are nil if Err is not.
	History *capture.History
	Control capture.Controller
	// PID and Name are the process's number and display name, as far as they are known.
	PID  int
	Name string
	// Err says why the process takes no orders, nil if it does.
	Err error

	mu     sync.Mutex
	orders map[int64]capture.OrderID // the orders that began plans, by the plan's number
}

var _ live.PoolCarrier = (*Member)(nil)

// newMember returns a process that records its history and takes orders.
func newMember(s *capture.History, c capture.Controller) *Member {
	t := s.Snapshot().Info
	return &Member{History: s, Control: c, PID: t.PID, Name: t.Name()}
}

// membersOf returns the processes of a job.
func membersOf(list []job.Candidate) (members []*Member) {
	for _, c := range list {
		m := &Member{PID: c.PID, Name: c.Name, Err: c.Err}
		if c.Process != nil {
			m.History, m.Control = c.History, c.Process
		}
		members = append(members, m)
	}
	return members
}

// errEnded is wrapped by errors of a training that has ended.
var errEnded = errors.New(say.TrainingEnded.Text())

// endError wraps errEnded and says how the training ended, or why it is no longer watched and goes on.
type endError struct{ capture.End }

func (e *endError) Error() string {
	if e.Reason != capture.Exited {
		return e.Sentence()
	}
	return errEnded.Error() + ": " + e.Sentence()
}

func (e *endError) Unwrap() error { return errEnded }

// Why no more steps run under a plan.
var (
	errGivenUp = errors.New(say.NotCarriedOut.Text())
	errDiffer  = errors.New(say.MayDiffer.Text())
)

// orderError is an order that was refused, or a plan that ended.
type orderError struct{ capture.Answer }

func (e *orderError) Error() string { return say.WhyOff(e.Text) }

// until waits until f returns true or an error, or the training ends.
func (m *Member) until(ctx context.Context, f func(v *capture.View) (bool, error)) error {
	return m.History.Until(ctx, func(v *capture.View) (bool, error) {
		if ok, err := f(v); ok || err != nil {
			return ok, err
		}
		if v.Ended {
			return false, &endError{v.End}
		}
		return false, nil
	})
}

// FirstStep waits until the first watched step has ended.
func (m *Member) FirstStep(ctx context.Context) error {
	return m.until(ctx, func(v *capture.View) (bool, error) { return len(v.Steps) > 0, nil })
}

// order gives an order and waits until it is done. A refusal is an orderError.
func (m *Member) order(ctx context.Context, o capture.Order) error {
	if err := m.Control.Order(ctx, o); err != nil {
		return err
	}
	return m.until(ctx, func(v *capture.View) (bool, error) {
		a, _ := v.Answered(o.ID)
		if a.State == capture.OrderRefused {
			return false, &orderError{a}
		}
		return a.State == capture.OrderDone, nil
	})
}

// describe captures steps and returns the window.
func (m *Member) describe(ctx context.Context, o capture.Order) (w capture.Window, err error) {
	o.ID = capture.NewOrderID()
	if err := m.order(ctx, o); err != nil {
		return w, err
	}
	for _, w := range m.History.Snapshot().Windows {
		switch {
		case !slices.Contains(w.Orders, o.ID):
		case w.Partial:
			return w, fmt.Errorf("%w %s", errEnded, say.EndedWithin.Text())
		default:
			return w, nil
		}
	}
	return w, errors.New(say.WindowLost.Text())
}

// offloads reports whether the training keeps saved tensors on the host while there is no plan.
func (m *Member) offloads() bool { return m.History.Snapshot().Info.Offloads }

// onCPU reports whether the training, whose first step has ended, runs on a CPU for certain: it has used no
// GPU, though parameters on the CPU may be there to wait for their turn on one.
func (m *Member) onCPU() bool {
	v := m.History.Snapshot()
	return v.Info.Device == "cpu" && len(v.Info.GPUs) == 0 && v.Said(say.KeyState) == ""
}

// keep makes saved tensors stay on the device while there is no plan, and waits until they do.
func (m *Member) keep(ctx context.Context) error {
	return m.order(ctx, capture.Order{ID: capture.NewOrderID(), Do: capture.Keep})
}

// Describe implements live.Carrier.
func (m *Member) Describe(ctx context.Context, number int64) (*traces.Trace, error) {
	w, err := m.describe(ctx, capture.Order{Do: capture.Describe, Steps: live.DescribedSteps,
		How: capture.HowOps, Saves: true})
	refused := (*orderError)(nil)
	switch {
	case err == nil && number != 0 && !m.ranUnder(number, w):
		return nil, fmt.Errorf("%w: %s", errGivenUp, say.EndedBefore.Text())
	case errors.As(err, &refused) && number != 0 && refused.Reason == capture.ReasonSavesUnseen:
		return nil, fmt.Errorf("%w: %w", errGivenUp, refused)
	case errors.As(err, &refused):
		return nil, errors.New(say.NotDescribed.Text(refused.Text))
	case err != nil:
		return nil, err
	}
	// Part of the steps is missing, so a plan made from the rest would be wrong.
	for _, lost := range w.Trace.Losses {
		switch lost.Name {
		case pytorch.WindowDamaged:
			return nil, errors.New(say.NotDescribed.Text(lost.Detail))
		case pytorch.WindowRows:
			return nil, errors.New(say.NotDescribed.Text(
				say.StepsTooLong.Text(live.DescribedSteps, len(w.Trace.Ops))))
		}
	}
	return w.Trace, nil
}

// ranUnder reports whether every step of a window ran under a plan.
func (m *Member) ranUnder(number int64, w capture.Window) bool {
	return !slices.ContainsFunc(m.History.Snapshot().Steps, func(s capture.Step) bool {
		return w.First <= s.Index && s.Index <= w.Last && s.Carried.Plan != number
	})
}

// Usual returns the median time of the newest steps, in nanoseconds; 0 before there is one.
func (m *Member) Usual() int64 {
	steps := m.History.Snapshot().Steps
	var times []int64
	for _, s := range steps[max(len(steps)-usualOf, 0):] {
		times = append(times, s.End-s.Start)
	}
	if len(times) == 0 {
		return 0
	}
	return stats.Median(times)
}

// usualOf is the number of steps in that median.
const usualOf = 9

// Carry implements live.Carrier.
func (m *Member) Carry(ctx context.Context, of live.Order) error {
	o := capture.Order{ID: capture.NewOrderID(), Do: capture.Carry, Number: of.Number, Plan: of.Plan,
		Stays: of.Stays}
	m.mu.Lock()
	if m.orders == nil {
		m.orders = map[int64]capture.OrderID{}
	}
	m.orders[of.Number] = o.ID
	m.mu.Unlock()
	return m.Control.Order(ctx, o)
}

// liveStep returns the figures of a step that plans are judged by.
func liveStep(s *capture.Step) live.Step {
	return live.Step{Time: s.End - s.Start, Work: s.Work, OutTime: int64(s.Carried.OutTime),
		InTime: int64(s.Carried.InTime), Out: s.Carried.Out, In: s.Carried.In, Again: int64(s.Carried.Again),
		Missed: s.Carried.Missed, Checked: s.Carried.Checked, Differ: s.Carried.Differ,
		Reserved: s.Reserved, Resident: s.RSS}
}

// Steps implements live.Carrier.
func (m *Member) Steps(ctx context.Context, number int64, n int) ([]live.Step, error) {
	from := int64(-1)
	if v := m.History.Snapshot(); len(v.Steps) > 0 {
		from = v.Steps[len(v.Steps)-1].Index
	}
	m.mu.Lock()
	order := m.orders[number]
	m.mu.Unlock()
	var steps []live.Step
	err := m.until(ctx, func(v *capture.View) (bool, error) {
		steps = steps[:0]
		first, _ := slices.BinarySearchFunc(v.Steps, from+1,
			func(s capture.Step, at int64) int { return int(s.Index - at) })
		for _, s := range v.Steps[first:] {
			if s.Carried.Plan == number && len(steps) < n {
				steps = append(steps, liveStep(&s))
			}
		}
		if err := planEnded(v, number, order); err != nil {
			return false, err
		}
		return len(steps) == n, nil
	})
	return steps, err
}

// Larger implements live.Carrier.
func (m *Member) Larger(number int64) (sizes []int64, steps int64) {
	m.mu.Lock()
	order := m.orders[number]
	m.mu.Unlock()
	v := m.History.Snapshot()
	for _, a := range slices.Backward(v.Answers) {
		if order != 0 && a.Order == order && a.Reason == capture.ReasonLarger {
			return a.Sizes, a.Larger
		}
	}
	return nil, 0
}

// planEnded returns why a plan is not or no longer carried out; nil if it is or still may be.
func planEnded(v *capture.View, number int64, order capture.OrderID) error {
	a, ok := v.Answered(order)
	if number == 0 || !ok || a.State != capture.OrderRefused && a.State != capture.OrderEnded {
		return nil
	}
	switch a.Reason {
	case capture.ReasonTakenAway, capture.ReasonSuperseded:
		return live.ErrTakenAway
	case capture.ReasonDiffers:
		return fmt.Errorf("%w: %s", errDiffer, say.WhyOff(a.Text))
	}
	return fmt.Errorf("%w: %s", errGivenUp, say.WhyOff(a.Text))
}

// RecordedSteps is how many steps of the allocator a plan is made from: memory alive across a step's end
// shows in the next step but one.
const RecordedSteps = 3

// Target returns the process as a target of plans that choose addresses, or of plans that move and drop saved
// tensors.
func (m *Member) Target(ctx context.Context, pooled bool, o live.Options) (*live.Target, error) {
	o = m.counted(o)
	if !pooled {
		return live.NewTarget(m, o), nil
	}
	library, err := pool.Build(ctx)
	if err != nil {
		return nil, err
	}
	return live.NewPoolTarget(m, library, o), nil
}

// counted adds to the options how to read the process's memory: from the driver if it trains on a GPU, and
// otherwise from the kernel if it runs on this machine.
func (m *Member) counted(o live.Options) live.Options {
	switch who := m.History.Snapshot().Info; {
	case strings.HasPrefix(who.Device, "cuda"):
		o.Used = nvml.UsedBy(who.PID, func(string) bool { return true })
	case who.PID != 0 && !who.Remote:
		o.Used = func() (int64, bool) { return procs.Resident(who.PID, who.Started) }
	}
	return o
}

// DescribeEvents implements live.PoolCarrier. For a GPU torch records the memory itself.
func (m *Member) DescribeEvents(ctx context.Context, library string) (*traces.Trace, error) {
	v := m.History.Snapshot()
	if !slices.Contains(v.Info.Capabilities, capture.HowEvents) {
		return nil, errors.New(say.AgentKnowsNoPool.Text())
	}
	o := capture.Order{Do: capture.Describe, Steps: RecordedSteps, How: capture.HowEvents, Library: library}
	if strings.HasPrefix(v.Info.Device, "cuda") {
		o.How, o.Library = capture.HowHistory, ""
	}
	w, err := m.describe(ctx, o)
	if refused := (*orderError)(nil); errors.As(err, &refused) {
		return nil, errors.New(say.NotObserved.Text(refused.Text))
	}
	if err != nil {
		return nil, err
	}
	return w.Trace, nil
}

// reachable runs f while the process is connected, once no other viewer's plan is on.
func (m *Member) reachable(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go m.severed(ctx, end)
	err := m.free(ctx)
	if err == nil {
		err = f(ctx)
	}
	// known processes were connected once, so this one has ended
	if errors.Is(err, pytorch.ErrNotConnected) || errors.Is(err, job.ErrNotConnected) {
		return errEnded
	}
	return ended(ctx, err)
}

// severed ends work with a training that continues after its connection is lost: no answer of ours arrives
// any more, and no step reports its end.
func (m *Member) severed(ctx context.Context, end context.CancelCauseFunc) {
	_ = m.History.Until(ctx, func(v *capture.View) (bool, error) {
		if v.Severed != "" {
			end(errors.New(v.Severed))
		}
		return v.Severed != "", nil
	})
}

// ended returns nil if the caller asked for the end, and the reason if the connection was lost.
func ended(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil && !errors.Is(why, context.Canceled) {
		return why
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

var errTaken = errors.New(say.TrainsAlready.Text())

// under returns the number of the plan that the last step ran under, 0 for none.
func (m *Member) under() int64 {
	v := m.History.Snapshot()
	if n := len(v.Steps); n > 0 && !v.Ended {
		return v.Steps[n-1].Carried.Plan
	}
	return 0
}

// freeWithin is how many steps may end before one must have run without a plan.
const freeWithin = 3

// free waits until steps run without a plan.
func (m *Member) free(ctx context.Context) error {
	before := m.History.Snapshot()
	return m.until(ctx, func(v *capture.View) (bool, error) {
		n := len(v.Steps)
		switch {
		case n == 0:
			return false, nil
		case v.Steps[n-1].Carried.Plan == 0:
			return true, nil
		case len(before.Steps) > 0 &&
			v.Steps[n-1].Index >= before.Steps[len(before.Steps)-1].Index+freeWithin:
			return false, errTaken
		}
		return false, nil
	})
}
