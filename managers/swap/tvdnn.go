package swap

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// tvDNN (Park, Cho, Jung, Lee, "Transparent Virtualization of DNN memory", poster at PPoPP 2018, doi
// 10.1145/3178487.3178531).
//
// Problem: swap so that an iteration fits a few gigabytes with little delay, when single objects are so large
// that moving a whole one takes longer than an op, and finding a hole for it wastes memory.
//
// The source says that memory objects are cut into sections, and that the schedule of swaps comes from an
// integer linear program (optimal) or from a heuristic. The program's variables, the size of a section and
// the heuristic itself are not public. What follows is our formulation.
//
// Sections. Every buffer above a section's size is cut ([plan.Problem.Sectioned]); each section leaves and
// returns independently. A section has 2 MiB, the granularity of CUDA's virtual memory, or 2, 4, 8... times
// that, until a copy's fixed cost is at most a tenth of its time and the number of buffers is below a bound.
//
// Heuristic. Walk the ops; where live bytes exceed the capacity, evict the idle section whose next use is
// farthest (Belady's rule, which moves the fewest sections of equal size), until the op fits. Then schedule
// the copies by the clock, sticking to the capacity (schedule.go): out after the last use, back as late as
// the link allows and memory requires.
//
// Integer program: tvdnn_ilp.go. tvdnn-ilp starts from the heuristic's solution and returns the better of the
// two, so it always has an answer.
//
// Complexity: O((accesses + sections) log sections) for the heuristic. Rejected: least recently used, which
// is the worst of rules for a training's access pattern, forward and back again; sections of one page, which
// multiply the fixed cost of copies.

// tvdnn is one of the two managers. The unexported switches are for tests of what each mechanism is worth.
type tvdnn struct {
	ilp      bool
	section  int64 // bytes; 0 for the rule above
	whole    bool  // do not cut buffers
	recent   bool  // evict what was used least recently instead of what is needed last
	onDemand bool  // do not prefetch
}

const (
	// sectionBytes is the smallest section, mostBytes the largest, mostSections the number of buffers beyond
	// which sections are made larger.
	sectionBytes = torchalloc.Granularity
	mostBytes    = 1 << 40
	mostSections = 20_000
)

// Info implements [plan.Manager].
func (v tvdnn) Info() plan.Info {
	i := plan.Info{Name: "tvdnn-heuristic", After: "Park 2018", Family: plan.Swapping, Needs: traces.Accesses,
		Reading: "the poster's formulation and heuristic are not public; sections of 2 MiB or more, " +
			"Belady's rule and the program's variables are ours",
		Summary: "Cuts buffers into sections and sends out the idle sections whose next use is farthest."}
	if v.ilp {
		i.Name, i.Summary = "tvdnn-ilp", "Cuts buffers into sections and decides by integer linear program "+
			"which of them are in memory when."
	}
	return i
}

// Plan implements [plan.Manager].
func (v tvdnn) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	began, info := time.Now(), v.Info()
	if err := serves(p, info, r); err != nil {
		return nil, err
	}
	q, size, err := v.sectioned(p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", info.Name, err)
	}
	s := &sections{tvdnn: v, link: newLink(q), size: size}
	pl, err := place.Within(ctx, q, r, place.Options{Work: placeWork},
		func(limit int64) (plan.Decisions, error) {
			c, _, err := s.heuristic(ctx, limit)
			return decisions(c), err
		})
	if err == nil && v.ilp {
		pl, err = s.improve(ctx, pl, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", info.Name, err)
	}
	pl.SectionBytes = size
	switch {
	case size > 0:
		pl.Note("buffers above %.0f MiB are cut into sections of that size", float64(size)/(1<<20))
	case v.whole || v.section > 0:
	default:
		pl.Note("no buffer is large enough to be cut")
	}
	if r.Budget <= 0 {
		pl.Note("without a budget nothing is swapped")
	}
	pl.Work += s.done
	return made(pl, info, r, began), nil
}

