package fit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/timeline"
)

// A card on which the script ended before its first step is never said to fit, whatever it allocated.
func TestNothingFitsWithoutAStep(t *testing.T) {
	rowOf := func(steps int, died bool) row { return row{Name: "Tesla T4", Report: cardReport(steps, died)} }
	for _, c := range []struct {
		row          row
		fits, unseen bool
		says, never  string
	}{
		{rowOf(0, false), false, true, "there is no telling whether one fits", "that fits: "},
		{rowOf(3, false), true, false, "the smallest card that fits: Tesla T4", "no step was seen"},
		{rowOf(0, true), false, false, "it fits on none of these cards", "no step was seen"},
	} {
		all := Table{rows: []row{c.row}}
		var b strings.Builder
		if err := all.writeCards(&b, Look{}); err != nil {
			t.Fatal(err)
		}
		if all.Fits() != c.fits || all.Unseen() != c.unseen || !strings.Contains(b.String(), c.says) ||
			strings.Contains(b.String(), c.never) {
			t.Errorf("fits %v, unseen %v:\n%s", all.Fits(), all.Unseen(), b.String())
		}
	}
}

// Settings are listed in the order in which they were given, and the one that reserves least is named; with
// the emulated allocator too, which tells no line of an out-of-memory.
func TestSettingsSideBySide(t *testing.T) {
	rowOf := func(name string, reserved int64, fits bool, p *estimate.Process) row {
		return row{Name: name, Report: &Report{Training: &Training{Notes: []string{"once"}},
			Estimates: []*Estimate{{Result: &estimate.Result{Steps: 3}, Peak: 3 << 20, Reserved: reserved,
				Fits: fits, Process: p}}}}
	}
	retried := &estimate.Process{Steps: 3, Books: []estimate.Peaks{{Retries: 2}}}
	all := Table{rows: []row{rowOf("default", 9<<20, true, retried),
		rowOf("expandable_segments:True", 4<<20, true, nil),
		rowOf("max_split_size_mb:20", 2<<20, false, nil)}}
	var b strings.Builder
	if err := all.writeSettings(&b, Look{}); err != nil {
		t.Fatal(err)
	}
	want := `expandable_segments:True reserves least

settings                  fits  allocated   reserved
default                   yes    3.00 MiB   9.00 MiB  retries: 2
expandable_segments:True  yes    3.00 MiB   4.00 MiB
max_split_size_mb:20      no     3.00 MiB   2.00 MiB

note: retries: how often PyTorch gave its cache back to the driver to meet a
      request, which costs time
note: once
`
	if got, _, _ := strings.Cut(b.String(), "note: only"); !strings.HasPrefix(got, want) || !all.Fits() {
		t.Errorf("fits %v:\n%s", all.Fits(), b.String())
	}
}

// As few cards are run as it takes to find the smallest that fits, even if what runs take misleads; cards
// that the torch has no kernels for say nothing about others.
func TestTheSmallestCardIsFoundInFewRuns(t *testing.T) {
	const cards = 16
	without := map[int]bool{1: true, 8: true}
	for smallest := range cards + 1 {
		var all Table
		for i := range cards {
			all.rows = append(all.rows, row{Name: fmt.Sprint("card ", i), Memory: int64(1+i) << 30})
		}
		runs := 0
		err := all.find(func(i int) (*Report, error) {
			runs++
			if without[i] {
				return nil, fmt.Errorf("run: %w", &estimate.NoKernels{})
			}
			return cardReport(3, i < smallest), nil // 1 MiB, whatever card it needs
		})
		want := smallest
		for without[want] {
			want++
		}
		answer := "the smallest card that fits: " + fmt.Sprint("card ", want, "\n")
		if smallest == cards {
			answer = "it fits on none of these cards\n"
		}
		var b strings.Builder
		if err := errors.Join(err, all.writeCards(&b, Look{})); err != nil || runs > 6 ||
			!strings.HasPrefix(b.String(), answer) {
			t.Errorf("%d runs, %v: no %q in\n%s", runs, err, answer, b.String())
		}
		for i, r := range all.rows {
			because := "has more memory"
			if i > want {
				because = "has less memory"
			}
			if said := all.says(i, timeline.IEC); r.Report == nil && r.Why == nil &&
				!strings.HasSuffix(said, because) {
				t.Errorf("with %d as the smallest, row %d says %q", want, i, said)
			}
		}
	}
	none := Table{rows: make([]row, 3)}
	if err := none.find(func(int) (*Report, error) { return nil, &estimate.NoKernels{} }); err == nil {
		t.Error("no card has kernels, and that is no error")
	}
}

