package plan_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
)

// recordings opens the samples and, where GMEMTOP_TRACES names them, the real recordings.
func recordings(t *testing.T, visit func(name string, d *timeline.Device)) {
	t.Helper()
	files, err := filepath.Glob("../../traces/samples/*.gmt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	if root := os.Getenv("GMEMTOP_TRACES"); root != "" {
		more, _ := filepath.Glob(root + "/*/*")
		files = append(files, more...)
	} else {
		t.Log("without GMEMTOP_TRACES only the samples are planned")
	}
	for _, f := range files {
		tr, err := load.Open(context.Background(), f, load.Options{})
		if err != nil {
			continue // the readers' own tests say why
		}
		tl, err := timeline.Build(context.Background(), tr, nil)
		if err != nil {
			t.Fatalf("%s: %v", filepath.Base(f), err)
		}
		if d := tl.Main(); d != nil {
			visit(filepath.Base(f), d)
		}
	}
}

func TestAProblemHasThePeakOfItsIterationAndKeepingEverythingIsAValidPlan(t *testing.T) {
	planned := 0
	recordings(t, func(name string, d *timeline.Device) {
		p, err := plan.FromDevice(context.Background(), d,
			plan.BuildOptions{Iteration: plan.SteadyIteration, Align: 1})
		if errors.As(err, new(*plan.Unavailable)) {
			return
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		pl, err := plan.Assemble(p, plan.Decisions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		res, err := place.Place(context.Background(), p, pl, place.Options{Rule: place.BestFit})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if err := plan.Validate(p, pl); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		peak, _ := p.PeakLive()
		if live, _ := pl.PeakLive(); live != peak || res.LowerBound < peak {
			t.Errorf("%s: the plan holds %d bytes at its peak, bound %d, the problem %d", name, live,
				res.LowerBound, peak)
		}
		// The recording's own peak: of any iteration, or of the whole where it has none.
		highest := d.Totals.PeakActive
		if peak > highest*11/10 {
			t.Errorf("%s: the problem's peak %d is far above the recording's %d", name, peak, highest)
		}
		planned++
	})
	if planned < 2 {
		t.Errorf("only %d recordings were planned", planned)
	}
}

// problemOf returns the problem of described steps, in the words of their file.
func problemOf(t *testing.T, described string) *plan.Problem {
	t.Helper()
	return builtFrom(t, described, plan.BuildOptions{Iteration: plan.SteadyIteration})
}

func builtFrom(t *testing.T, described string, opt plan.BuildOptions) *plan.Problem {
	t.Helper()
	path := filepath.Join(t.TempDir(), "steps.json")
	if err := os.WriteFile(path, []byte(described), 0o666); err != nil {
		t.Fatal(err)
	}
	tr, err := load.Open(t.Context(), path, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tl, err := timeline.Build(t.Context(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.FromDevice(t.Context(), tl.Main(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTwoIterationsArePlannedAsOneWhereThatHelps: each of six steps makes a buffer of 1 MiB that outlives it.
// It is freed one or two steps later, after the next one is made.
func TestTwoIterationsArePlannedAsOneWhereThatHelps(t *testing.T) {
	const steps, length = 6, 1000
	recorded := func(later int) string {
		var b strings.Builder
		b.WriteString(`{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cuda:0","pid":7,"rank":0,` +
			`"world_size":1,"epoch_ns":0,"steps":[`)
		for k := range steps {
			if k > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "[%d,%d]", 10+k*length, 10+(k+1)*length)
		}
		b.WriteString("]}\n")
		b.WriteString(`{"k":"alloc","id":0,"size":512,"t":1,"category":"parameter","on":"cuda:0"}` + "\n")
		for id := 1; id <= later; id++ { // those of the steps before
			fmt.Fprintf(&b, `{"k":"alloc","id":%d,"size":1048576,"t":2,"category":"temporary","on":"cuda:0"}`+
				"\n", id)
		}
		for k := range steps {
			id, at := later+1+k, 10+k*length+100
			fmt.Fprintf(&b, `{"k":"alloc","id":%d,"size":1048576,"t":%d,"category":"temporary","on":"cuda:0"}`+"\n",
				id, at)
			for op, touched := range []string{"", fmt.Sprint(id)} {
				fmt.Fprintf(&b, `{"k":"op","t":%d,"d":50,"name":"aten::mm","phase":"forward","module":"fc","r":[0],`+
					`"w":[%s],"m":[],"rerun":true,"stream":0}`+"\n", at+10+100*op, touched)
			}
			fmt.Fprintf(&b, `{"k":"free","id":%d,"t":%d}`+"\n", id-later, at+150)
			fmt.Fprintf(&b, `{"k":"op","t":%d,"d":50,"name":"aten::mm","phase":"forward","module":"fc","r":[0],`+
				`"w":[],"m":[],"rerun":true,"stream":0}`+"\n", at+300)
		}
		return b.String()
	}
	for _, c := range []struct {
		name      string
		later     int
		opt       plan.BuildOptions
		want      int
		ops, said int
	}{
		{"freed in the next step", 1, plan.BuildOptions{Iteration: 2}, 2, 6, 1},
		{"and planned for eager PyTorch", 1, plan.BuildOptions{Iteration: 2, EagerOnly: true}, 1, 3, 0},
		{"and the last of the recording", 1, plan.BuildOptions{Iteration: steps - 1}, 1, 3, 0},
		{"freed in the step behind that", 2, plan.BuildOptions{Iteration: 2}, 1, 3, 0},
	} {
		p := builtFrom(t, recorded(c.later), c.opt)
		if got := noted(p, "partner"); len(got) > 0 {
			t.Errorf("%s: every buffer has a partner, and the notes say %q", c.name, got)
		}
		if got := noted(p, "there twice"); len(got) > 0 != c.opt.EagerOnly {
			t.Errorf("%s: of what lives longer the notes say %q", c.name, got)
		}
		if p.Iterations != c.want || len(p.Ops) != c.ops || len(noted(p, "planned as one,")) != c.said {
			t.Errorf("%s: %d iterations of %d ops are planned, want %d of %d; %q", c.name,
				p.Iterations, len(p.Ops), c.want, c.ops, p.Notes)
		}
	}
}

// TestWhatOutlivesAnIterationCountsTwiceOnlyWhileTwoAreThere: a batch is made ahead of the step that learns
// from it and freed at that step's end. For PyTorch's allocator the older one is gone from then on, where an
// arena keeps a place for each. Both must have the peak of the recording where the two overlap.
func TestWhatOutlivesAnIterationCountsTwiceOnlyWhileTwoAreThere(t *testing.T) {
	const steps, length = 4, 1000
	const op = `"k":"op","d":20,"name":"aten::mm","phase":"forward","module":"fc","r":[0],"m":[],` +
		`"rerun":true,"stream":0`
	alloc := func(id, size int) string {
		return fmt.Sprintf(`"k":"alloc","id":%d,"size":%d,"category":"input","on":"cuda:0"`, id, size)
	}
	recorded := func(freed int) string {
		var b strings.Builder
		b.WriteString(`{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cuda:0","pid":7,` +
			`"rank":0,"world_size":1,"epoch_ns":0,"steps":[`)
		for k := range steps {
			fmt.Fprintf(&b, "%s[%d,%d]", strings.Repeat(",", min(k, 1)), 10+k*length, 10+(k+1)*length)
		}
		b.WriteString("]}\n" +
			`{"k":"alloc","id":0,"size":512,"t":1,"category":"parameter","on":"cuda:0"}` + "\n")
		fmt.Fprintf(&b, `{%s,"t":2}`+"\n", alloc(1, 1<<20))
		for k := range steps {
			batch, work, at := 2+2*k, 3+2*k, 10+k*length
			free := fmt.Sprintf(`{"k":"free","id":%d,"t":%d}`+"\n", max(batch-2, 1), at+freed)
			fmt.Fprintf(&b, `{%s,"t":%d}`+"\n", alloc(batch, 1<<20), at+100)
			if freed < 500 {
				b.WriteString(free)
			}
			fmt.Fprintf(&b, `{%s,"t":%d}`+"\n", alloc(work, 2<<20), at+500)
			fmt.Fprintf(&b, `{%s,"w":[%d],"t":%d}`+"\n", op, work, at+510)
			if freed >= 500 {
				b.WriteString(free)
			}
			fmt.Fprintf(&b, `{"k":"free","id":%d,"t":%d}`+"\n", work, at+600)
			for _, after := range []int{150, 300, 700} {
				fmt.Fprintf(&b, `{%s,"w":[],"t":%d}`+"\n", op, at+after)
			}
		}
		return b.String()
	}
	const batch, work = 1 << 20, 2 << 20
	for _, c := range []struct {
		freed int
		eager bool
		want  int64
	}{
		{200, true, 512 + batch + work},   // before the peak
		{560, true, 512 + 2*batch + work}, // behind it
		{200, false, 512 + 2*batch + work},
	} {
		p := builtFrom(t, recorded(c.freed), plan.BuildOptions{Iteration: steps - 1, EagerOnly: c.eager})
		if peak, _ := p.PeakLive(); peak != c.want {
			t.Errorf("freed at %d, for eager PyTorch %v: %d bytes at the peak, want %d; %q", c.freed, c.eager,
				peak, c.want, p.Notes)
		}
	}
}

// TestWhatTheFirstStepMakesOfTheModelPersists: a recording of one step that also makes the model has
// parameters and states of the optimizer that are never freed. An activation that is not freed ends with the
// step, and what was there before and is freed begins with it: both cross its ends, and a note says so.
func TestWhatTheFirstStepMakesOfTheModelPersists(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cuda:0","pid":7,"rank":0,` +
		`"world_size":1,"epoch_ns":0,"steps":[[10,1000]]}` + "\n" +
		`{"k":"alloc","id":4,"size":777,"t":5,"category":"temporary","on":"cuda:0"}` + "\n")
	for id, category := range []string{"parameter", "optimizer_state", "activation", "parameter"} {
		fmt.Fprintf(&b, `{"k":"alloc","id":%d,"size":512,"t":%d,"category":"%s","on":"cuda:0"}`+"\n",
			id, 20+id, category)
	}
	op := `{"k":"op","t":%d,"d":50,"name":"aten::mm","phase":"forward","module":"fc","r":[0,1],"w":[2],` +
		`"m":[],"rerun":true,"stream":0}` + "\n"
	fmt.Fprintf(&b, op, 100)
	b.WriteString(`{"k":"alloc","id":5,"size":512,"t":160,"category":"parameter",` + // too late
		`"on":"cuda:0"}` + "\n")
	fmt.Fprintf(&b, op, 200)
	fmt.Fprintf(&b, `{"k":"free","id":3,"t":270}`+"\n"+`{"k":"free","id":4,"t":280}`+"\n"+op, 300)
	p := problemOf(t, b.String())
	got := noted(p, "without a counterpart")
	if len(got) != 1 || !strings.HasPrefix(got[0], "3 buffers live") {
		t.Errorf("the notes say %q", p.Notes)
	}
	want := []plan.Life{plan.Persistent, plan.Persistent, plan.Inside, plan.Inside, plan.Inside, plan.Inside}
	for i := range min(len(p.Buffers), len(want)) {
		if x := &p.Buffers[i]; x.Life != want[i] {
			t.Errorf("buffer %d, %s, is %v from %d to %d, want %v", i, x.Category, x.Life, x.Start, x.End,
				want[i])
		}
	}
	if len(p.Buffers) != len(want) {
		t.Errorf("%d buffers, want %d", len(p.Buffers), len(want))
	}
}

// TestTimesCountFromTheFirstOp: allocations and frees before the first op of an iteration do not make it
// longer, however late the recording begins.
func TestTimesCountFromTheFirstOp(t *testing.T) {
	const recorded = `{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cuda:0","pid":7,"rank":0,"world_size":1,"epoch_ns":0,"steps":[[5000000,5001000]]}
{"k":"alloc","id":0,"size":512,"t":1,"category":"parameter","on":"cuda:0"}
{"k":"alloc","id":1,"size":512,"t":5000001,"category":"temporary","on":"cuda:0"}
{"k":"free","id":1,"t":5000002}
{"k":"alloc","id":2,"size":512,"t":5000010,"category":"activation","on":"cuda:0"}
{"k":"op","t":5000010,"d":100,"name":"aten::mm","phase":"forward","module":"fc","r":[0],"w":[2],"m":[],"rerun":true,"stream":0}
{"k":"op","t":5000150,"d":100,"name":"aten::mul","phase":"backward","module":"fc","r":[2],"w":[],"m":[0],"rerun":true,"stream":0}
{"k":"free","id":2,"t":5000300}
`
	p := problemOf(t, recorded)
	var all int64
	for i := range p.Ops {
		all += p.Ops[i].Duration + p.Ops[i].Gap
	}
	if all < 200 || all > 400 { // a gap counts from when the host issued the op before, not from its end
		t.Errorf("the iteration takes %d ns, and 240 were recorded", all)
	}
}

// noted returns the sentences of a problem's notes that hold a word.
func noted(p *plan.Problem, word string) (found []string) {
	for _, n := range p.Notes {
		if strings.Contains(n, word) {
			found = append(found, n)
		}
	}
	return found
}

// Views of one block are accesses of that block wherever they begin; one that names more bytes than the block
// has counts as the whole block, with a note, and one that touches nothing is noted too.
func TestViewsThatDisagreeAboutABlockAreHandledAndSaid(t *testing.T) {
	build := func(views ...traces.Access) *plan.Problem {
		b := traces.NewBuilder()
		dev := b.Device(traces.DeviceGPU, 0)
		for k, addr := range []uint64{0x10000, 0x20000} {
			b.Event(traces.Event{Time: int64(k), Addr: addr, Size: 1024, Action: traces.Alloc,
				Stack: traces.NoStack, Device: dev})
		}
		for k, a := range append([]traces.Access{{Addr: 0x10000, Size: 1024, Mode: traces.Write}}, views...) {
			a.Time, a.Event, a.Device, a.Op = int64(10+k), 2, dev, traces.NoOp
			b.T.Accesses = append(b.T.Accesses, a)
		}
		for k, addr := range []uint64{0x10000, 0x20000} {
			b.Event(traces.Event{Time: int64(100 + k), Addr: addr, Size: 1024, Action: traces.FreeCompleted,
				Stack: traces.NoStack, Device: dev})
		}
		tl, err := timeline.Build(t.Context(), b.Finish(), nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.FromDevice(t.Context(), tl.Devices[0],
			plan.BuildOptions{Iteration: plan.SteadyIteration})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		name    string
		view    traces.Access
		touches int
		note    string
	}{
		{"a view of a part", traces.Access{Addr: 0x10200, Size: 512, Mode: traces.Alias}, 2, ""},
		{"a view of more than there is", traces.Access{Addr: 0x10000, Size: 1 << 20, Mode: traces.Alias}, 2,
			"one access names more bytes than its block has, and counts as one of the whole block"},
		{"a view of nothing", traces.Access{Addr: 0x90000, Size: 512, Mode: traces.Alias}, 1,
			"one access touches no block that is known to be alive, and is left out"},
	} {
		p := build(c.view)
		if len(p.Buffers) != 2 || len(p.TouchesOf(0)) != c.touches || len(p.TouchesOf(1)) != 0 {
			t.Errorf("%s: %d buffers, %d and %d touches", c.name, len(p.Buffers), len(p.TouchesOf(0)),
				len(p.TouchesOf(1)))
		}
		if got := strings.Join(noted(p, "access"), "; "); got != c.note {
			t.Errorf("%s: the notes say %q, want %q", c.name, got, c.note)
		}
		pl, err := plan.Assemble(p, plan.Decisions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := place.Place(t.Context(), p, pl, place.Options{}); err != nil {
			t.Fatal(err)
		}
		if err := plan.Validate(p, pl); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Where iterations have several shapes a steady one is planned, and a note says how many the plan does not
// cover.
func TestIterationsOfAnotherShapeAreNotPlannedAndSaid(t *testing.T) {
	recorded := func(odd int) *plan.Problem {
		var b strings.Builder
		const steps, length = 8, 1000
		b.WriteString(`{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cuda:0","pid":7,"rank":0,"world_size":1,"epoch_ns":0,"steps":[`)
		for k := range steps {
			if k > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "[%d,%d]", 10+k*length, 10+(k+1)*length)
		}
		b.WriteString("]}\n" + `{"k":"alloc","id":0,"size":512,"t":1,"category":"parameter","on":"cuda:0"}` +
			"\n")
		id := 0
		for k := range steps {
			layers, at := 4, 10+k*length
			if k == odd {
				layers = 7
			}
			first := id + 1
			for range layers {
				id++
				at += 10
				fmt.Fprintf(&b, `{"k":"alloc","id":%d,"size":%d,"t":%d,"category":"activation","on":"cuda:0"}`+"\n", id, 4096*(id-first+1), at)
				fmt.Fprintf(&b, `{"k":"op","t":%d,"d":5,"name":"aten::mm","phase":"forward","module":"fc","r":[0],"w":[%d],"m":[],"rerun":true,"stream":0}`+"\n", at, id)
			}
			for x := id; x >= first; x-- {
				at += 10
				fmt.Fprintf(&b, `{"k":"op","t":%d,"d":5,"name":"aten::mul","phase":"backward","module":"fc","r":[%d],"w":[],"m":[0],"rerun":true,"stream":0}`+"\n", at, x)
				fmt.Fprintf(&b, `{"k":"free","id":%d,"t":%d}`+"\n", x, at+5)
			}
		}
		return problemOf(t, b.String())
	}
	const note = "one other iteration has another shape, and the plan is not for it"
	same, other := recorded(-1), recorded(5)
	if got := noted(same, "shape"); len(got) > 0 {
		t.Errorf("all of one shape: %q", got)
	}
	if got := noted(other, "shape"); len(got) != 1 || got[0] != note {
		t.Errorf("one of another shape: %q in %q", got, other.Notes)
	}
	a, _ := same.PeakLive()
	if b, _ := other.PeakLive(); len(other.Buffers) != len(same.Buffers) || a != b {
		t.Errorf("a steady one has %d buffers and %d bytes at its peak, planned are %d and %d",
			len(same.Buffers), a, len(other.Buffers), b)
	}
}

// TestAnotherDeviceDoesNotChangeTheProblem: a training on a GPU reads its batch from the CPU. The rows of
// each device are numbered apart, and those of the CPU do not hold up those of the GPU.
func TestAnotherDeviceDoesNotChangeTheProblem(t *testing.T) {
	const gpu = `{"gmemtop":"described","version":1,"torch":"2.9","pid":7,"rank":-1,"world_size":-1,"epoch_ns":1,"steps":[[0,100]]}
{"k":"alloc","id":1,"addr":4096,"size":512,"t":0,"category":"parameter","on":"cuda:0"}
{"k":"alloc","id":2,"addr":8192,"size":1024,"t":10,"category":"input","on":"cuda:0"}
{"k":"op","t":10,"d":5,"name":"aten::_to_copy","phase":"forward","module":"","r":[CPU],"w":[2],"m":[],"rerun":true}
{"k":"alloc","id":3,"addr":12288,"size":2048,"t":20,"category":"activation","on":"cuda:0"}
{"k":"op","t":20,"d":5,"name":"aten::mm","phase":"forward","module":"net","r":[1,2],"w":[3],"m":[],"rerun":true}
{"k":"op","t":30,"d":5,"name":"aten::mm","phase":"backward","module":"net","r":[2,3],"w":[],"m":[1],"rerun":true}
{"k":"free","id":3,"t":40}
{"k":"free","id":2,"t":50}
`
	const second = `{"k":"alloc","id":2`
	const cpu = `{"k":"alloc","id":8,"size":64,"t":0,"category":"input","on":"cpu"}
{"k":"alloc","id":9,"size":64,"t":0,"category":"input","on":"cpu"}
`
	alone, both := problemOf(t, strings.Replace(gpu, "CPU", "", 1)),
		problemOf(t, strings.Replace(strings.Replace(gpu, second, cpu+second, 1), "CPU", "9", 1))
	words := func(p *plan.Problem) string {
		var b strings.Builder
		for _, x := range p.Buffers {
			fmt.Fprintln(&b, x.Name, x.Size, x.Life, x.Start, x.End)
		}
		for _, op := range p.Ops {
			fmt.Fprintln(&b, op.Name, op.Duration, p.Accesses[op.First:op.End])
		}
		return b.String() + strings.Join(p.Notes, "\n")
	}
	if got, want := words(both), words(alone); got != want || len(both.Ops) != 3 {
		t.Errorf("with the CPU's rows:\n%s\nwithout:\n%s", got, want)
	}
}

// A recording without lifetimes is none that any manager can plan for.
func TestARecordingThatNobodyCanPlanForIsToldSo(t *testing.T) {
	err := &plan.Unavailable{Reason: "this file is one moment"}
	if got := err.Error(); got != "no manager can plan for this recording: this file is one moment" {
		t.Error(got)
	}
}
