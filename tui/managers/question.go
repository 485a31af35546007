package managers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Planner plans for the view, off the event loop. Its methods may be called from several goroutines, and stop
// when their context is cancelled.
type Planner interface {
	// Managers are all managers in the order of the table, baselines first.
	Managers() []Manager
	// Hardware are the descriptions of hardware to choose from; the first is in force at first.
	Hardware() []plan.Hardware
	// Problem returns one iteration of a device to plan. If a recording does not suffice, the error wraps a
	// [*plan.Unavailable].
	Problem(ctx context.Context, d *timeline.Device, h plan.Hardware) (*plan.Problem, error)
	// Compare is [replay.Compare] with the named managers, measured with usage and spans.
	Compare(
		ctx context.Context, p *plan.Problem, names []string, budget int64, update func(replay.Progress),
	) (*replay.Comparison, error)
}

// Together is a [Planner] that plans for several ranks of a training at once, whichever of them is in view:
// its problems are those of the fullest rank, and it measures the memory of the rank that holds most and the
// step time of the slowest.
type Together interface {
	// Ranks returns how many ranks a problem stands for, at least 1, and what people call the fullest.
	Ranks(p *plan.Problem) (n int, fullest string)
}

// Manager is one row's manager.
type Manager struct {
	Info plan.Info
	// On says that it is compared by default.
	On bool
}

// setup is what to plan for: one iteration on one hardware, with the figures that the view needs and that
// take longer than a frame to compute.
type setup struct {
	device   *timeline.Device
	hardware string
	p        *plan.Problem
	held     int64 // the peak of a step today, and so what 100 % means
	floor    int64 // what no budget can be below
	live     int64 // alive at the peak when everything is kept
	ranks    int   // how many ranks it stands for
	fullest  string
}

type setupKey struct {
	device   *timeline.Device
	hardware int
}

// subject is what to plan for: it computes the setup of a device and some hardware.
type subject struct {
	with     Planner
	hardware int // index of the description in force
	setups   leaf.Query[setupKey, *setup]
}

// ask requests a device's setup, unless it is known.
func (x *subject) ask(d *timeline.Device) tea.Cmd {
	k, with := setupKey{d, x.hardware}, x.with
	return x.setups.Ask(k, func(ctx context.Context) (*setup, error) { return makeSetup(ctx, with, k) })
}

// setup returns the setup of a device on the current hardware, nil until it is known.
func (x *subject) setup(d *timeline.Device) *setup {
	if k, st, ok := x.setups.Value(); ok && st != nil && k == (setupKey{d, x.hardware}) {
		return st
	}
	return nil
}

// pick lets the user choose the hardware.
func (x *subject) pick() tea.Cmd {
	var choices []leaf.Choice
	for i, h := range x.with.Hardware() {
		title := "  " + h.Name
		if i == x.hardware {
			title = "• " + h.Name
		}
		out, in := h.D2H.BytesPerSecond/1e9, h.H2D.BytesPerSecond/1e9
		detail := fmt.Sprintf("%.3g GB/s to the host, %.3g from it", out, in)
		choices = append(choices, leaf.Choice{Title: title, Detail: detail, Msg: hardwareMsg{i}})
	}
	return leaf.Send(leaf.PickMsg{Title: "Plan for which hardware?", Choices: choices,
		Footer: "what copies and allocations cost; durations of ops stay as recorded"})
}

func makeSetup(ctx context.Context, pl Planner, k setupKey) (*setup, error) {
	hw := pl.Hardware()[k.hardware]
	p, err := pl.Problem(ctx, k.device, hw)
	if err != nil {
		return nil, err
	}
	s := &setup{
		device: k.device, hardware: p.Hardware.Name, p: p,
		held: max(p.Held(), 1), floor: p.MustReside().Total() + p.Outside,
	}
	s.live, _ = p.PeakLive()
	s.ranks = 1
	if x, ok := pl.(Together); ok {
		s.ranks, s.fullest = x.Ranks(p)
	}
	return s, nil
}

// firstShare is the initial budget, in % of a step's peak.
const firstShare = 70

