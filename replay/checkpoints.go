package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Checkpoint is a part of an iteration that the program checkpoints by itself: its forward pass keeps only
// what goes in, and runs again in the backward pass.
type Checkpoint struct {
	Module string // the innermost module that holds all of it, "" for none
	// Forward and Last are the first and the last op of it in the forward pass, and [First, End) are the
	// positions in the backward pass at which it runs again.
	Forward, Last, First, End OpID
	// Time is what running again takes, in nanoseconds, and Bytes what it makes for the backward pass, which
	// would be kept from Last on without the checkpoint.
	Time, Bytes int64
}

// Checkpoints returns the parts that the program checkpoints, in the order in which they run again. Parts
// whose forward pass is not in the iteration are left out.
//
// A part is a run of ops that run again without an op of the backward pass between them. Its forward pass is
// found by its first op: the last op of that name and module before it that no other part begins with, since
// backward passes run in the opposite order.
func (p *Problem) Checkpoints() []Checkpoint {
	var all []Checkpoint
	begun := map[OpID]bool{}
	for i := 0; i < len(p.Ops); {
		if !p.Ops[i].Again {
			i++
			continue
		}
		x := Checkpoint{First: OpID(i), End: OpID(i) + 1, Forward: -1, Module: p.Ops[i].Module}
		last := x.First // that a module of its own runs: what runs between modules has no name here
		for ; i < len(p.Ops) && (p.Ops[i].Again || p.Ops[i].between()); i++ {
			if !p.Ops[i].Again {
				continue
			}
			if x.End = OpID(i) + 1; p.Ops[i].Module != "" {
				last, x.Module = OpID(i), commonModule(x.Module, p.Ops[i].Module)
			}
		}
		for k := x.First - 1; k >= 0 && x.Forward < 0; k-- {
			if p.Ops[k].sameAs(&p.Ops[x.First]) && !begun[k] {
				x.Forward, begun[k] = k, true
			}
		}
		if x.Forward < 0 {
			continue
		}
		x.Last = x.Forward
		for k := x.Forward; k < x.First; k++ {
			if p.Ops[k].sameAs(&p.Ops[last]) {
				x.Last = k
				break
			}
		}
		for k := x.First; k < x.End; k++ {
			x.Time += p.Ops[k].Duration + p.Ops[k].Gap
		}
		for b := range p.Buffers {
			if s := &p.Buffers[b]; s.Life == Inside && x.First <= s.Start && s.Start < x.End &&
				p.usedFrom(BufferID(b), x.End) {
				x.Bytes += p.Rounded(BufferID(b))
			}
		}
		all = append(all, x)
	}
	return all
}

// between reports whether an op stands for no work of the device.
func (o *Op) between() bool {
	return o.Recorded == 0 && (o.Name == HostOp || o.Name == "free") || o.Name == SaveOp || o.Name == LoadOp
}

// sameAs reports whether o is the op of a forward pass that again runs again.
func (o *Op) sameAs(again *Op) bool {
	return o.Phase == traces.PhaseForward && o.Name == again.Name && o.Module == again.Module
}

// usedFrom reports whether an op at this position or behind it touches a buffer.
func (p *Problem) usedFrom(b BufferID, at OpID) bool {
	t := p.TouchesOf(b)
	return len(t) > 0 && t[len(t)-1].Op >= at
}

// commonModule returns the innermost module that holds two modules.
func commonModule(a, b string) string {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	return strings.Join(x[:n], ".")
}

// Without says what an iteration holds at its peak, in bytes, without some of its checkpoints.
func (p *Problem) Without(some []Checkpoint) int64 {
	load := p.Load()
	delta := make([]int64, len(load)+1)
	for _, x := range some {
		delta[x.Last+1] += x.Bytes
		delta[x.First] -= x.Bytes
	}
	var peak, more int64
	for i, held := range load {
		more += delta[i]
		peak = max(peak, held+more)
	}
	return peak + p.Outside
}

// Needless returns the checkpoints that an iteration can do without in so many bytes: the last ones of the
// forward pass first, since what they make is kept for the shortest time.
func (p *Problem) Needless(all []Checkpoint, budget int64) []Checkpoint {
	var some []Checkpoint
	for _, x := range slices.SortedStableFunc(slices.Values(all), func(a, b Checkpoint) int {
		return int(b.Forward) - int(a.Forward)
	}) {
		if p.Without(append(some, x)) <= budget {
			some = append(some, x)
		}
	}
	return some
}

// CheckpointNotes says what the program's own checkpoints cost and save, and how many of them a budget does
// not need; none where it has none. A budget of 0 is what the iteration holds.
func (p *Problem) CheckpointNotes(budget int64, u timeline.Units) []string {
	all := p.Checkpoints()
	if len(all) == 0 {
		return nil
	}
	starts := p.Starts()
	step := starts[len(starts)-1]
	share := func(some []Checkpoint) (time int64, percent float64) {
		for _, x := range some {
			time += x.Time
		}
		return time, 100 * float64(time) / float64(max(step, 1))
	}
	time, percent := share(all)
	held, without := p.Held(), p.Without(all)
	notes := []string{fmt.Sprintf("the program checkpoints %s by itself: the ops that run again take %s, "+
		"%.1f %% of a step, and a step holds %s at its peak, where it would hold up to %s without them",
		parts(len(all)), timeline.Duration(time), percent, u.Bytes(held), u.Bytes(without))}
	if without == held {
		return append(notes, "the checkpoints lower no peak: turn them off")
	}
	budget = max(budget, held)
	some := p.Needless(all, budget)
	if len(some) == 0 {
		return notes
	}
	time, percent = share(some)
	where := ""
	if names := modules(some); names != "" {
		where = " (" + names + ")"
	}
	return append(notes, fmt.Sprintf("turn the checkpoints off for %d of the %d parts%s: a step then "+
		"holds up to %s and is %s (%.1f %%) shorter", len(some), len(all), where, u.Bytes(p.Without(some)),
		timeline.Duration(time), percent))
}

func parts(n int) string {
	if n == 1 {
		return "1 part"
	}
	return fmt.Sprintf("%d parts", n)
}

// mostNamed is how many modules are named in a sentence.
const mostNamed = 3

// modules names the modules of checkpoints, the first ones if there are many.
func modules(some []Checkpoint) string {
	var names []string
	for _, x := range some {
		if x.Module != "" && !slices.Contains(names, x.Module) {
			names = append(names, x.Module)
		}
	}
	if len(names) > mostNamed {
		names = append(names[:mostNamed], "...")
	}
	return strings.Join(names, ", ")
}
