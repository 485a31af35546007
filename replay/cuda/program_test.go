package cuda

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// TestCopiesOnTheHostNeverShareBytesWithoutAnOrder follows every byte's owners: a copy out to a place that a
// copy in reads comes after that copy in.
func TestCopiesOnTheHostNeverShareBytesWithoutAnOrder(t *testing.T) {
	reused, waits := 0, 0
	for seed := range uint64(80) {
		p := plantest.Random(seed, 12+int(seed%50))
		pl, err := plan.Assemble(p, plantest.RandomDecisions(p, seed, 0.9))
		if err != nil {
			t.Fatal(err)
		}
		offsets := make([]int64, len(pl.Instances))
		for i := range offsets {
			offsets[i] = int64(i) * 1 << 20
		}
		pl.Place(offsets)
		pl.Order(p)
		peak, _ := pl.PinnedPeak(p)
		if seed%2 == 0 {
			p.Hardware.PinnedBytes = peak
		}
		g, err := compile(p, pl)
		if err != nil {
			t.Fatal(err)
		}
		known := g.readers()
		if g.pinned < peak {
			t.Errorf("seed %d: %d bytes pinned, %d are on the host at once", seed, g.pinned, peak)
		}
		type copied struct {
			at, end int64
			last    int32
		}
		out := map[plan.BufferID]int{}
		var places []copied
		behind := int32(-1) // the last copy in that copies out are known to be behind
		for s := range pl.Steps {
			st := &pl.Steps[s]
			switch st.Kind {
			case plan.Out:
				size := pl.Instances[st.Instance].Size
				behind = max(behind, g.behind[s], known[s])
				if g.behind[s] >= 0 {
					waits++
				}
				for _, c := range places {
					if c.at < g.slots[s]+size && g.slots[s] < c.end {
						reused++
						if c.last > behind {
							t.Fatalf("seed %d: step %d writes to memory that step %d reads", seed, s, c.last)
						}
					}
				}
				out[pl.Instances[st.Instance].Buffer] = len(places)
				places = append(places, copied{g.slots[s], g.slots[s] + size, -1})
			case plan.In:
				k := out[pl.Instances[st.Instance].Buffer]
				if places[k].at != g.slots[s] {
					t.Fatalf("seed %d: step %d reads at %d what was written at %d", seed, s, g.slots[s],
						places[k].at)
				}
				places[k].last = int32(s)
			}
		}
	}
	if reused == 0 || waits == 0 {
		t.Errorf("%d places on the host were used again, %d with a wait", reused, waits)
	}
}

// TestNeighbouringValuesHaveDifferentPatterns checks what the verification relies on: no two values that
// could be mistaken for each other share a seed.
func TestNeighbouringValuesHaveDifferentPatterns(t *testing.T) {
	p := plantest.Random(3, 60)
	v := numbered(p)
	type value struct {
		b       plan.BufferID
		version int32
		k       int
	}
	seen := map[uint64]value{}
	for b := range p.Buffers {
		for version := range v.last[b] + 1 {
			for k := range 4 {
				id := value{plan.BufferID(b), version, k}
				if p.Buffers[b].Life != plan.Inside {
					id.version, id.k = version+int32(k)*v.last[b], 0
				}
				seed := v.seed(p, plan.BufferID(b), version, k)
				if other, taken := seen[seed]; taken && other != id {
					t.Fatalf("%+v and %+v have the same pattern", id, other)
				}
				seen[seed] = id
			}
		}
	}
	for b := range p.Buffers { // a persistent buffer keeps its value from one iteration to the next
		if p.Buffers[b].Life != plan.Inside && v.seed(p, plan.BufferID(b), v.last[b], 0) != v.seed(p,
			plan.BufferID(b), 0, 1) {
			t.Errorf("buffer %d changes between iterations", b)
		}
	}
}

func TestPlansOutsideTheTablesAreRefused(t *testing.T) {
	p := plantest.Chain(3, 1<<10, 1000)
	for name, spoil := range map[string]func(*plan.Plan){
		"a missing op": func(pl *plan.Plan) {
			pl.Steps[1] = plan.Step{Kind: plan.Run,
				Op: 99}
		},
		"a missing queue": func(pl *plan.Plan) {
			pl.Steps[1] = plan.Step{Kind: plan.Run,
				Queue: 9}
		},
		"a missing instance": func(pl *plan.Plan) { pl.Steps[0].Instance = 1000 },
		"a wait for a later step": func(pl *plan.Plan) {
			pl.Steps[1] = plan.Step{Kind: plan.Wait,
				On: 5}
		},
		"an unknown kind":           func(pl *plan.Plan) { pl.Steps[1].Kind = 99 },
		"a place outside the arena": func(pl *plan.Plan) { pl.Instances[2].Offset = 1 << 40 },
		"a copy in without a copy out": func(pl *plan.Plan) {
			pl.Steps[1] = plan.Step{Kind: plan.In,
				Queue: p.InQueue()}
		},
		"an op without its buffer": func(pl *plan.Plan) { pl.Steps[0] = pl.Steps[1] },
	} {
		pl, err := KeepAll(p)
		if err != nil {
			t.Fatal(err)
		}
		spoil(pl)
		if _, err := compile(p, pl); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
