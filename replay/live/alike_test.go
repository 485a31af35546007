package live

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Steps that ran twice alike are planned on. Others are described again, up to five times, but not once the
// same difference is met again. Then all that were described are planned for, by place: a module may draw
// which of its ops to run, or the program evaluates between some steps.
func TestStepsThatAreNeverAlikeArePlannedForTogether(t *testing.T) {
	one := recording(t, triedCosts)
	other := func(n int) *traces.Trace { // the n-th op from the end is another one in the second step
		tr := recording(t, triedCosts)
		op := &tr.Ops[len(tr.Ops)-n]
		for i := range tr.Ops {
			if tr.Ops[i].Name != op.Name && tr.Text(tr.Ops[i].Name) != plan.LoadOp {
				op.Name = tr.Ops[i].Name
				break
			}
		}
		return tr
	}
	for _, c := range []struct {
		alike, described int
		same             bool // the steps differ in the same op each time
	}{{1, 1, false}, {5, 5, false}, {6, 5, false}, {2, 2, true}, {6, 2, true}} {
		d := &uneven{drifting{tr: one}, nil, c.alike}
		d.other = func() *traces.Trace {
			if c.same {
				return other(1)
			}
			return other(len(d.asked))
		}
		var tries []int
		p, err := NewTarget(d, Options{Describing: func(n News) {
			if n.Watch > 0 {
				return
			}
			if tries = append(tries, n.Try); n.Tries != describeTries || n.Stage != Describing {
				t.Errorf("one of %d tries, phase %v", n.Tries, n.Stage)
			}
		}}).Problem(t.Context(), Hardware{Chosen: true})
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		others := 0
		if c.alike > c.described {
			others = c.described*DescribedSteps - 1
		}
		if len(p.Varied) != others {
			t.Errorf("%+v: planned for beside %d other steps, not %d", c, len(p.Varied), others)
		}
		described := 0
		for _, a := range d.asked {
			if a == "describe" {
				described++
			}
		}
		if described != c.described || len(tries) != c.described || tries[len(tries)-1] != c.described {
			t.Errorf("%+v: %d descriptions, and tries %v are told of", c, described, tries)
		}
	}
	short := recording(t, triedCosts)
	k := slices.IndexFunc(short.Marks, func(m traces.Mark) bool { return m.Kind == traces.MarkIteration })
	short.Marks = slices.Delete(short.Marks, k, k+1)
	_, err := NewTarget(&drifting{tr: short}, Options{}).Problem(t.Context(), Hardware{Chosen: true})
	if !errors.Is(err, ErrUneven) || !strings.Contains(err.Error(), "but a plan needs two") {
		t.Errorf("of a single step: %v", err)
	}
}

// Where steps run the same ops on batches of other shapes, the largest that was described is planned for.
func TestTheLargestOfBatchesThatVaryIsPlannedFor(t *testing.T) {
	halved := func() *traces.Trace { // the second step's tensors are half as large
		tr := recording(t, triedCosts)
		from := tr.Marks[slices.IndexFunc(tr.Marks, func(m traces.Mark) bool {
			return m.Kind == traces.MarkIteration
		})].End
		for i := range tr.Accesses {
			if tr.Accesses[i].Time >= from {
				tr.Accesses[i].Size /= 2
			}
		}
		return tr
	}
	for _, c := range []struct {
		what  string
		first *traces.Trace
		asked int
		noted bool
	}{
		{"all are alike", recording(t, triedCosts), 1, false},
		// the descriptions, and a plan that keeps everything, for its sizes
		{"one is smaller", halved(),
			describeTries + len([]string{"on", "10 with", "10 with", "10 with", "10 with", "off"}), true},
	} {
		var watched []int
		d := &uneven{drifting{tr: recording(t, triedCosts)}, func() *traces.Trace { return c.first }, 2}
		p, err := NewTarget(d, Options{Describing: func(n News) {
			if n.Watch > 0 {
				watched = append(watched, n.Watched)
			}
		}}).Problem(t.Context(), Hardware{Chosen: true})
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if told := slices.Equal(watched, []int{0, 10, 20, 30}); told != c.noted ||
			!c.noted && watched != nil {
			t.Errorf("%s: it tells of %v watched steps", c.what, watched)
		}
		noted := slices.ContainsFunc(p.Notes, func(n string) bool {
			return strings.Contains(n, "planned for the largest of 50 steps")
		})
		if len(d.asked) != c.asked || noted != c.noted {
			t.Errorf("%s: %d descriptions, and it notes %q", c.what, len(d.asked), p.Notes)
		}
	}
}

