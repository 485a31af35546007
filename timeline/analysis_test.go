package timeline_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// Cases of analysis: testdata/analysis_*.txtar hold a script (see timelinetest.Script) under "trace", or two
// under "a" and "b" for differences, followed by the expected tables, each named after its question. Files of
// the recorded program come between them, as "code" with their path.
func TestAnalysisTables(t *testing.T) {
	files, err := filepath.Glob("testdata/analysis_*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(strings.TrimPrefix(name, "analysis_"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			traces, code := map[string]*timeline.Device{}, program{}
			for i := range ar.Files {
				f := &ar.Files[i]
				if f.Name == "trace" || f.Name == "a" || f.Name == "b" {
					traces[f.Name] = timelinetest.Script(t, string(f.Data)).Main()
					traces[f.Name].Timeline().Trace.Code = code
					continue
				}
				if path, ok := strings.CutPrefix(f.Name, "code "); ok {
					code[path] = string(f.Data)
					continue
				}
				got := table(t, f.Name, traces)
				if *update {
					f.Data = []byte(got)
				} else if want := string(f.Data); got != want {
					t.Errorf("%s:\n%s\nwant:\n%s", f.Name, got, want)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(ar), 0o666); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// program holds the text of a recorded program's files by their path.
type program map[string]string

func (p program) File(path string) (string, bool) {
	text, ok := p[path]
	return text, ok
}

// table answers one question as text.
func table(t *testing.T, question string, traces map[string]*timeline.Device) string {
	var w strings.Builder
	d := traces["trace"]
	ctx := context.Background()
	switch question {
	case "headline":
		fmt.Fprintln(&w, autopsy.Headline(d, timeline.IEC))
	case "iterations":
		it := steps.Of(d)
		fmt.Fprintf(&w, "source %v, steady from %d, differs at %d\n", it.Source, it.Steady, it.Differs)
		for _, x := range it.List {
			fmt.Fprintf(&w,
				"%d %s [%d, %d) %s to %s: peak %s at %d, churn %s in %d blocks, growth %s, new sites "+
					"%d", x.Index, x.Name, x.First, x.End,
				timeline.Duration(x.Start), timeline.Duration(x.Finish), timeline.IEC.Bytes(x.PeakAllocated),
				x.PeakAt, timeline.IEC.Bytes(x.Churn), x.Blocks, timeline.IEC.Delta(x.Growth), x.NewSites)
			if x.Odd {
				fmt.Fprint(&w, ", odd")
			}
			if x.Why(timeline.IEC) != "" {
				fmt.Fprintf(&w, " (%s)", x.Why(timeline.IEC))
			}
			fmt.Fprintln(&w)
		}
		tr := it.Trend
		fmt.Fprintf(&w, "trend %.0f [%.0f, %.0f] bytes an iteration over %d, leaking %v\n", tr.Slope, tr.Low,
			tr.High, tr.Points, tr.Leaking)
	case "leaks":
		for _, l := range steps.Leaks(d) {
			fmt.Fprintf(&w, "%s: %.0f [%.0f, %.0f] bytes an iteration, %s in %d blocks\n",
				sites.Name(d, l.Stack),
				l.Slope, l.Low, l.High, timeline.IEC.Bytes(l.Bytes), l.Blocks)
		}
	case "phases":
		for _, p := range steps.Phases(d) {
			fmt.Fprintf(&w, "%v events [%d, %d) time [%d, %d) inferred %v\n", p.Phase, p.First, p.Last,
				p.Start, p.End, p.Inferred)
		}
	case "parts":
		for i, p := range steps.Parts(d) {
			fmt.Fprintf(&w, "%d %v events [%d, %d) keeps %s, freed by %d\n", i, p.Phase, p.First, p.End,
				timeline.IEC.Bytes(p.Kept), p.Frees)
		}
	case "autopsy":
		a, err := autopsy.Of(ctx, d, timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&w, "%s\noom %v, inferred %v, at %d, asked %d, free %d\n", a.Sentence, a.OOM, a.Inferred,
			a.At, a.Asked.Or(-1), a.Free.Or(-1))
		for _, c := range a.Causes {
			mark := "cause"
			if c.Main {
				mark = "CAUSE"
			}
			fmt.Fprintf(&w, "%s %s %d: %s\n", mark, c.Kind, c.Bytes.Or(-1), c.Text)
		}
		for _, h := range a.Holders {
			fmt.Fprintf(&w, "holder %s %s in %d\n", sites.Name(d, h.Stack), timeline.IEC.Bytes(h.Bytes),
				h.Blocks)
		}
		for _, l := range a.Levers {
			holds := ""
			if l.Holds {
				holds = " holds"
			}
			if l.Partly {
				holds = " in part"
			}
			fmt.Fprintf(&w, "lever %s saves %d%s %v fits %d: %s\n", l.Name, l.Saves.Or(-1), holds,
				l.Exactness, l.Fits-autopsy.DoesNotFit, l.Text)
		}
	case "diff":
		x, err := runs.Compare(ctx, traces["a"], traces["b"])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&w, x.Sentence(timeline.IEC))
		if n := x.Note(); n != "" {
			fmt.Fprintln(&w, n)
		}
		for _, r := range append(append([]runs.DiffRow{}, x.Categories...), x.Sites...) {
			fmt.Fprintf(&w, "%s: %s in %d, %s in %d: %s\n", r.Name, timeline.IEC.Bytes(r.A), r.BlocksA,
				timeline.IEC.Bytes(r.B), r.BlocksB, r.Cause)
			if a, b := sites.Name(traces["a"], r.StackA), sites.Name(traces["b"], r.StackB); a != b {
				fmt.Fprintf(&w, "\tstack %q, then %q\n", a, b)
			}
		}
		for _, m := range x.Metrics {
			fmt.Fprintf(&w, "metric %s %d %d %s\n", m.Name, m.A, m.B, m.Unit)
		}
	default:
		t.Fatalf("unknown question %q", question)
	}
	return w.String()
}