// firstBudget is a budget at which managers differ: well below today's memory, but far enough above the
// unavoidable part that some should fit, even if most of the memory is weights. There is none if nothing can
// leave the device, or if running is true and the job needs no plan.
func (s *setup) firstBudget(running bool) int64 {
	if !s.canMove() || running && s.hasRoom() {
		return 0
	}
	return max(s.share(firstShare), s.floor+(s.held-s.floor)/2)
}

// onCPU reports whether the recording is of a training on a CPU.
func (s *setup) onCPU() bool { return s.device != nil && s.device.Info.Kind == traces.DeviceCPU }

// tight is the share of a GPU, in %, from which a job is close to running out of memory.
const tight = 90

// hasRoom reports whether a running job needs no plan: it runs on a CPU, or on a GPU of which it leaves a
// part free. It is false if the size of the GPU is unknown.
func (s *setup) hasRoom() bool {
	return s.onCPU() || s.device != nil && s.taken() <= s.device.Info.TotalBytes/100*tight
}

// taken is what a step takes of its GPU: what the allocator reserves, or what a step holds if that is not
// recorded.
func (s *setup) taken() int64 { return max(s.held, s.device.Totals.PeakReserved.Or(0)+s.p.Outside) }

// canMove reports whether the recording serves managers that move or drop buffers.
func (s *setup) canMove() bool {
	return s.p.Serve(plan.Info{Needs: accesses}) == nil
}

func (s *setup) share(percent int64) int64 { return int64(float64(s.held) / 100 * float64(percent)) }

// net returns what a question's budget leaves for the plan, 0 without a budget.
func (q question) net() int64 { return max(q.budget-q.setup.p.Outside, 0) }

// question is what answers are kept by.
type question struct {
	setup  *setup
	budget int64
}

// deviceOf returns what to plan for: the device in view or, if that step ran under a plan, the same device in
// a step that did not. A step that a plan has changed is no basis for another.
func deviceOf(s *leaf.State) *timeline.Device {
	if !s.UnderPlan || s.Device == nil {
		return s.Device
	}
	if s.Basis == nil {
		return nil
	}
	for _, d := range s.Basis.Devices {
		if d.Info.Kind == s.Device.Info.Kind && d.Info.Ordinal == s.Device.Info.Ordinal {
			return d
		}
	}
	return s.Basis.Main()
}

// sameJob reports whether two devices are one, recorded twice in one process that is watched.
func sameJob(a, b *timeline.Device) bool {
	if a == nil || b == nil || a.Info.Kind != b.Info.Kind || a.Info.Ordinal != b.Info.Ordinal {
		return false
	}
	p, q := &a.Timeline().Trace.Process, &b.Timeline().Trace.Process
	return p.PID.IsKnown() && p.PID == q.PID && p.Host == q.Host && p.Rank == q.Rank
}

// draw says why there is no setup to plan for, or that it is on its way.
func (x *subject) draw(s *leaf.State, c *canvas.Canvas) {
	err := x.setups.Err()
	if x.setups.Pending() || err == nil {
		leaf.Working(s, c, "looking for a training step to plan")
		return
	}
	var u *plan.Unavailable
	if errors.As(err, &u) {
		first := min(1, len(u.Reason))
		reason := strings.ToUpper(u.Reason[:first]) + u.Reason[first:] + "."
		leaf.Empty(s, c, "There is nothing to plan", reason, "")
		return
	}
	leaf.Empty(s, c, "No training step to plan was found", err.Error(), "")
}

// alike reports whether two setups are of the same training, with steps that take the same: as many ops, and
// nearly as many bytes alive.
func (s *setup) alike(o *setup) bool {
	if s == o {
		return true
	}
	if s == nil || o == nil || s.device != o.device && !sameJob(s.device, o.device) {
		return false
	}
	d := float64(s.live - o.live)
	return len(s.p.Ops) == len(o.p.Ops) && max(d, -d) <= float64(max(s.live, o.live))*sameLive
}

// sameLive is the share by which the bytes alive at the peak may differ between steps that are the same.
const sameLive = 0.02

// accesses is the least detailed kind of recording that suffices for managers that move buffers.
const accesses = traces.Accesses

// hardwareMsg is the hardware chosen to plan for.
type hardwareMsg struct{ index int }
