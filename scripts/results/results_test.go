package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
)

const tiny = `node3 -- ReLU(inplace) -- forward_compute_time=0.500, backward_compute_time=0.250, activation_size=4096.000, parameter_size=0.000
node1 -- Input -- forward_compute_time=600.000, backward_compute_time=0.000, activation_size=2048.000, parameter_size=0.000
node2 -- Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1)) -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=4096.000, parameter_size=512.000
node4 -- Size(0) -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=4.000, parameter_size=0.000
node5 -- View(64) -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=4096.000, parameter_size=0.000
node6 -- Linear(in_features=64, out_features=8, bias=True) -- forward_compute_time=0.100, backward_compute_time=0.200, activation_size=1024.000, parameter_size=256.000
	node1 -- node2
	node2 -- node3
	node3 -- node4
	node3 -- node5
	node4 -- node5
	node5 -- node6
`

func profiledTiny(t testing.TB) *plan.Problem {
	t.Helper()
	layers, err := readProfile(strings.NewReader(tiny))
	if err != nil {
		t.Fatal(err)
	}
	p, err := profileProblem("tiny", layers, plan.Hardware{Name: "none"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAProfileBecomesAnIterationAsPyTorchRunsIt(t *testing.T) {
	p := profiledTiny(t)
	var got strings.Builder
	for i := range p.Ops {
		got.WriteString(p.Ops[i].Name)
		for _, a := range p.AccessesOf(plan.OpID(i)) {
			got.WriteString(" " + [...]string{"reads", "writes", "changes",
				"uses"}[a.Mode] + " " + p.Buffers[a.Buffer].Name)
		}
		got.WriteByte('\n')
	}
	want := `Input1 writes Input1
Conv2d2 reads Input1 reads Conv2d2.weight writes Conv2d2
ReLU3 changes Conv2d2
Linear6 reads Conv2d2 reads Linear6.weight writes Linear6
Linear6.backward writes Linear6.grad reads Conv2d2 reads Linear6.weight writes Linear6.weight.grad writes View5.grad
ReLU3.backward reads View5.grad reads Conv2d2 writes Conv2d2.grad
Conv2d2.backward reads Conv2d2.grad reads Input1 reads Conv2d2.weight writes Conv2d2.weight.grad
Conv2d2.update reads Conv2d2.weight.grad changes Conv2d2.weight
Linear6.update reads Linear6.weight.grad changes Linear6.weight
`
	if got.String() != want {
		t.Errorf("the iteration is\n%s\nwant\n%s", got.String(), want)
	}
	if step, err := replay.KeepAll(t.Context(), p, replay.Simulated{}); err != nil || step != 4_050_000 {
		t.Errorf("a step takes %d ns, %v; want the sum of the profile's times but the first layer's", step,
			err)
	}
}

func TestMalformedProfilesAreErrors(t *testing.T) {
	for name, text := range map[string]string{
		"cycle":   tiny + "\tnode6 -- node2\n",
		"unknown": tiny + "\tnode6 -- node9\n",
		"twice":   tiny + strings.SplitAfter(tiny, "\n")[0],
		"neither": tiny + "nonsense\n",
		"too large": strings.Replace(tiny, "activation_size=4096.000",
			"activation_size=999999999999999999.000", 1),
	} {
		if _, err := readProfile(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzProfile(f *testing.F) {
	f.Add(tiny)
	f.Add("node1 -- Input -- forward_compute_time=1, backward_compute_time=0, activation_size=4, " +
		"parameter_size=8\n")
	f.Fuzz(func(t *testing.T, text string) {
		layers, err := readProfile(strings.NewReader(text))
		if err != nil {
			return
		}
		if p, err := profileProblem("fuzzed", layers, plan.Hardware{Name: "none"}); err == nil {
			if _, err := plan.Assemble(p, plan.Decisions{}); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestMemoryOptimalProblemsHaveNoWorkspaceAndAreNoFaster(t *testing.T) {
	hw, err := preset("titan-x")
	if err != nil {
		t.Fatal(err)
	}
	made, err := network("VGG-16", 64, hw)
	if err != nil {
		t.Fatal(err)
	}
	small, err := memoryOptimal(made)
	if err != nil {
		t.Fatal(err)
	}
	variants := 0
	var before, after int64
	for i := range made.Ops {
		variants += len(made.Ops[i].Variants)
		if small.Ops[i].Variants != nil || small.Ops[i].Workspace != plan.NoBuffer {
			t.Errorf("%s still chooses", small.Ops[i].Name)
		}
		before, after = before+made.Ops[i].Duration, after+small.Ops[i].Duration
	}
	live, _ := made.PeakLive()
	less, _ := small.PeakLive()
	if variants == 0 || after <= before || less >= live {
		t.Errorf("%d variants; %d ns and %d bytes became %d ns and %d bytes", variants, before, live, after,
			less)
	}
}

func TestGradientsInPlaceSaveMemoryAndNoTime(t *testing.T) {
	hw, err := preset("titan-x")
	if err != nil {
		t.Fatal(err)
	}
	made, err := lean("VGG-16", 64, hw)
	if err != nil {
		t.Fatal(err)
	}
	p, err := inPlace(made)
	if err != nil {
		t.Fatal(err)
	}
	if floor(p) >= floor(made) || len(p.Buffers) >= len(made.Buffers) {
		t.Errorf("the floor is %d of %d, with %d of %d buffers", floor(p), floor(made), len(p.Buffers),
			len(made.Buffers))
	}
	a, err := keepAll(t.Context(), made)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := keepAll(t.Context(), p); err != nil || a != b {
		t.Errorf("a step takes %d ns, was %d, %v", b, a, err)
	}
	features, err := managed(p)
	if err != nil {
		t.Fatal(err)
	}
	for i := range features.Buffers {
		if b := &features.Buffers[i]; b.Life == plan.Persistent && b.Size != 0 {
			t.Errorf("%s still takes %d bytes", b.Name, b.Size)
		}
	}
}

// joint's plan for less memory counts at a larger budget where the one for that budget is slower.
func TestJointKnowsItsPlansForLessMemory(t *testing.T) {
	hw, err := preset("titan-x")
	if err != nil {
		t.Fatal(err)
	}
	p, err := lean("AlexNet", 128, hw)
	if err != nil {
		t.Fatal(err)
	}
	c := newBench(recordings{}, "", io.Discard).contest
	figured := func(manager string, budget int64) *figure {
		t.Helper()
		f, err := c.measure(t.Context(), p, manager, budget, 0, false)
		if err != nil || f.plan == nil {
			t.Fatal(f.reason, err)
		}
		f.fits = true
		return f
	}
	quick, slow := figured("exact", 0), figured("vdnn-all", 0)
	if !faster(quick, slow) {
		t.Fatal("nothing takes longer than keeping everything")
	}
	peak := max(quick.plan.Footprint, slow.plan.Footprint)
	s := &sweep{p: p, names: []string{jointName}}
	got := [][]*figure{{slow}, {quick}, {slow}}
	if err := c.knowing(t.Context(), s, []int64{peak + 2, peak + 1, peak}, got); err != nil {
		t.Fatal(err)
	}
	if got[0][0].step() != quick.step() || got[1][0] != quick || got[2][0] != slow {
		t.Errorf("steps of %d, %d and %d ns", got[0][0].step(), got[1][0].step(), got[2][0].step())
	}
}

func TestAverageUsageIsWeightedByTime(t *testing.T) {
	m := plan.Measurement{Makespan: 10, Usage: []plan.Sample{{Time: 0, Bytes: 100}, {Time: 4, Bytes: 200},
		{Time: 9, Bytes: 0}}}
	if got := average(&m); got != 140 {
		t.Errorf("the average is %d, want 140", got)
	}
}

func TestWinsAreCountedByTimeThenFootprint(t *testing.T) {
	f := func(step, footprint int64) *figure {
		x := &figure{fits: true}
		x.Measurement = plan.Measurement{StepTime: step, Footprint: footprint}
		return x
	}
	for _, c := range []struct {
		joint, other *figure
		want         bool
	}{
		{f(10, 5), f(11, 1), true}, {f(10, 5), f(10, 5), true}, {f(10, 5), f(10, 4), false},
		{f(10, 4), f(10, 5), true}, {f(11, 1), f(10, 9), false},
		{f(10, 5), nil, true}, {nil, nil, false}, {&figure{}, f(10, 5), false},
	} {
		if got := wins(c.joint, c.other); got != c.want {
			t.Errorf("%+v against %+v: %v", c.joint, c.other, got)
		}
	}
}

func TestProseIsWrappedAndTablesAreNot(t *testing.T) {
	p := &page{}
	p.heading(2, "A heading")
	p.para("%s", strings.Repeat("word ", 60))
	p.item("one")
	p.item("two")
	p.table([]string{"a", "b"}, [][]string{{"x|y", strings.Repeat("z", 150)}})
	for line := range strings.Lines(p.text.String()) {
		if len(line) > width+1 && !strings.HasPrefix(line, "|") {
			t.Errorf("a line of %d columns: %s", len(line), line)
		}
	}
	if text := p.text.String(); !strings.Contains(text, "\n- one\n- two\n") ||
		!strings.Contains(text, `x\|y`) {
		t.Errorf("the page is\n%s", text)
	}
}

func TestSectionsWithoutTheRecordingsSayWhatTheyLack(t *testing.T) {
	t.Setenv("GMEMTOP_TRACES", "")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-only", "autoswap,missing"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "Left out of this page: AutoSwap's VGG recording") {
		t.Errorf("the page does not say what it lacks:\n%s", out.String())
	}
}

func TestACancelledRunWritesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out bytes.Buffer
	if err := run(ctx, []string{"-only", "tvdnn"}, &out, io.Discard); err == nil || out.Len() > 0 {
		t.Errorf("error %v, %d bytes written", err, out.Len())
	}
}

func TestThePageNamesNoPathAndNoOwner(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "results.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"/work", "/tmp", "/home", "junzhezhang", "onlineColoring", "memInfo",
		"msr-fiddle", "cappadokes"} {
		if bytes.Contains(text, []byte(word)) {
			t.Errorf("docs/results.md holds %q", word)
		}
	}
}

// publishedPage is the page in the repository.
func publishedPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "results.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTheSummarySaysWhatTheSectionsSay: the published page begins with all ten lines, each with the figures
// that stand in its section.
func TestTheSummarySaysWhatTheSectionsSay(t *testing.T) {
	text := publishedPage(t)
	opening, _, _ := strings.Cut(text, "\nThis page compares")
	opening = strings.Join(strings.Fields(opening), " ")
	found := summary(text)
	if len(found) != len(lines) || len(lines) != 10 {
		t.Errorf("%d of %d lines:\n%s", len(found), len(lines), strings.Join(found, "\n"))
	}
	for _, l := range found {
		if !strings.Contains(opening, "- "+l) {
			t.Errorf("the page does not begin with %q", l)
		}
	}
	other := regexp.MustCompile(`joint\s+wins\s+(\d)`).ReplaceAllString(text, "joint wins 9$1")
	if slices.Equal(summary(other), found) {
		t.Error("a figure of a section changed, and the summary did not")
	}
}

// TestAPageIsThePartsThatItIsMadeOf takes the published page apart and joins it again.
func TestAPageIsThePartsThatItIsMadeOf(t *testing.T) {
	text := publishedPage(t)
	dir := t.TempDir()
	write := func(name string, sections ...string) string {
		file := filepath.Join(dir, name)
		page := "# Results\n\n" + strings.Join(sections, "\n")
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	var even, odd []string
	for i, s := range split(text) {
		if i%2 == 0 {
			even = append(even, s.text)
		} else {
			odd = append(odd, s.text)
		}
	}
	a, b := write("a.md", even...), write("b.md", odd...)
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-join", b + "," + a}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if out.String() != text {
		t.Errorf("the joined page differs from the published one:\n%s", out.String())
	}
	out.Reset()
	newer := write("newer.md", strings.Replace(split(text)[1].text, "\n", "\n\nNewer.\n", 1))
	if err := run(t.Context(), []string{"-join", a + "," + b + "," + newer}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\nNewer.\n") != 1 || out.Len() != len(text)+len("\nNewer.\n") {
		t.Errorf("the newer section does not take the place of the older:\n%s", out.String())
	}
	for want, files := range map[string]string{
		"holds the section":   a,
		"no section":          a + "," + b + "," + write("c.md", "## Other\n"),
		"lists defects":       a + "," + b + "," + write("d.md", "## Defects\n"),
		"no such file or dir": filepath.Join(dir, "absent"),
	} {
		out.Reset()
		err := run(t.Context(), []string{"-join", files}, &out, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%s: error %v, %d bytes written", want, err, out.Len())
		}
	}
}