// sectioned cuts the problem's buffers; size is 0 if none is large enough.
func (v tvdnn) sectioned(p *plan.Problem) (q *plan.Problem, size int64, err error) {
	size = v.section
	if size == 0 {
		size = sectionBytes
		fixed := func(l plan.Link) bool { return l.BytesPerSecond > 0 && 10*l.Latency > l.Time(size) }
		for size < mostBytes && (fixed(p.Hardware.D2H) || fixed(p.Hardware.H2D) ||
			sectionsOf(p, size) > mostOf(len(p.Buffers))) {
			size *= 2
		}
	}
	size = (size + p.Align - 1) &^ (p.Align - 1)
	if v.whole || sectionsOf(p, size) == int64(len(p.Buffers)) {
		return p, 0, nil
	}
	q, err = p.Sectioned(size)
	return q, size, err
}

// mostOf is the maximum number of sections for n buffers: twice the number of buffers, but more for small
// problems, and fewer for the largest, so that planning ends.
func mostOf(n int) int64 { return max(mostSections, min(2*int64(n), int64(n)+30_000)) }

// sectionsOf returns how many buffers a problem has when those that can leave are cut into sections of size
// bytes.
func sectionsOf(p *plan.Problem, size int64) int64 {
	var n int64
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Life == plan.Persistent || b.Life == plan.Inside &&
			p.Ops[b.Start].Workspace == plan.BufferID(i) {
			n++
			continue
		}
		n += max((b.Size+size-1)/size, 1)
	}
	return n
}

// sections plans for one problem that was cut.
type sections struct {
	tvdnn
	*link
	size int64
	done int64 // counted work
}

// resident is what the heuristic's walk knows about a buffer.
type resident struct {
	next   int32 // its next touch
	absent bool
}

// heuristic returns the intervals that leave by Belady's rule, with the nanoseconds charged for them. limit 0
// is none.
func (s *sections) heuristic(ctx context.Context, limit int64) (c []idle, charged int64, err error) {
	if limit <= 0 {
		return nil, 0, ctx.Err()
	}
	p := s.p
	state := make([]resident, len(p.Buffers))
	heads := newHeap(0)
	var away int64 // bytes absent
	for i := range p.Ops {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		for _, a := range p.AccessesOf(plan.OpID(i)) {
			if st := &state[a.Buffer]; st.absent {
				st.absent = false
				away -= p.Rounded(a.Buffer)
			}
		}
		for s.load[i]-away > limit && heads.len() > 0 {
			id, key := heads.pop()
			b := plan.BufferID(id)
			st := &state[b]
			touches := p.TouchesOf(b)
			if int(st.next) >= len(touches) || st.absent || s.key(touches, int(st.next)) != key ||
				int(touches[st.next].Op) <= i {
				continue // it was touched since
			}
			st.absent = true
			away += p.Rounded(b)
			c = append(c, newIdle(p, plan.Gap{Buffer: b, After: touches[st.next-1].Op,
				Before: touches[st.next].Op}))
			c[len(c)-1].release, c[len(c)-1].fetch = i, int(touches[st.next].Op)
		}
		for _, a := range p.AccessesOf(plan.OpID(i)) {
			st, touches := &state[a.Buffer], p.TouchesOf(a.Buffer)
			before := st.next
			for int(st.next) < len(touches) && int(touches[st.next].Op) <= i {
				st.next++
			}
			if b := &p.Buffers[a.Buffer]; st.next > before && b.Life == plan.Inside &&
				p.Rounded(a.Buffer) > 0 && int(st.next) < len(touches) && int(touches[st.next].Op) > i+1 {
				heads.push(int32(a.Buffer), s.key(touches, int(st.next)))
			}
		}
	}
	s.done += int64(len(c))
	if s.onDemand {
		return c, 0, nil
	}
	c, charged = s.stick(c, limit)
	slices.Reverse(c)
	return c, charged, nil
}

// key orders candidates of the heuristic: the greatest leaves first.
func (s *sections) key(touches []plan.Touch, next int) float64 {
	if s.recent {
		return -float64(touches[next-1].Op)
	}
	return float64(touches[next].Op)
}

// decisions makes absences of intervals.
func decisions(c []idle) plan.Decisions {
	var d plan.Decisions
	slices.SortStableFunc(c, func(a, b idle) int {
		return cmp.Or(cmp.Compare(a.fetch, b.fetch), cmp.Compare(a.before, b.before))
	})
	for i := range c {
		d.Absences = append(d.Absences, c[i].absence("next use is farthest"))
	}
	return d
}