// A card without flash attention says nothing about newer ones with less memory: for every size of the
// training, the smallest card that fits is found, however much more it takes on the older ones.
func TestAnOlderCardSaysNothingAboutNewerOnes(t *testing.T) {
	of := func(name string, memory int64, generation int) row {
		return row{Name: name, Memory: memory, Capability: [2]int{generation, 0}}
	}
	cards := []row{of("T4", 15, 7), of("L4", 22, 8), of("3090", 24, 8), of("5090", 31, 12), of("V100", 32, 7),
		of("A100", 40, 8), of("RTX 8000", 48, 7), of("H100", 80, 9)}
	for needs := range int64(82) {
		fits := func(r row) bool { return r.Memory >= needs && (r.Capability[0] > 7 || r.Memory >= 2*needs) }
		all := Table{rows: slices.Clone(cards)}
		err := all.find(func(i int) (*Report, error) { return cardReport(3, !fits(cards[i])), nil })
		want := "it fits on none of these cards\n"
		if smallest := slices.IndexFunc(cards, fits); smallest >= 0 {
			want = "the smallest card that fits: " + cards[smallest].Name + "\n"
		}
		var b strings.Builder
		err = errors.Join(err, all.writeCards(&b, Look{}))
		if err != nil || !strings.HasPrefix(b.String(), want) {
			t.Errorf("with %d needed, %v: no %q in\n%s", needs, err, want, b.String())
		}
	}
}

// Cards that are not run because no step was seen on a larger one do not count as too small.
func TestACardWithoutAStepIsNotTooSmall(t *testing.T) {
	all := Table{rows: []row{{Name: "T4"}, {Name: "L4"}, {Name: "A100"}}}
	if err := all.find(func(i int) (*Report, error) { return cardReport(0, false), nil }); err != nil {
		t.Fatal(err)
	}
	const want = "not run: no step was seen on the L4, which has more memory"
	if got := all.says(0, timeline.IEC); got != want || !all.Unseen() {
		t.Errorf("the smallest card says %q, not %q; unseen %v", got, want, all.Unseen())
	}
}

// One setting that cannot be estimated leaves the others their rows; only if none can be is that an error.
// Any other error is.
func TestASettingThatCannotBeEstimatedHasARow(t *testing.T) {
	unsupported, failed := fmt.Errorf("%w: no such backend", estimate.ErrUnsupported), errors.New("failed")
	for _, c := range []struct {
		errs []error
		want error
	}{
		{[]error{unsupported, nil}, nil},
		{[]error{nil, unsupported}, nil},
		{[]error{unsupported, unsupported}, unsupported},
		{[]error{nil, failed}, failed},
	} {
		all := Table{rows: []row{{Name: "default"}, {Name: "backend:x"}}}
		err := all.each(func(i int) (*Report, error) {
			if c.errs[i] != nil {
				return nil, c.errs[i]
			}
			return cardReport(3, false), nil
		})
		if err != c.want {
			t.Errorf("%v: %v", c.errs, err)
		}
		for i := range all.rows {
			said := all.says(i, timeline.IEC)
			if err == nil && c.errs[i] != nil && said != unsupported.Error() {
				t.Errorf("%v: row %d says %q", c.errs, i, said)
			}
		}
	}
}

// A run on a card with enough memory tells which card to try next: the smallest that could hold what was
// allocated. On cards with less room than the training would reserve, the allocator gives its cache back.
func TestARunThatFitsTellsWhichCardIsNext(t *testing.T) {
	const outside = 600 << 20
	cards := slices.SortedFunc(slices.Values(standin.Cards()), func(a, b standin.Card) int {
		return cmp.Compare(a.Memory, b.Memory)
	})
	for _, c := range []struct {
		allocated, reserved float64 // GiB
		order               string
	}{
		{0.1, 0.1, "rtx5090 rtx3060"},
		{20.9, 23.6, "rtx5090 rtx3090 a10g l4 t4 rtx3060"},
		{23.05, 23.1, "rtx5090 rtx3090 rtx6000 rtx4090 a10g"},
		{23.2, 28, "rtx5090 rtx3090"},
		{30.5, 38, "rtx5090 rtx3090"},
		{38, 39, "rtx5090 h100 a100-40"},
		{39.3, 49.9, "rtx5090 h100 a6000 l40s a100-40"},
		{46.95, 49.9, "rtx5090 h100 a6000"},
		{150, 160, "rtx5090 h100 h200 b200"},
		{500, 500, "rtx5090 h100 h200 b200"},
	} {
		all, order := Table{outside: outside}, []string(nil)
		for _, c := range cards {
			all.rows = append(all.rows, row{Name: c.Name, Memory: c.Memory, Capability: c.Capability})
		}
		err := all.find(func(i int) (*Report, error) {
			order = append(order, cards[i].Model)
			room := float64(cards[i].Memory-outside) / (1 << 30)
			x := cardReport(3, c.allocated > room)
			one := x.Estimates[0]
			one.Peak = int64(min(c.allocated, room) * (1 << 30))
			one.Reserved = int64(min(c.reserved, room) * (1 << 30))
			one.Process.Oldest = [2]int{7, 5}
			return x, nil
		})
		if got := strings.Join(order, " "); err != nil || got != c.order {
			t.Errorf("%v GiB allocated, %v reserved: %v, tried %s, expected %s", c.allocated, c.reserved, err,
				got, c.order)
		}
		for i, r := range all.rows {
			none := errors.As(r.Why, new(*estimate.NoKernels))
			if cards[i].Capability == [2]int{7, 0} && (r.Turn > 0 || !none) {
				t.Errorf("%s: turn %d, %v", r.Name, r.Turn, r.Why)
			}
		}
	}
}

