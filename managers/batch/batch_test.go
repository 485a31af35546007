package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/batch"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
)

// recording makes a network's problem as if it had been recorded.
func recording(tb testing.TB, name string, n, seq int, o networks.Options) batch.Point {
	tb.Helper()
	net, err := networks.ByName(name)
	if err != nil {
		tb.Fatal(err)
	}
	hw, err := hardware.ByName("titan-x")
	if err != nil {
		tb.Fatal(err)
	}
	o.Sequence = seq
	p, err := net.Problem(n, hw, o)
	if err != nil {
		tb.Fatal(err)
	}
	return batch.Point{Batch: n, Sequence: seq, Problem: p}
}

// sameSizes reports the first buffer or workspace of got that is not exactly want's.
func sameSizes(got, want *plan.Problem) error {
	for i := range want.Buffers {
		if got.Buffers[i] != want.Buffers[i] {
			return fmt.Errorf("buffer %d is %+v, want %+v", i, got.Buffers[i], want.Buffers[i])
		}
	}
	for i := range want.Ops {
		for k := range want.Ops[i].Variants {
			if a, b := got.Ops[i].Variants[k].Workspace, want.Ops[i].Variants[k].Workspace; a != b {
				return fmt.Errorf("op %d (%s) works in %d bytes, want %d", i, want.Ops[i].Name, a, b)
			}
		}
	}
	return nil
}

