package live

import (
	"context"
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
)

// A plan that the training's own allocator can serve.
//
// Problem: a planner counts live bytes and chooses their addresses. A live training gets its memory from
// PyTorch's caching allocator, which cuts segments into blocks and leaves holes. A plan within its budget can
// still run out of memory there, and end a training that would have gone on without it.
//
// Approach: emulate the allocator on the plan's steps. If it needs more than there is, ask the manager for a
// plan with a smaller budget: smaller by what is missing, and by at least a fixed share, since fewer live
// bytes need not mean fewer holes.
//
// Complexity: at most roomTries plans, and a dozen emulations each, of O(steps log blocks).
//
// Rejected: a fixed share of the memory for the holes. ResNet-101 in 64 MiB needs a quarter of it; at 80 GiB
// that would be 20 GiB that nobody uses.

const (
	// roomTries bounds the number of budgets tried. If each shrinks by leastShrink, the last is 63 % of the
	// first.
	roomTries = 10
	// leastShrink is the least share by which each budget is smaller than the one before.
	leastShrink = 1.0 / 20
)

// InRoom returns the plan that a manager makes for a budget or, if PyTorch's caching allocator cannot serve
// that one in room bytes, the first plan for a smaller budget that it can serve. ask asks the manager. If
// room is 0 (unknown), on a CPU, and if another allocator serves memory, nothing is emulated: the result is
// the plan for the whole budget, and a note names the other allocator. All sizes are in bytes.
func InRoom(
	ctx context.Context, p *plan.Problem, room, budget int64, ask func(budget int64) (*plan.Plan, error),
) (*plan.Plan, error) {
	settings, known := settingsOf(p)
	if known && room > 0 && settings.Native() {
		return inRoom(ctx, p, settings, room, budget, ask)
	}
	pl, err := ask(budget)
	if err == nil && known && !settings.Native() {
		pl.Note("memory is served by %s and not by PyTorch's own allocator, so whether the plan leaves "+
			"holes in it is not known", other(settings.Backend))
	}
	return pl, err
}

// other names an allocator that is not PyTorch's own.
func other(backend string) string {
	if backend == "pluggable" {
		return "a pluggable allocator (RMM is one)"
	}
	return fmt.Sprintf("the allocator %.40s", backend)
}

func inRoom(
	ctx context.Context, p *plan.Problem, settings allocator.Settings, room, budget int64,
	ask func(budget int64) (*plan.Plan, error),
) (*plan.Plan, error) {
	asked, last := budget, int64(0)
	var tried *plan.Plan
	for range roomTries {
		pl, err := ask(budget)
		switch {
		case err != nil && last > 0:
			holes := tooManyHoles(ctx, p, tried, settings, last, room)
			return nil, fmt.Errorf("%w; %s: %w", holes, say.NoPlanForLess.Text(), err)
		case err != nil:
			return pl, err
		}
		tried = pl
		if last, err = sim.CachingNeeds(ctx, p, pl, settings); err != nil {
			return nil, err
		}
		if last <= room {
			if budget < asked {
				pl.Note("planned for %s, since PyTorch's allocator cannot serve a plan for more in %s",
					timeline.IEC.Bytes(budget), timeline.IEC.Bytes(room))
			}
			return pl, nil
		}
		budget -= max(last-room, int64(float64(budget)*leastShrink))
	}
	return nil, tooManyHoles(ctx, p, tried, settings, last, room)
}

// tooManyHoles says that the allocator needs more bytes for a plan than it has room for, and what to change:
// expandable segments only if they make the plan fit.
func tooManyHoles(ctx context.Context, p *plan.Problem, pl *plan.Plan, settings allocator.Settings,
	need, room int64) error {
	change := say.OtherForRoom.Text()
	if with, ok := segmentsNeed(ctx, p, pl, settings); ok && with <= room {
		change = say.SegmentsFit.Text(timeline.IEC.Bytes(with))
	}
	return errors.New(say.TooManyHoles.Text(timeline.IEC.Bytes(need), timeline.IEC.Bytes(room), change))
}

// segmentsNeed returns the memory, in bytes, in which PyTorch's caching allocator serves a plan if its
// segments are expandable; ok is false if they are already, or if that cannot be simulated.
func segmentsNeed(
	ctx context.Context, p *plan.Problem, pl *plan.Plan, settings allocator.Settings,
) (need int64, ok bool) {
	if settings.ExpandableSegments {
		return 0, false
	}
	settings.ExpandableSegments = true
	need, err := sim.CachingNeeds(ctx, p, pl, settings)
	return need, err == nil
}

// settingsOf returns the settings of the allocator that serves a problem's training; known is false on a CPU
// and if they cannot be read.
func settingsOf(p *plan.Problem) (s allocator.Settings, known bool) {
	if p.Source == nil || onCPU(p) {
		return s, false
	}
	s, _, err := allocator.SnapshotSettings(allocator.Version{}, p.Source.Timeline().Trace.Setting)
	return s, err == nil
}
