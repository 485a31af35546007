package whatif

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/fidelity"
	"github.com/gmemtop/gmemtop/timeline"
)

// Settings and levers are tried in dozens of plays. If a long recording ends out of memory, each play covers
// only its end, from two periods before the failed request (see period), or the last steps if the process was
// never at that point before. These plays start from the emulated allocator's own state, captured once while
// playing the recorded settings, so all share what came before. Other settings shaped that state, as in a
// recording that begins in the middle (FromStart).
//
// O(n) once, then O(k log k) for each play of k steps. Rejected: copying the emulated allocator with all its
// internal structures. A state of segments and blocks is what it restores anyway.

const (
	longProgram = 200_000 // from this many steps on only the end is played
	leastTail   = 50_000  // the end has at least this many steps
)

// tail is the end of a program and its initial state.
type tail struct {
	whole   *fidelity.Program
	from    int // the step of the whole program at which it begins
	moment  timeline.Moment
	pending []fidelity.Step // FreeLater steps of blocks that are waiting at from
	owner   []timeline.AllocID
	// held are the allocations of the blocks at the start. program is nil until it was captured.
	held    []timeline.AllocID
	program *fidelity.Program
}

// startOf returns the allocations of the blocks at the start of a recording, in the program's order.
func startOf(d *timeline.Device, p *fidelity.Program) []timeline.AllocID {
	if p.Start == nil {
		return nil
	}
	held := d.ActiveAt(timeline.Start, nil)
	slices.SortFunc(held, func(x, y timeline.AllocID) int {
		return cmp.Compare(d.Allocs.Addr[x], d.Allocs.Addr[y])
	})
	return held[:min(len(held), p.Blocks)]
}

// tailOf returns the end of a program that is enough to play, or nil if all of it must be played.
func tailOf(d *timeline.Device, p *fidelity.Program, failed timeline.Moment, period int) *tail {
	if failed == timeline.Start || len(p.Steps) < longProgram {
		return nil
	}
	end := slices.IndexFunc(p.Steps, func(s fidelity.Step) bool {
		return s.Kind == fidelity.Fail && s.At == failed
	})
	from := end - leastTail
	if first := d.Begun(failed) - timeline.AllocID(2*period); period > 0 && first > d.Begun(timeline.Start) {
		at := slices.IndexFunc(p.Steps, func(s fidelity.Step) bool {
			return s.Kind == fidelity.Malloc && s.At >= d.Allocs.Start[first]
		})
		from = min(from, at)
	}
	if from < end/2 || from <= 0 {
		return nil
	}
	t := &tail{whole: p, from: from, owner: make([]timeline.AllocID, p.Blocks)}
	for i := range t.owner {
		t.owner[i] = timeline.NoAlloc
	}
	copy(t.owner, startOf(d, p))
	waits := map[fidelity.BlockID]fidelity.Step{}
	for _, s := range p.Steps[:from] {
		switch s.Kind {
		case fidelity.Malloc:
			t.owner[s.Block], t.moment = d.AllocOf(s.At), s.At
		case fidelity.FreeLater:
			waits[s.Block] = s
		case fidelity.Complete:
			delete(waits, s.Block)
		case fidelity.Fail:
			t.moment = s.At
		}
	}
	for _, s := range waits {
		t.pending = append(t.pending, s)
	}
	slices.SortFunc(t.pending, func(x, y fidelity.Step) int { return cmp.Compare(x.Block, y.Block) })
	return t
}

// take makes the program from the allocator's state before step from. blocks are those of the whole program;
// other blocks may by now lie where freed ones did.
func (t *tail) take(a *allocator.Caching, blocks []allocator.Block) {
	ended := make([]bool, len(blocks))
	for _, s := range t.whole.Steps[:t.from] {
		switch s.Kind {
		case fidelity.Malloc:
			ended[s.Block] = false
		case fidelity.Free, fidelity.FreeLater:
			ended[s.Block] = true
		}
	}
	for _, s := range t.pending {
		ended[s.Block] = false
	}
	at := map[uint64]fidelity.BlockID{}
	for i, b := range blocks {
		if !ended[i] && b != (allocator.Block{}) {
			at[b.Addr] = fidelity.BlockID(i)
		}
	}
	program := &fidelity.Program{Start: a.Segments(), Pools: t.whole.Pools}
	number := make([]fidelity.BlockID, len(blocks))
	for i := range number {
		number[i] = -1
	}
	next := fidelity.BlockID(0)
	for i := range program.Start {
		for k := range program.Start[i].Blocks {
			b := &program.Start[i].Blocks[k]
			if b.State == allocator.Inactive {
				continue
			}
			id, ok := at[b.Addr]
			switch {
			case ok: // a waiting block is freed by a step of its own
				b.State, number[id] = allocator.Allocated, next
				t.held = append(t.held, t.owner[id])
				next++
			case b.State == allocator.PendingFree: // its wait is over
				b.State = allocator.Inactive
			default:
				return
			}
		}
	}
	lower(program.Start)
	program.Steps = append(slices.Clone(t.pending), t.whole.Steps[t.from:]...)
	for i := range program.Steps {
		s := &program.Steps[i]
		switch s.Kind {
		case fidelity.Malloc, fidelity.Free, fidelity.FreeLater, fidelity.Complete:
			if number[s.Block] < 0 {
				number[s.Block] = next
				next++
			}
			s.Block = number[s.Block]
		}
	}
	program.Blocks = int(next)
	t.program = program
}

// lower moves segments that the simulated driver placed, in their order, to addresses above the restored ones
// where it can place them again.
func lower(segments []allocator.Segment) {
	const own = uint64(1 << 48)   // the driver's first own address
	const apart = uint64(1 << 44) // for ranges that grow
	to := apart
	for _, s := range segments {
		if s.Addr < own {
			to = max(to, (s.Addr+uint64(s.Size)+apart)&^(apart-1)+apart)
		}
	}
	for i := range segments {
		s := &segments[i]
		if s.Addr < own {
			continue
		}
		s.Addr += to - own
		if s.Base >= own {
			s.Base += to - own
		}
		for k := range s.Blocks {
			s.Blocks[k].Addr += to - own
		}
	}
}