// The plan is made for what a larger step saved: the problem has its sizes, and no buffer becomes smaller.
// While a plan is on, a larger step makes Target plan again for the new sizes; if that fails the plan ends,
// since such a step holds more than the budget.
func TestAPlanIsMadeForTheLargestSizesThatWereSeen(t *testing.T) {
	tr := recording(t, triedCosts)
	p, pl := swapsAll(t, tr)
	pl.Budget, _ = pl.PeakLive()
	e := encoder{p: p}
	if err := e.number(); err != nil {
		t.Fatal(err)
	}
	d := &drifting{tr: tr, larger: 1}
	grew := plan.NoBuffer
	for _, b := range e.saved() {
		d.sizes = append(d.sizes, -1)
		if grew == plan.NoBuffer && b != plan.NoBuffer && p.Buffers[b].Category == timeline.Activation {
			grew, d.sizes[len(d.sizes)-1] = b, 3*p.Buffers[b].Size
		}
	}
	if grew == plan.NoBuffer {
		t.Fatal("the recording saves no activation")
	}
	for _, fails := range []bool{false, true} {
		var asked *plan.Problem
		made := Made{Plan: pl, Added: 7, Budget: pl.Budget}
		makes := func(_ context.Context, q *plan.Problem) (Made, error) {
			if asked = q; fails {
				return Made{}, errors.New("no room")
			}
			return made, nil
		}
		target := NewTarget(d, Options{Again: makes})
		on := larger{t: target, p: p, made: made, number: 1}
		n := News{Before: 100}
		again, err := on.heard(t.Context(), &n)
		above := (*Above)(nil)
		if errors.As(err, &above) != fails || !fails && err != nil || asked == nil || n.Larger != 1 {
			t.Fatalf("%v, and the news is %+v", err, n)
		}
		if fails && (!above.Larger || above.Takes != pl.Budget+n.Above || above.Measured) {
			t.Errorf("the plan ended with %+v, and the news is %+v", above, n)
		}
		for i := range p.Buffers {
			was, is := p.Buffers[i].Size, asked.Buffers[i].Size
			if is < was || plan.BufferID(i) == grew && is != 3*was {
				t.Errorf("buffer %d had %d bytes and has %d", i, was, is)
			}
		}
		if again == fails || (n.Refused == "no room") != fails || (on.p == asked) == fails ||
			(n.PredictedStep == 107) == fails {
			t.Errorf("planned again: %v, and the news is %+v", again, n)
		}
		held, err := heldBy(p, asked, pl)
		if err != nil || n.Above != held-pl.Budget || n.Above <= 0 {
			t.Errorf("the step holds %d bytes, and the news is %+v, %v", held, n, err)
		}
		measured := NewTarget(&drifting{tr: tr, larger: 1, sizes: d.sizes}, Options{})
		if m, err := measured.Run(t.Context(), p, pl, plan.RunOptions{}); err != nil || m.Footprint != held {
			t.Errorf("measured %d bytes, where a larger step holds %d, %v", m.Footprint, held, err)
		}
		known := larger{t: target, p: p, made: made, number: 1, steps: 1}
		if more, err := known.heard(t.Context(), &n); more || err != nil {
			t.Errorf("of a step that was heard of a plan is made again: %v", err)
		}
	}
}

