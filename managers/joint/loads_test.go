package joint

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// cutView returns a network's problem with whole buffers and with large ones cut into sections.
func cutView(t *testing.T, name string) (whole, cut *view) {
	t.Helper()
	f, err := newFinder(t.Context(), network(t, name), plan.Request{}, mechanisms{}, defaults())
	if err != nil {
		t.Fatal(err)
	}
	whole, cut = f.views[0], f.views[len(f.views)-1]
	if whole.section != 0 || cut.section == 0 {
		t.Fatalf("views of sections of %d and %d bytes", whole.section, cut.section)
	}
	return whole, cut
}

// TestWhatRerunsLoadIsAbsentUntilThen: sections of buffers come back from the host for reruns in all ways.
func TestWhatRerunsLoadIsAbsentUntilThen(t *testing.T) {
	t.Parallel()
	_, v := cutView(t, "VGG-16")
	s, m := v.schedule, v.m
	loads := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 9))
		limit := m.floor + (m.peak-m.floor)*int64(1+seed%4)/4
		v.applyMargin(limit, 0)
		s.setting.timing = newTiming(m)
		for b := range v.task.p.Buffers {
			kind := r.IntN(4)
			for g := m.first[v.sections[b]]; g < m.first[v.sections[b+1]]; g++ {
				x, k := &m.gaps[g], kind
				if k == 3 { // some of its sections in one way, some in another
					k = 1 + r.IntN(2)
				}
				s.setting.choice[g], s.setting.timing.source[g] = keep, source(r.IntN(int(sources)))
				if k == 1 && x.canSwap {
					s.setting.choice[g] = swap
				} else if k == 2 && x.canRecompute {
					s.setting.choice[g] = recompute
				}
			}
		}
		s.run()
		pl, err := v.assemble(true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := place.Place(t.Context(), v.p, pl, place.Options{Rule: place.BestFit}); err != nil {
			t.Fatal(err)
		}
		if err := plan.Validate(v.task.p, pl); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, x := range pl.Reruns {
			loads += len(x.Loads)
		}
	}
	if t.Logf("%d loads", loads); loads < 20 {
		t.Errorf("%d loads: the law was hardly tried", loads)
	}
}

// TestRerunsNeverOverwriteWhatTheyLoad: an op makes two values, and another changes both in place. If one of
// them could be loaded and the other is dropped, both ops run again, and that makes the first as well.
func TestRerunsNeverOverwriteWhatTheyLoad(t *testing.T) {
	b := plantest.New()
	var v []plan.BufferID
	for _, name := range []string{"in", "left", "right", "sum", "other"} {
		v = append(v, b.Buffer(name, 1<<20, timeline.Activation))
	}
	op := func(reads, writes []plan.BufferID) { b.Op("op", traces.PhaseForward, 1_000_000, reads, writes) }
	op(nil, v[:1])
	op(v[:1], v[1:3])
	op(nil, nil)
	b.Mutate(v[1])
	b.Mutate(v[2])
	op(v[1:3], v[3:4])
	op(v[3:4], v[4:5])
	op(v[4:5], nil)
	op(v[3:4], nil)
	op(v[:3], nil)
	p := b.End()
	for _, from := range []source{cheapest, loaded, rerunOnly} {
		m := compile(p, defaults())
		s := newSchedule(m)
		s.setting.timing = newTiming(m)
		for i := range s.memory.limit {
			s.memory.limit[i] = 1 << 30
		}
		for g := range m.gaps {
			s.setting.timing.source[g] = from
			switch x := &m.gaps[g]; {
			case x.buffer == v[1] && x.canSwap && x.before == 7:
				s.setting.choice[g] = swap
			case (x.buffer == v[2] || x.buffer == v[3]) && x.producersRerun && x.before > 5:
				s.setting.choice[g] = recompute
			}
		}
		s.run()
		pl, err := place.Assemble(p, s.decisions())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := place.Place(t.Context(), p, pl, place.Options{Rule: place.BestFit}); err != nil {
			t.Fatal(err)
		}
		if err := plan.Validate(p, pl); err != nil {
			t.Errorf("source %d: %v", from, err)
		}
		if len(pl.Reruns) == 0 || !slices.Equal(pl.Reruns[0].Ops, []plan.OpID{1, 2, 3}) {
			t.Errorf("source %d: %v runs again", from, pl.Reruns)
		}
	}
}

// TestSectionsStartWhereTheWholeBufferIs: the choices for whole buffers hold for each of their sections, and
// the step takes no longer.
func TestSectionsStartWhereTheWholeBufferIs(t *testing.T) {
	t.Parallel()
	whole, cut := cutView(t, "VGG-16")
	r := rand.New(rand.NewPCG(1, 2))
	limit := whole.m.floor + (whole.m.peak-whole.m.floor)/2
	whole.applyMargin(limit, 0)
	cut.applyMargin(limit, 0)
	for g := range whole.m.gaps {
		if x := &whole.m.gaps[g]; x.canSwap && r.IntN(2) == 0 {
			whole.schedule.setting.choice[g] = swap
		} else if x.canRecompute && r.IntN(2) == 0 {
			whole.schedule.setting.choice[g] = recompute
		}
	}
	x := whole.estimate()
	whole.schedule.take(&x)
	cut.schedule.setting.timing = newTiming(cut.m)
	cut.schedule.choosePerSection(cut.sections, whole.m, &x)
	for b := range whole.p.Buffers {
		want := whole.schedule.setting.choice[whole.m.first[b]:whole.m.first[b+1]]
		for k := cut.sections[b]; k < cut.sections[b+1]; k++ {
			got := cut.schedule.setting.choice[cut.m.first[k]:cut.m.first[k+1]]
			if !slices.Equal(got, want) {
				t.Errorf("%s has the choices %v, want %v", cut.p.Buffers[k].Name, got, want)
			}
		}
	}
	y := cut.estimate()
	if y.time > x.time || len(cut.p.Buffers) < 2*len(whole.p.Buffers) {
		t.Errorf("a step of %d buffers takes %d ns, one of %d sections %d", len(whole.p.Buffers), x.time,
			len(cut.p.Buffers), y.time)
	}
}