// The table of cards as JSON: what was not run, or not found out, is null.
func TestTheTableOfCardsAsJSON(t *testing.T) {
	all := Table{outside: 7, rows: []row{{Name: "T4", Memory: 5}, {Name: "L4", Memory: 6},
		{Name: "A100", Memory: 9}}}
	err := all.find(func(i int) (*Report, error) {
		r := cardReport(3, i == 0)
		p := r.Estimates[0].Process
		p.OutOfMemory = []estimate.OutOfMemory{{Request: 1 << 20, Step: 2, Line: "/a/b.py:3"}}
		return r, nil
	})
	var b strings.Builder
	if err := errors.Join(err, all.WriteJSON(&b, timeline.IEC)); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Smallest string `json:"smallest"`
		Outside  int64  `json:"outside_bytes"`
		Cards    []struct {
			Name     string `json:"name"`
			Memory   int64  `json:"memory_bytes"`
			Fits     *bool  `json:"fits"`
			Turn     *int   `json:"turn"`
			Took     *int64 `json:"run_time_ns"`
			Reserved *int64 `json:"reserved_bytes"`
			Why      string `json:"why"`
		} `json:"cards"`
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Smallest != "L4" || got.Outside != 7 || len(got.Cards) != 3 {
		t.Fatalf("%s", b.String())
	}
	t4, l4, a100 := got.Cards[0], got.Cards[1], got.Cards[2]
	if t4.Fits == nil || *t4.Fits || t4.Turn == nil || *t4.Turn != 2 || t4.Took == nil ||
		t4.Why != "out of memory in step 2, asking for 1.00 MiB at b.py:3" {
		t.Errorf("%s", b.String())
	}
	if l4.Fits == nil || !*l4.Fits || *l4.Turn != 1 || *l4.Reserved != 1<<20 || l4.Why != "" {
		t.Errorf("%s", b.String())
	}
	if a100.Fits != nil || a100.Turn != nil || a100.Took != nil || a100.Reserved != nil ||
		a100.Why != "not run: it fits on the L4, which has less memory" {
		t.Errorf("%s", b.String())
	}
}

// cardReport is the report of a run on a card.
func cardReport(steps int, died bool) *Report {
	p := &estimate.Process{Steps: steps, Died: died, Books: []estimate.Peaks{{Reserved: 1 << 20}}}
	x := &Estimate{Result: &estimate.Result{Steps: steps}, Process: p, Fits: !died, Reserved: 1 << 20}
	return &Report{Training: &Training{Real: &Real{}}, Estimates: []*Estimate{x}}
}

// The table of cards fits 80 columns, whatever its rows say, and its answer is its first line.
func TestTheTableOfCardsFitsATerminal(t *testing.T) {
	rowOf := func(name string, memory int64, p *estimate.Process, why error) row {
		if why != nil {
			return row{Name: name, Memory: memory, Why: why}
		}
		x := &Estimate{Result: &estimate.Result{Steps: 3}, Process: p, Fits: !p.Died, Peak: 22431443456,
			Reserved: 25316818944}
		return row{Name: name, Memory: memory, Report: &Report{Training: &Training{Real: &Real{}},
			Estimates: []*Estimate{x}}}
	}
	full := []estimate.OutOfMemory{{Request: 392 << 20, Step: 1, Line: "/a/resnet.py:154"}}
	books := []estimate.Peaks{{Retries: 12}}
	all := Table{rows: []row{
		rowOf("Tesla T4", 15<<30, &estimate.Process{Died: true, OutOfMemory: full, Books: books}, nil),
		rowOf("Tesla V100-SXM2-16GB", 16<<30, nil, errors.New("cannot be estimated: torch 2.15.0+cu132 has "+
			"no kernels for a card of compute capability 7.0")),
		rowOf("NVIDIA GeForce RTX 4090", 24<<30, &estimate.Process{Steps: 3, Books: books}, nil),
		{Name: "NVIDIA A100-SXM4-40GB", Memory: 40 << 30}}}
	var b strings.Builder
	if err := all.writeCards(&b, Look{Width: 200}); err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(b.String(), "\n\nnote: ")
	const want = `the smallest card that fits: NVIDIA GeForce RTX 4090

card                       memory  fits  allocated   reserved
Tesla T4                 15.0 GiB  no    out of memory in step 1, asking for 392
                                         MiB at resnet.py:154
Tesla V100-SXM2-16GB     16.0 GiB  ?     cannot be estimated: torch 2.15.0+cu132
                                         has no kernels for a card of compute
                                         capability 7.0
NVIDIA GeForce RTX 4090  24.0 GiB  yes    20.9 GiB   23.6 GiB  retries: 12
NVIDIA A100-SXM4-40GB    40.0 GiB  –     not run: it fits on the NVIDIA GeForce
                                         RTX 4090, which has less memory`
	if text != want {
		t.Errorf("%s", text)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