func TestTwoBatchSizesGiveEveryOtherOneToTheByte(t *testing.T) {
	for _, n := range networks.All() {
		m, err := batch.Fit(recording(t, n.Name, 24, n.Sequence, networks.Options{}),
			recording(t, n.Name, 16, n.Sequence, networks.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{1, 16, 17, 32, 200} {
			got, err := m.Scaled(size)
			if err != nil {
				t.Fatal(err)
			}
			want := recording(t, n.Name, size, n.Sequence, networks.Options{}).Problem
			if err := sameSizes(got, want); err != nil {
				t.Errorf("%s at batch %d: %v", n.Name, size, err)
			}
			// A duration is the larger of two lines: between and near the recordings the model has it, where
			// they cross it is off.
			if a, b := stepTime(got), stepTime(want); size >= 16 &&
				math.Abs(float64(a)/float64(b)-1) > 0.1 {
				t.Errorf("%s at batch %d takes %d ns, want about %d", n.Name, size, a, b)
			}
			if m.Inferred() {
				t.Errorf("%s: a model of two recordings calls itself inferred", n.Name)
			}
		}
	}
}

func TestAModelGivesItsOwnRecordingsBack(t *testing.T) {
	small, large := recording(t, "resnet-50", 8, 0, networks.Options{}),
		recording(t, "resnet-50", 40, 0, networks.Options{})
	two, err := batch.Fit(small, large)
	if err != nil {
		t.Fatal(err)
	}
	one, err := batch.Fit(large)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m    *batch.Model
		from batch.Point
	}{{two, small}, {two, large}, {one, large}} {
		got, err := c.m.Scaled(c.from.Batch)
		if err != nil {
			t.Fatal(err)
		}
		if err := sameSizes(got, c.from.Problem); err != nil {
			t.Error(err)
		}
		if got.Name != c.from.Problem.Name || len(got.Notes) != len(c.from.Problem.Notes) {
			t.Errorf("%s came back as %q with notes %q", c.from.Problem.Name, got.Name, got.Notes)
		}
		for i := range got.Ops {
			if got.Ops[i].Duration != c.from.Problem.Ops[i].Duration {
				t.Errorf("op %d takes %d, recorded %d", i, got.Ops[i].Duration,
					c.from.Problem.Ops[i].Duration)
			}
		}
	}
}

func TestOneRecordingKeepsWhatTheCategoryCallsConstant(t *testing.T) {
	from := recording(t, "vgg-16", 32, 0, networks.Options{})
	m, err := batch.Fit(from)
	if err != nil {
		t.Fatal(err)
	}
	if !m.Inferred() {
		t.Error("a model of one recording does not call itself inferred")
	}
	got, err := m.Scaled(96)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Buffers {
		a, b := &got.Buffers[i], &from.Problem.Buffers[i]
		want := 3 * b.Size
		switch b.Category {
		case timeline.Parameter, timeline.OptimizerState, timeline.Gradient:
			want = b.Size
		}
		if b.Name == "loss" {
			continue // a scalar that the rule cannot know
		}
		if a.Size != want {
			t.Errorf("%s (%s) has %d bytes at batch 96 and %d at 32", a.Name, a.Category, a.Size, b.Size)
		}
	}
	if !got.TimesInferred || !strings.Contains(got.Name, "batch 96") ||
		!strings.HasPrefix(got.Notes[len(got.Notes)-1], "~ scaled from one recording") {
		t.Errorf("%q with notes %q does not say that it was scaled", got.Name, got.Notes)
	}
	// What does not grow and has no category that says so, such as the filters in a workspace, is made too
	// large and never too small.
	want := recording(t, "vgg-16", 96, 0, networks.Options{}).Problem
	for i := range want.Buffers {
		if got.Buffers[i].Size < want.Buffers[i].Size {
			t.Errorf("%s has %d bytes, truly %d", want.Buffers[i].Name, got.Buffers[i].Size,
				want.Buffers[i].Size)
		}
	}
}

func TestAGradientOfAnActivationGrowsThoughRecordingsCallItGradient(t *testing.T) {
	b := plantest.New()
	weight := b.Persistent("weight", 1000, timeline.Parameter)
	act := b.Buffer("act", 700, timeline.Activation)
	b.Op("forward", 1, 10, []plan.BufferID{weight}, []plan.BufferID{act})
	dAct := b.Buffer("act.grad", 700, timeline.Gradient)
	b.Op("loss", 2, 10, []plan.BufferID{act}, []plan.BufferID{dAct})
	dWeight := b.Buffer("weight.grad", 1000, timeline.Gradient)
	b.Op("backward", 2, 10, []plan.BufferID{dAct, act}, []plan.BufferID{dWeight})
	b.Op("step", 3, 10, []plan.BufferID{dWeight}, []plan.BufferID{weight})
	m, err := batch.Fit(batch.Point{Batch: 1, Problem: b.End()})
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Scaled(5)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[plan.BufferID]int64{weight: 1000, act: 3500, dAct: 3500, dWeight: 1000} {
		if got := p.Buffers[id].Size; got != want {
			t.Errorf("%s has %d bytes, want %d", p.Buffers[id].Name, got, want)
		}
	}
	if p.Ops[3].Duration != 10 || p.Ops[2].Duration != 50 {
		t.Errorf("the optimizer takes %d and the backward pass %d, want 10 and 50", p.Ops[3].Duration,
			p.Ops[2].Duration)
	}
}

func TestSequenceLengthsAreDistinguishedFromBatches(t *testing.T) {
	for _, name := range []string{"gpt2-small", "bert"} {
		point := func(n, seq int, fused bool) batch.Point {
			return recording(t, name, n, seq, networks.Options{FusedAttention: fused})
		}
		four, err := batch.FitSequence(point(2, 128, false), point(4, 128, false), point(2, 256, false),
			point(2, 320, false))
		if err != nil {
			t.Fatal(err)
		}
		three, err := batch.FitSequence(point(2, 128, true), point(4, 128, true), point(2, 256, true))
		if err != nil {
			t.Fatal(err)
		}
		wrong, err := batch.FitSequence(point(2, 128, false), point(4, 128, false), point(2, 256, false))
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range [][2]int{{1, 64}, {8, 512}, {3, 448}, {2, 256}} {
			for m, fused := range map[*batch.Model]bool{four: false, three: true} {
				got, err := m.ScaledTo(at[0], at[1])
				if err != nil {
					t.Fatal(err)
				}
				if err := sameSizes(got, point(at[0], at[1], fused).Problem); err != nil {
					t.Errorf("%s at %v, fused %v: %v", name, at, fused, err)
				}
			}
		}
		// The term for squares is what the fourth recording is for: without it scores are wrong.
		got, err := wrong.ScaledTo(2, 512)
		if err != nil {
			t.Fatal(err)
		}
		if sameSizes(got, point(2, 512, false).Problem) == nil {
			t.Errorf("%s: three recordings gave scores that they cannot know", name)
		}
		if last := got.Notes[len(got.Notes)-2]; !strings.Contains(last, "squares of attention") {
			t.Errorf("%s: nothing warns of the missing term: %q", name, got.Notes)
		}
	}
}

func TestRecordingsThatDoNotMatchAreRefusedWithWhatToDo(t *testing.T) {
	a := recording(t, "alexnet", 8, 0, networks.Options{})
	change := func(n int, f func(p *plan.Problem)) batch.Point {
		x := recording(t, "alexnet", n, 0, networks.Options{})
		f(x.Problem)
		return x
	}
	for _, c := range []struct {
		points []batch.Point
		say    string
	}{
		{nil, "0 recordings given; give one, or two"},
		{[]batch.Point{a, a, a}, "3 recordings given"},
		{[]batch.Point{a, a}, "both recordings are of batch 8; record one at another"},
		{[]batch.Point{{Batch: 8}}, "its problem is nil"},
		{[]batch.Point{{Problem: a.Problem}}, "batch 0 is not between 1 and"},
		{[]batch.Point{a, recording(t, "overfeat", 16, 0, networks.Options{})},
			"op 14 is drop6 in one and fc6 in another"},
		{[]batch.Point{a, recording(t, "vgg-16", 16, 0, networks.Options{})},
			"op 1 is conv1 in one and conv1_1 in another"},
		{[]batch.Point{a, recording(t, "alexnet", 16, 0, networks.Options{PersistentGradients: true})},
			"touches other buffers"},
		{[]batch.Point{a, change(16, func(p *plan.Problem) { p.Kind-- })}, "kind"},
		{[]batch.Point{a, change(16, func(p *plan.Problem) {
			p.Hardware.Name = "other"
		})}, "one is on TITAN X (Maxwell) and one on other"},
		{[]batch.Point{a, change(16, func(p *plan.Problem) { p.Ops[4].Variants = nil })}, "algorithms"},
		{[]batch.Point{a, change(16, func(p *plan.Problem) {
			p.Ops = p.Ops[:70]
		})}, "one has 76 ops and one 70"},
		{[]batch.Point{a, change(16, func(p *plan.Problem) {
			p.Buffers[3].Category = timeline.Input
		})}, "is parameter in one and input in another"},
		{[]batch.Point{a, {Batch: 16, Sequence: 4, Problem: a.Problem}}, "sequence lengths 0 and 4"},
	} {
		if _, err := batch.Fit(c.points...); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("want an error that says %q, got %v", c.say, err)
		} else if strings.Contains(err.Error(), "changing only the size") != errors.Is(err, batch.ErrShape) {
			t.Errorf("%v: a difference of shape and ErrShape do not go together", err)
		}
	}
	g := func(n, seq int) batch.Point { return recording(t, "gpt2-small", n, seq, networks.Options{}) }
	for _, points := range [][]batch.Point{
		{g(2, 64), g(4, 64), g(6, 64)},             // one sequence length
		{g(2, 64), g(4, 64), g(2, 128), g(4, 128)}, // two are no parabola
		{g(2, 64), g(2, 64), g(4, 128)},
	} {
		if _, err := batch.FitSequence(points...); err == nil ||
			!strings.Contains(err.Error(), "do not tell batch and sequence apart") {
			t.Errorf("want an error about batch and sequence, got %v", err)
		}
	}
	m, err := batch.Fit(a)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, -3, batch.Limit + 1} {
		if _, err := m.Scaled(size); err == nil {
			t.Errorf("scaled to batch %d", size)
		}
	}
	if _, err := m.ScaledTo(8, 128); err == nil || !strings.Contains(err.Error(), "record others") {
		t.Errorf("scaled to a sequence length that nothing recorded: %v", err)
	}
}

