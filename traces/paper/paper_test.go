package paper_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/internal/tracetext"
	"github.com/gmemtop/gmemtop/traces/paper"
)

func TestCases(t *testing.T) { tracetext.RunCases(t, paper.Read) }

func TestSniff(t *testing.T) {
	tracetext.RunSniff(t, paper.Sniff, map[string]bool{
		"Malloc 0x1 2 3\n":        true,
		"17 Free 0x1 2 3\n":       true,
		"1e8\n1e8\n2e8\n-1\n":     true,
		"1\n2\nx\n4\n":            false,
		"Mallocs 0x1 2 3\n":       false,
		"id,lower,upper,size\n":   false,
		"node1 -- Input -- x=1\n": false,
		"":                        false,
	})
}

// figure is what a Python script, independent of this reader, counted.
type figure struct {
	events, accesses, older int
	peak, last              int64 // allocated bytes at the peak and at the end
	kind                    traces.Kind
}

// figures are ordered by their number of events; the third begins in the middle of training.
var figures = []figure{
	{events: 998, accesses: 2173, older: 0, peak: 187565804, last: 0, kind: traces.Accesses},
	{events: 3315, accesses: 6456, older: 255, peak: 665434164, last: 287842108, kind: traces.Accesses},
	{events: 3818, accesses: 0, older: 0, peak: 187565804, last: 0, kind: traces.Lifetimes},
	{events: 5742, accesses: 11321, older: 0, peak: 679196724, last: 0, kind: traces.Accesses},
	{events: 7238, accesses: 15171, older: 0, peak: 204803420, last: 0, kind: traces.Accesses},
	{events: 21042, accesses: 0, older: 0, peak: 671823924, last: 0, kind: traces.Lifetimes},
	{events: 26258, accesses: 0, older: 0, peak: 204803420, last: 0, kind: traces.Lifetimes},
}

func TestRealTraces(t *testing.T) {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: the papers' traces")
	}
	files, err := filepath.Glob(filepath.Join(root, "papers", "*"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[figure]bool{}
	curves := 0
	for i, file := range files {
		tr, err := paper.Read(t.Context(), tracetext.Open(t, file), nil)
		if errors.Is(err, traces.ErrUnsupported) {
			curves++
			continue
		}
		if err != nil {
			t.Errorf("trace %d: %v", i, err)
			continue
		}
		found[count(tr)] = true
	}
	for _, want := range figures {
		if !found[want] {
			t.Errorf("no trace has the figures %+v; found %+v", want, found)
		}
	}
	if len(found) != len(figures) || curves != 1 {
		t.Errorf("%d traces and %d curves, want %d and 1", len(found), curves, len(figures))
	}
}

func count(tr *traces.Trace) figure {
	f := figure{events: tr.Events.Len(), accesses: len(tr.Accesses), kind: tr.Kind()}
	for _, l := range tr.Losses {
		if l.Name == "blocks_preexisting" {
			f.older = int(l.Count)
		}
	}
	for i := range tr.Events.Len() {
		e := tr.Events.At(i)
		if e.Action == traces.Alloc {
			f.last += e.Size
		} else {
			f.last -= e.Size
		}
		f.peak = max(f.peak, f.last)
	}
	return f
}

func FuzzRead(f *testing.F) {
	tracetext.Fuzz(f, paper.Sniff, paper.Read, func(t *testing.T, tr *traces.Trace, _ error) {
		live := map[uint64]bool{}
		for i := range tr.Events.Len() {
			e := tr.Events.At(i)
			if e.Action == traces.Alloc && live[e.Addr] {
				t.Fatalf("event %d allocates a live block", i)
			}
			live[e.Addr] = e.Action == traces.Alloc
		}
		for i, a := range tr.Accesses {
			if int(a.Event) > tr.Events.Len() || i > 0 && a.Event < tr.Accesses[i-1].Event {
				t.Fatalf("access %d comes before event %d", i, a.Event)
			}
		}
	})
}
