package fit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces"
)

// twoSteps holds 8 MiB of parameters and peaks in the second step, at 8 + 24 MiB. PyTorch's allocator
// reserves a segment of 20 MiB for the parameters and one of its own size for each activation: 60 MiB, or 44
// if it returns a's segment before b.
const twoSteps = `
mark iteration 2000 5000 step0
mark iteration 6000 9000 step1
+ weight 8m cat=parameter
at 2000
+ a 16m cat=activation
- a
at 6000
+ b 24m cat=activation
- b
empty
`

// estimated returns the estimate of a script given in the tests' text form.
func estimated(t *testing.T, x *Training, size Size, script string) *Estimate {
	t.Helper()
	tl := timelinetest.Script(t, script)
	r := &estimate.Result{Trace: tl.Trace, Torch: "2.9.0", Steps: len(tl.Trace.Marks)}
	e, err := x.estimate(context.Background(), size, r)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEstimateReportsAllocatedAndReserved(t *testing.T) {
	const mib = 1 << 20
	const peak = "peak 32 MiB in step 2, reserved 60 MiB, "
	for _, c := range []struct {
		name, script    string
		budget, outside int64
		want            string
	}{
		{"room for all", twoSteps, 100 * mib, 0, peak + "fits true"},
		{"as much as is reserved", twoSteps, 60 * mib, 0, peak + "fits true"},
		{"only with the cache given back", twoSteps, 44 * mib, 0, peak + "fits true"},
		{"less than that", twoSteps, 43 * mib, 0, peak + "fits false"},
		{"outside leaves enough", twoSteps, 100 * mib, 56 * mib, peak + "fits true"},
		{"outside leaves too little", twoSteps, 100 * mib, 57 * mib, peak + "fits false"},
		{"nothing but outside", twoSteps, 10 * mib, 10 * mib, peak + "fits false"},
		{"before the first step", "mark iteration 9000 9500 s\n+ a 4m\n- a\nat 9000\n+ b 1m\nempty",
			100 * mib, 0, "peak 4 MiB in step 0, reserved 22 MiB, fits true"},
	} {
		x := &Training{Budget: c.budget, Outside: c.outside}
		e := estimated(t, x, Size{}, c.script)
		got := fmt.Sprintf("peak %d MiB in step %d, reserved %d MiB, fits %v", e.Peak/mib, e.PeakStep,
			e.Reserved/mib, e.Fits)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestAScriptThatAllocatesNothingCannotBeEstimated(t *testing.T) {
	tl := timelinetest.Script(t, "clock none")
	tl.Trace.Devices = nil
	_, err := (&Training{}).estimate(context.Background(), Size{}, &estimate.Result{Trace: tl.Trace})
	if !errors.Is(err, estimate.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

func TestTheModelsAnswerIsConfirmedByRuns(t *testing.T) {
	for _, c := range []struct {
		model, border int // what the model says, and the largest batch that fits
		want          int
		runs          []int
	}{
		{10, 10, 10, []int{10, 11}},
		{10, 12, 12, []int{10, 11, 12, 13}},
		{10, 8, 8, []int{10, 9, 8, 9}},
		{640, 625, 625, []int{640, 630, 621, 622, 623, 624, 625, 626}},
		{1, 0, 0, []int{1}},
		{0, 5, 0, nil},
	} {
		var runs []int
		got, err := confirm(c.model, func(n int) (bool, error) {
			runs = append(runs, n)
			return n <= c.border, nil
		})
		if err != nil || got != c.want || !slices.Equal(runs, c.runs) {
			t.Errorf("model %d, border %d: %d after %v, want %d after %v (%v)", c.model, c.border, got, runs,
				c.want, c.runs, err)
		}
	}
	failed := errors.New("the script failed")
	if _, err := confirm(3, func(int) (bool, error) { return false, failed }); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
}

func TestSizesMatchPlaceholders(t *testing.T) {
	for _, c := range []struct {
		command            string
		batches, sequences []int
		maxBatch           bool
		want               string // the commands, or what the error says
	}{
		{"train", nil, nil, false, "train"},
		{"train --batch {batch}", []int{8, 16}, nil, false, "train --batch 8 | train --batch 16"},
		{"train {batch}x{sequence}", []int{1, 2}, []int{3, 4}, false,
			"train 1x3 | train 1x4 | train 2x3 | train 2x4"},
		{"train", []int{8}, nil, true, "train"},
		{"train {batch}", nil, nil, false, "the command has a place for {batch}"},
		{"train {sequence}", nil, nil, false, "the command has a place for {sequence}"},
		{"train", []int{8, 16}, nil, false, "several sizes of --batch"},
		{"train", nil, []int{8}, false, "--sequence needs its place"},
		{"train {batch}", []int{0}, nil, false, "a size of --batch or --sequence is not between 1 and"},
		{"train {sequence}", nil, []int{-1}, false, "a size of --batch or --sequence is not between 1 and"},
		{"train", nil, nil, true, "--max-batch needs --batch"},
		{"train {batch} {sequence}", []int{1}, []int{2, 3}, true, "--max-batch takes one"},
	} {
		s := Sizes{c.batches, c.sequences}
		argv := strings.Fields(c.command)
		var got []string
		if err := s.Check(argv, c.maxBatch); err != nil {
			got = append(got, err.Error())
		} else {
			for _, x := range s.All() {
				got = append(got, strings.Join(x.command(argv), " "))
			}
		}
		if text := strings.Join(got, " | "); text != c.want &&
			(len(got) != 1 || !strings.HasPrefix(text, c.want) ||
				strings.HasPrefix(c.want, "train")) {
			t.Errorf("%s: %s, want %s", c.command, text, c.want)
		}
	}
}

func TestReportSaysWhatFitsAndWhatIsLeftOut(t *testing.T) {
	x := &Training{Budget: 46 << 20, Outside: 1 << 20,
		Hardware: plan.Hardware{Name: "A100", BytesPerSecond: 2e12}}
	small := estimated(t, x, Size{Batch: 8, Sequence: 64}, twoSteps)
	small.Result.MadeUp = []estimate.Answer{{Op: "item", Count: 2}, {Op: "tolist", Count: 1}}
	small.Result.Notes = []string{"a stream was made"}
	large := estimated(t, x, Size{Batch: 16, Sequence: 64}, "+ w 64m cat=parameter\nempty")
	large.Result.Notes = small.Result.Notes
	r := Report{Training: x, Estimates: []*Estimate{small, large}, Largest: &LargestBatch{Batch: 9}}
	var b strings.Builder
	if err := r.WriteText(&b, Look{}); err != nil {
		t.Fatal(err)
	}
	const want = `
~ fits in 46.0 MiB with batch 8, sequence 64: it needs 61.0 MiB of 46.0 MiB
  but only because PyTorch gives cached memory back to the driver within steps,
  which costs time
  peak allocated               32.0 MiB  in step 2
    activation                 24.0 MiB
    parameter                  8.00 MiB
  reserved                     60.0 MiB  by PyTorch's allocator, emulated
    above the peak             28.0 MiB  cached or fragmented
  outside of tensors           1.00 MiB  assumed: CUDA, libraries (--outside)
  step 2                       ~3.00 µs  from A100's figures

~ does not fit in 46.0 MiB with batch 16, sequence 64
  because it needs 65.0 MiB of 46.0 MiB
  peak allocated               64.0 MiB  before the first step
    parameter                  64.0 MiB
  reserved                     64.0 MiB  by PyTorch's allocator, emulated
  outside of tensors           1.00 MiB  assumed: CUDA, libraries (--outside)

~ largest batch that fits: 9 (run at that size)

note: values that gmemtop made up for the script: 2 for item, 1 for tolist
note: step 2 was the last: what comes later, such as an evaluation, is not in it
note: a stream was made
note: the script ended before its first step: the peak covers everything it did,
      and says nothing of a step
note: memory that kernels take inside an op, such as workspaces of cuDNN, is
      only partly in it
`
	if got := b.String(); got != strings.TrimPrefix(want, "\n") {
		t.Errorf("%s", got)
	}
	if r.Fits() {
		t.Error("the second size fits")
	}
	b.Reset()
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var j reportJSON
	if err := json.Unmarshal([]byte(b.String()), &j); err != nil {
		t.Fatal(err)
	}
	if len(j.Results) != 2 || !j.Results[0].Fits || j.Results[0].Reserved != 60<<20 ||
		j.Results[0].ByCategory[0] != (categoryJSON{"activation", 24 << 20, 24 << 20}) || j.Results[1].Fits ||
		*j.MaxBatch != 9 || j.Inferred || len(j.Notes) != 5 {
		t.Errorf("%s", b.String())
	}
}

// The emulated allocator uses the environment's settings, as the command's torch would.
func TestTheEmulatedAllocatorHeedsTheEnvironment(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		environment string
		reserved    int64
	}{
		{"", 60 * mib},
		{"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", 40 * mib},
		{"PYTORCH_ALLOC_CONF=expandable_segments:True", 60 * mib}, // torch 2.9 does not read it
	} {
		x := &Training{Budget: 100 * mib, Options: estimate.Options{Env: []string{c.environment}}}
		if e := estimated(t, x, Size{}, twoSteps); e.Reserved != c.reserved {
			t.Errorf("%q: %d MiB reserved, want %d", c.environment, e.Reserved/mib, c.reserved/mib)
		}
	}
	x := &Training{Options: estimate.Options{Env: []string{"PYTORCH_CUDA_ALLOC_CONF=nonsense"}}}
	r := &estimate.Result{Torch: "2.9.0"}
	if _, err := x.settings(r); err == nil || !strings.Contains(err.Error(), "PYTORCH_CUDA_ALLOC_CONF") {
		t.Errorf("nonsense: %v", err)
	}
}

// A script that trains nothing fits if it came to its end, and no step is mentioned.
func TestAScriptThatTrainsNothingFits(t *testing.T) {
	x := &Training{Budget: 100 << 20, Hardware: plan.Hardware{Name: "H100", MemoryBytes: 100 << 20}}
	e := estimated(t, x, Size{}, "+ w 8m cat=parameter\nempty")
	e.Result.Whole, e.Result.Steps = true, 0
	r := Report{Training: x, Estimates: []*Estimate{e}}
	var b strings.Builder
	if err := r.WriteText(&b, Look{}); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); !r.Fits() || r.Unseen() || !strings.HasPrefix(s, "~ fits on H100: it needs ") ||
		!strings.Contains(s, "note: the script trains nothing: it was run to its end\n") ||
		strings.Contains(s, "step") {
		t.Errorf("fits %v, unseen %v:\n%s", r.Fits(), r.Unseen(), s)
	}
	died := &estimate.Process{Whole: true, Died: true, OutOfMemory: []estimate.OutOfMemory{{Request: 1 << 20,
		Line: "/a/generate.py:7", Step: 1}}}
	if got := fullOf(died, timeline.IEC); got != "out of memory, asking for 1.00 MiB at generate.py:7" {
		t.Errorf("%q", got)
	}
}

// If the script empties the cache, less is reserved: b does not find a's segment, only its own exists.
func TestACacheThatIsGivenBackIsNotReserved(t *testing.T) {
	const mib = 1 << 20
	script := "mark iteration 1000 9000 step0\nat 1000\n+ a 30m\n- a\n+ b 50m\n- b\nempty\n"
	for emptied, want := range map[int64]int64{0: 80 * mib, 1: 50 * mib} {
		x := Training{Budget: 100 * mib, Hardware: plan.Hardware{Name: "H100"}}
		e := estimated(t, &x, Size{}, script)
		e.Result.Emptied = []int64{emptied}
		if err := x.reserve(t.Context(), e, allocator.Settings{}); err != nil || e.Reserved != want {
			t.Errorf("emptied after %d: %d reserved (%v), expected %d", emptied, e.Reserved, err, want)
		}
	}
}

// A file holds described steps if there are some; otherwise the note says why not.
func TestWhatAFileHolds(t *testing.T) {
	model, history, steps := &traces.Trace{}, &traces.Trace{}, &traces.Trace{}
	for _, c := range []struct {
		p    *estimate.Process
		want *traces.Trace
		note string
	}{
		{nil, model, ""},
		{&estimate.Process{Trace: history, Described: steps}, steps, ""},
		{&estimate.Process{Trace: history, Died: true}, history, "it ran out of memory"},
		{&estimate.Process{Trace: history, Undescribed: "a reason"}, history, "(a reason)"},
	} {
		x := &Estimate{Result: &estimate.Result{Trace: model}, Process: c.p}
		got, note := x.Recording()
		if got != c.want || !strings.Contains(note, c.note) || (note == "") != (c.note == "") {
			t.Errorf("%+v: the right trace %v, note %q", c.p, got == c.want, note)
		}
	}
}

func TestAnOutOfMemoryWithoutARequestIsReported(t *testing.T) {
	p := &estimate.Process{Steps: 2, Died: true}
	if got := fullOf(p, timeline.IEC); got != "out of memory in step 3" {
		t.Errorf("%q", got)
	}
}

// Answers that may make the estimate wrong come first, since only the first few are listed.
func TestDoubtfulAnswersAreListed(t *testing.T) {
	p := &estimate.Process{}
	for range mostAnswers {
		p.Answers = append(p.Answers, estimate.RealAnswer{Op: "item", Line: "/a/train.py:7", Answer: "1.0"})
	}
	p.Answers = append(p.Answers, estimate.RealAnswer{Op: "unique", Line: "/a/loss.py:9",
		Answer: "as many elements as there can be, so the estimate may be too high", Sized: true,
		Doubt: estimate.TooHigh})
	var notes []string
	realNotes(&Estimate{Process: p}, func(note string) { notes = append(notes, note) })
	for i, want := range []string{"loss.py:9 asks for elements by their values (unique): it got as many " +
		"elements as there can be, so the estimate may be too high",
		"train.py:7 reads a value from the GPU (item): the answer was 1.0"} {
		if notes[i] != want {
			t.Errorf("note %d is %q", i, notes[i])
		}
	}
}

func TestPlansCanBeMadeForEveryCardOfAnEstimate(t *testing.T) {
	for _, c := range standin.Cards() {
		for _, name := range []string{c.Name, strings.TrimPrefix(c.Name, "NVIDIA ")} {
			h, err := hardware.ByName(name)
			if err != nil {
				t.Error(err)
			} else if got, ok := cardOf(&h); !ok || got.Model != c.Model {
				t.Errorf("%s is the preset %s, which is the card %q", name, h.Name, got.Model)
			}
		}
	}
}

// A name means the same card for both allocators, and an ambiguous one says which is used.
func TestANameMeansTheSameCardForBothAllocators(t *testing.T) {
	for _, c := range []struct{ name, preset, card, variants string }{
		{"a100", "A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB",
			`A100-SXM4-40GB is used, the smallest of those that "a100" may mean: A100-SXM4-40GB, ` +
				"A100-SXM4-80GB"},
		{"a100-80", "A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", ""},
		{"V100-SXM2-32GB", "V100-SXM2-32GB", "Tesla V100-SXM2-32GB", ""},
		{"h100", "H100-SXM5-80GB", "NVIDIA H100 80GB HBM3", ""},
		{"t4", "T4", "Tesla T4", ""},
		{"4090", "RTX 4090", "NVIDIA GeForce RTX 4090", ""},
		{"rtx-a6000", "RTX A6000", "NVIDIA RTX A6000", ""},
		{"NVIDIA GeForce RTX 5090", "RTX 5090", "NVIDIA GeForce RTX 5090", ""},
		{"v100", "", "", ""}, // PCIe or SXM2: neither takes it
		{"p100", "P100-PCIE-16GB", "", ""},
		{"a10", "A10", "", ""},
		{"nobody's", "", "", ""},
	} {
		h, _ := hardware.ByName(c.name)
		card, err := cardNamed(c.name)
		if h.Name != c.preset || card.Name != c.card || (err == nil) != (c.card != "") {
			t.Errorf("%s is the preset %q and the card %q (%v), expected %q and %q", c.name, h.Name,
				card.Name, err, c.preset, c.card)
		}
		chosen, err := (&planner.Task{Hardware: c.name}).ChosenHardware()
		if known := c.preset != "" || c.card != ""; (err == nil) != known {
			t.Errorf("%s for the emulated allocator: %v", c.name, err)
		}
		if c.card != "" && memory(&chosen) != card.Memory {
			t.Errorf("%s has %d bytes for one allocator, %d for the other", c.name, memory(&chosen),
				card.Memory)
		}
		if d := device(&chosen, 1); c.card != "" && (d.Name != card.Name || d.Capability != card.Capability ||
			d.Processors != card.Processors) {
			t.Errorf("to a script %s is %+v, the card is %+v", c.name, d, card)
		}
		if got := variants(c.name); got != c.variants {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// PyTorch does not split a block if less than 1 MiB would remain, and counts it whole: c takes the 2.5 MiB
// that a left.
func TestThePeakCountsBlocksThatAreNotSplit(t *testing.T) {
	const mib = 1 << 20
	script := "mark iteration 1000 9000 step0\nat 1000\n+ a 2560k cat=activation\n" +
		"+ b 2560k cat=activation\n- a\n+ c 2m cat=activation\n+ d 8m cat=gradient\n- b\n- c\n- d\nempty\n"
	x := Training{Budget: 100 * mib, Hardware: plan.Hardware{Name: "H100"}}
	e := estimated(t, &x, Size{}, script)
	if e.Peak != 13*mib || e.Device.Totals.PeakAllocated != 25*mib/2 {
		t.Errorf("%d allocated at the peak of %d asked for, expected 13 MiB of 12.5", e.Peak,
			e.Device.Totals.PeakAllocated)
	}
	var b strings.Builder
	r := Report{Training: &x, Estimates: []*Estimate{e}}
	if err := r.WriteText(&b, Look{}); err != nil || !strings.Contains(b.String(), "rounding") ||
		!strings.Contains(b.String(), " 512 KiB  blocks that are larger") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

// The search with PyTorch's own allocator narrows in on the border, runs no size twice and ends. What it
// reserves grows by segments, and above the border nothing is known but that it is full.
func TestTheSearchForTheLargestBatchNarrowsIn(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ first, border, most, over int }{
		{16, 100, 100, 101},
		{16, 16, 16, 17},
		{200, 37, 37, 38},
		{8, 0, 0, 1},
		{256, 5000, 4999, 5003},
	} {
		s := search{room: int64(c.border)*9*mib + 500*mib, reserved: map[int]int64{}}
		var runs []int
		for next := c.first; next > 0 && len(runs) <= mostRuns; next = s.next() {
			if slices.Contains(runs, next) {
				t.Errorf("from %d to %d: %d runs twice, after %v", c.first, c.border, next, runs)
			}
			runs = append(runs, next)
			s.keep(&Estimate{Size: Size{Batch: next}, Fits: next <= c.border,
				Reserved: (int64(next)*9*mib + 480*mib) / (20 * mib) * (20 * mib)})
		}
		if most, _ := s.best(); most != c.most || s.over != c.over {
			t.Errorf("from %d to %d: %d fits and %d does not after %v, expected %d and %d", c.first, c.border,
				most, s.over, runs, c.most, c.over)
		}
	}
}

// What lies between the largest batch that fits and the smallest that does not is not claimed.
func TestTheLargestBatchSaysWhatWasNotRun(t *testing.T) {
	x := &Training{Budget: 100 << 20, Real: &Real{}}
	for over, want := range map[int]string{
		12: "largest batch that fits: 9 (run at that size; 12 does not fit, those between\nwere not run)\n",
		10: "largest batch that fits: 9 (run at that size; 10 does not fit)\n",
	} {
		r := Report{Training: x, Estimates: []*Estimate{estimated(t, x, Size{}, twoSteps)},
			Largest: &LargestBatch{Batch: 9, Over: over}}
		var b strings.Builder
		if err := r.WriteText(&b, Look{}); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%v: no %q in\n%s", err, want, b.String())
		}
	}
}

// Only reports that explain an out-of-memory search for its cause.
func TestABriefReportIsNotExplained(t *testing.T) {
	for _, l := range []Look{{}, {Brief: true}} {
		x := estimated(t, &Training{Budget: 100 << 20}, Size{}, twoSteps)
		x.Process = &estimate.Process{Died: true}
		r := Report{Training: &Training{}, Estimates: []*Estimate{x}}
		if err := r.Explain(t.Context(), l); err != nil || (x.Why == "") != l.Brief {
			t.Errorf("%+v: %q, %v", l, x.Why, err)
		}
	}
}
