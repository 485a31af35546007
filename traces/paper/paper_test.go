package paper_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/internal/tracetext"
	"github.com/gmemtop/gmemtop/traces/paper"
)

func TestCases(t *testing.T) { tracetext.RunCases(t, paper.Read) }

func TestSniff(t *testing.T) {
	for head, want := range map[string]bool{
		"Malloc 0x1 2 3\n":        true,
		"17 Free 0x1 2 3\n":       true,
		"1e8\n1e8\n2e8\n-1\n":     true,
		"1\n2\nx\n4\n":            false,
		"Mallocs 0x1 2 3\n":       false,
		"id,lower,upper,size\n":   false,
		"node1 -- Input -- x=1\n": false,
		"":                        false,
	} {
		if got := paper.Sniff([]byte(head)); got != want {
			t.Errorf("Sniff(%q) = %v", head, got)
		}
	}
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
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var in io.Reader = f
		if strings.HasSuffix(file, ".gz") {
			if in, err = gzip.NewReader(f); err != nil {
				t.Fatal(err)
			}
		}
		tr, err := paper.Read(t.Context(), in, nil)
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
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(ar.Files[0].Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		paper.Sniff(data)
		tr, err := paper.Read(t.Context(), bytes.NewReader(data), nil)
		if tr == nil && err == nil {
			t.Fatal("neither a trace nor an error")
		}
		if tr == nil {
			return
		}
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