// Two batches of varying shapes may be alike by chance, so a plan made from them, too, lists what each tensor
// takes: only then does the process report larger ones.
func TestAPlanFromStepsOfOneShapeReportsLargerOnes(t *testing.T) {
	d := &drifting{tr: recording(t, triedCosts)}
	p, pl := swapsAll(t, d.tr)
	if _, err := NewTarget(d, Options{}).Run(t.Context(), p, pl, plan.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	var words Rules
	// groups have no reader in Go, and a plan that only swaps has none
	if err := json.Unmarshal(d.words, &words); err != nil {
		t.Fatal(err)
	}
	if len(words.Values) == 0 || len(words.Sizes) != words.Saves {
		t.Fatalf("the process is told the sizes of %d of %d tensors", len(words.Sizes), words.Saves)
	}
	for _, v := range words.Values {
		if words.Sizes[v.Save] != v.Bytes {
			t.Errorf("tensor %d takes %d bytes, and the process is told %d", v.Save, v.Bytes,
				words.Sizes[v.Save])
		}
	}
}

// uneven is a training whose steps are alike from a description of some number on.
type uneven struct {
	drifting
	other func() *traces.Trace
	alike int
}

func (u *uneven) Describe(ctx context.Context, number int64) (*traces.Trace, error) {
	tr, err := u.drifting.Describe(ctx, number)
	if len(u.asked) < u.alike {
		tr = u.other()
	}
	return tr, err
}

// An optimizer such as LBFGS does more in each step until its history is full: descriptions wait for that.
func TestStepsWhoseOptimizerStillChangesAreDescribedLater(t *testing.T) {
	changed := recording(t, triedCosts)
	for i := range changed.Marks { // the last op of each step is the optimizer's, and another in the second
		if m := changed.Marks[i]; m.Kind == traces.MarkIteration {
			own := ownOps(changed, m, false)
			op := &changed.Ops[own[len(own)-1]]
			op.Phase = traces.PhaseOptimizer
			if m.Start > changed.Ops[0].Start {
				op.Name = changed.Ops[own[0]].Name
			}
		}
	}
	if err := alike(changed); !errors.Is(err, errSettling) || !errors.Is(err, ErrUneven) {
		t.Fatalf("its steps differ in the optimizer, and %v", err)
	}
	d := &uneven{drifting{tr: recording(t, triedCosts)}, func() *traces.Trace { return changed }, 3}
	if _, err := NewTarget(d, Options{}).Problem(t.Context(), Hardware{Chosen: true}); err != nil {
		t.Fatal(err)
	}
	want := []string{"describe", "10 without", "describe"}
	if !slices.Equal(d.asked, want) {
		t.Errorf("the training was asked for %q, not %q", d.asked, want)
	}
}

// Steps of other shapes and of other ops: the refusal names where they part, and tells the two apart.
func TestStepsThatAreNotAlikeAreToldWhy(t *testing.T) {
	for _, c := range []struct {
		what string
		size int64 // that the first op writes in the second step
		want string
	}{
		{"shapes", 2048, ", and number 1 (aten::embedding in embed) makes 4.00 KiB in one and 2.00 KiB in " +
			"the other: the batches have different shapes, so pad or crop them all to one"},
		{"ops", 4096, "; try again, or train with steps that are all alike"},
	} {
		b := traces.NewBuilder()
		tr := &b.T
		op := func(start int64, name, module string) {
			tr.Ops = append(tr.Ops, traces.Op{Start: start, Name: b.String(name), Module: b.String(module)})
		}
		op(0, "aten::embedding", "embed")
		op(1, "aten::mm", "head")
		op(10, "aten::embedding", "embed")
		op(11, "aten::cat", "head")
		op(12, "aten::mm", "head")
		tr.Accesses = []traces.Access{{Op: 0, Size: 4096, Mode: traces.Write},
			{Op: 2, Size: 77, Mode: traces.Read}, {Op: 2, Size: c.size, Mode: traces.Write}}
		tr.Marks = []traces.Mark{{Kind: traces.MarkIteration, Start: 0, End: 10},
			{Kind: traces.MarkIteration, Start: 10, End: 20}}
		const parts = "they have 2 and 3 ops, and number 2 is the first that differs " +
			"(aten::mm in head and aten::cat in head)"
		if err := alike(tr); !errors.Is(err, ErrUneven) || !strings.HasSuffix(err.Error(), parts+c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestTheNewsSaysWhichCaptureIsMade(t *testing.T) {
	n := News{Stage: Describing, Try: 1, Tries: 5}
	for _, c := range []struct {
		usual int64
		try   int
		want  string
	}{
		{0, 1, "joint: recording ops"},
		{450e6, 1, "joint: recording ops (2 steps, usually 450 ms each)"},
		{450e6, 3, "joint: recording ops (2 steps, usually 450 ms each), try 3 of 5: the steps differed"},
	} {
		n.Usual, n.Try = c.usual, c.try
		if got := n.Sentence("joint", timeline.IEC); got != c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
	for _, c := range []struct {
		n    News
		want string
	}{
		{News{Watched: 10, Watch: 40}, "looking for the largest batch: 10 of 40 steps seen, about 60 s " +
			"left"},
		{News{Timed: 5, Time: 25}, "timing copies and recomputes here: 5 of 25 steps, about 40 s left"},
	} {
		n := c.n
		n.Stage, n.Usual = Describing, 2e9
		if got := n.Sentence("joint", timeline.IEC); got != "joint: recording ops: "+c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
		if got := n.Doing(); len(got) != 1 || got[0] != c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}

// What a sampler draws in some steps only does not make steps differ; a large op, one of a module, one of the
// backward pass and one that autograd's hooks see do.
func TestWhatRunsBesideTheModulesDoesNotPartSteps(t *testing.T) {
	for _, c := range []struct {
		name, module string
		phase        traces.Phase
		size         int64
		modules      string // that the other ops run in
		alike        bool
	}{
		{"aten::randint", "", traces.PhaseForward, 256, "head", true},
		{"aten::randint", "", traces.PhaseForward, 1 << 20, "head", false},
		{"aten::randint", "head", traces.PhaseForward, 256, "head", false},
		{"aten::randint", "", traces.PhaseBackward, 256, "head", false},
		{plan.SaveOp, "", traces.PhaseForward, 256, "head", false},
		{"aten::randint", "", traces.PhaseForward, 256, "", false},
	} {
		b := traces.NewBuilder()
		tr := &b.T
		op := func(start int64, name, module string, phase traces.Phase) {
			tr.Ops = append(tr.Ops, traces.Op{Start: start, Name: b.String(name), Module: b.String(module),
				Phase: phase})
		}
		op(0, "aten::mm", c.modules, traces.PhaseForward)
		op(10, c.name, c.module, c.phase)
		op(11, "aten::mm", c.modules, traces.PhaseForward)
		tr.Accesses = []traces.Access{{Op: 0, Size: 4096, Mode: traces.Write},
			{Op: 1, Size: c.size, Mode: traces.Write}, {Op: 2, Size: 4096, Mode: traces.Write}}
		tr.Marks = []traces.Mark{{Kind: traces.MarkIteration, Start: 0, End: 10},
			{Kind: traces.MarkIteration, Start: 10, End: 20}}
		if err := alike(tr); (err == nil) != c.alike {
			t.Errorf("%+v: %v", c, err)
		}
		if c.alike && varies(tr) {
			t.Errorf("%+v: the steps are said to be of other sizes", c)
		}
	}
}

// Batches of varying shapes are made by ops outside of modules, which may be small in one step and large in
// another.
func TestOpsThatMakeBatchesOfVaryingShapesDoNotPartSteps(t *testing.T) {
	for _, c := range []struct {
		cells int // ops of the module in the second step; one in the first
		want  string
	}{
		{1, ""},
		{2, "they have 4 and 5 ops, and number 4 is the first that differs (aten::sum in head and aten::mm " +
			"in head), and number 1 (aten::randint) makes 70.0 KiB in one and 60.0 KiB in the other: the " +
			"batches have different shapes, so pad or crop them all to one"},
	} {
		b := traces.NewBuilder()
		tr := &b.T
		op := func(start int64, name, module string, size int64) {
			tr.Accesses = append(tr.Accesses, traces.Access{Op: traces.OpID(len(tr.Ops)), Size: size,
				Mode: traces.Write})
			tr.Ops = append(tr.Ops, traces.Op{Start: start, Name: b.String(name), Module: b.String(module),
				Phase: traces.PhaseForward})
		}
		for step, size := range []int64{70 << 10, 60 << 10} {
			at := int64(step) * 10
			op(at, "aten::randint", "", size)
			op(at, "aten::item", "", 8) // a logger's, in both
			op(at, "aten::embedding", "head", 4096)
			for range []int{1, c.cells}[step] {
				op(at, "aten::mm", "head", 4096)
			}
			op(at, "aten::sum", "head", 4096)
			tr.Marks = append(tr.Marks, traces.Mark{Kind: traces.MarkIteration, Start: at, End: at + 10})
		}
		err := alike(tr)
		switch {
		case c.want == "" && (err != nil || !varies(tr)):
			t.Errorf("%v, and other shapes: %v", err, varies(tr))
		case c.want != "" && (err == nil || !strings.HasSuffix(err.Error(), c.want)):
			t.Errorf("%v, not %s", err, c.want)
		}
	}
}