func TestAddressesInNamesAreNoDifferenceOfShape(t *testing.T) {
	rename := func(n int, address string) batch.Point {
		x := recording(t, "alexnet", n, 0, networks.Options{})
		x.Problem.Buffers[2].Name = "b" + address + "_0"
		return x
	}
	if _, err := batch.Fit(rename(8, "7f30c2000000"), rename(16, "7f8811e40200")); err != nil {
		t.Error(err)
	}
	if _, err := batch.Fit(rename(8, "1"), rename(16, "2")); !errors.Is(err, batch.ErrShape) {
		t.Errorf("two names that are no addresses match: %v", err)
	}
}

func TestEveryScaledProblemIsSoundAndKeepingEverythingIsAValidPlan(t *testing.T) {
	for seed := range uint64(120) {
		p := plantest.Random(seed, 8+int(seed%60))
		m, err := batch.Fit(batch.Point{Batch: 8, Problem: p})
		if err != nil {
			t.Fatal(err)
		}
		before, _ := p.PeakLive()
		for _, size := range []int{1, 7, 64} {
			q, err := m.Scaled(size)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if peak, _ := q.PeakLive(); size > 8 && peak < before || size < 8 && peak > before {
				t.Errorf("seed %d: the peak goes from %d to %d at batch %d", seed, before, peak, size)
			}
			pl, err := plan.Assemble(q, plan.Decisions{})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if _, err := place.Place(context.Background(), q, pl, place.Options{Rule: place.BestFit}); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err := plan.Validate(q, pl); err != nil {
				t.Errorf("seed %d, batch %d: %v", seed, size, err)
			}
		}
		if after, _ := p.PeakLive(); after != before {
			t.Errorf("seed %d: scaling changed the recording", seed)
		}
	}
}

func BenchmarkScaled(b *testing.B) {
	m, err := batch.Fit(recording(b, "vgg-416", 16, 0, networks.Options{}), recording(b, "vgg-416", 32, 0, networks.Options{}))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Scaled(100); err != nil {
			b.Fatal(err)
		}
	}
}

// stepTime returns how long all ops take one after another, in nanoseconds.
func stepTime(p *plan.Problem) (ns int64) {
	for i := range p.Ops {
		ns += p.Ops[i].Duration + p.Ops[i].Gap
	}
	return ns
}
