package timeline_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// eachScript builds the traces of testdata/analysis_*.txtar.
func eachScript(t *testing.T, f func(t *testing.T, d *timeline.Device)) {
	files, err := filepath.Glob("testdata/analysis_*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range ar.Files {
			if part.Name == "trace" || part.Name == "a" || part.Name == "b" {
				t.Run(filepath.Base(file), func(t *testing.T) {
					f(t, timelinetest.Script(t, string(part.Data)).Main())
				})
			}
		}
	}
}

func TestSentencesHaveSizesInTheUnitsAskedFor(t *testing.T) {
	eachScript(t, func(t *testing.T, d *timeline.Device) {
		a, err := autopsy.Of(context.Background(), d, timeline.SI)
		if err != nil {
			t.Fatal(err)
		}
		said := []string{autopsy.Headline(d, timeline.SI), a.Sentence}
		for _, c := range a.Causes {
			said = append(said, c.Text)
		}
		for _, l := range a.Levers {
			said = append(said, l.Text)
		}
		for i := range steps.Of(d).List {
			said = append(said, steps.Of(d).List[i].Why(timeline.SI))
		}
		for _, s := range said {
			if strings.Contains(s, "iB") {
				t.Errorf("a size in powers of 1024: %q", s)
			}
		}
	})
}

func TestTheLargestHolderOfEverySentenceIsTheFirstRowByCallSite(t *testing.T) {
	eachScript(t, func(t *testing.T, d *timeline.Device) {
		_, holder, ok := strings.Cut(autopsy.Headline(d, timeline.IEC), "Largest holder: ")
		if strings.HasPrefix(holder, "the logits,") { // one name for several call sites, before the first
			_, holder, _ = strings.Cut(holder, ", then ")
		}
		groups := sites.Breakdown(d, d.Totals.PeakAt, sites.BySite)
		if !ok || len(groups) == 0 || sites.Name(d, groups[0].Stack) == "" || d.Totals.OOMs > 0 {
			return
		}
		want := groups[0].Name + ", " + timeline.IEC.Bytes(groups[0].Bytes)
		if n := groups[0].Blocks; n > 1 {
			want += " in " + timeline.Counted(n, "block")
		}
		if !strings.HasPrefix(holder, want) {
			t.Errorf("%q does not begin with %q", holder, want)
		}
		a, err := autopsy.Of(context.Background(), d, timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		if !a.Inferred && a.Holders[0] != groups[0] {
			t.Errorf("the autopsy's first holder is %+v, not %+v", a.Holders[0], groups[0])
		}
	})
}

func TestASearchForACallSiteFindsTheBlocksOfItsRow(t *testing.T) {
	eachScript(t, func(t *testing.T, d *timeline.Device) {
		m := d.Totals.PeakAt
		for _, g := range sites.Breakdown(d, m, sites.BySite) {
			if g.Largest == timeline.NoAlloc {
				continue
			}
			found, err := sites.Search(context.Background(), d,
				sites.Query{Live: true, LiveAt: m, BySite: true, Stack: g.Stack})
			if err != nil {
				t.Fatal(err)
			}
			var bytes int64
			for _, id := range found {
				bytes += d.Allocs.Rounded[id]
			}
			if sites.Name(d, g.Stack) != "" && bytes != g.Bytes {
				t.Errorf("%s has %d bytes, the search finds %d", g.Name, g.Bytes, bytes)
			}
		}
	})
}

// What a sentence tells the reader to try is in the list of levers, so that its code is at hand.
func TestEachLeverThatASentenceNamesIsInTheList(t *testing.T) {
	said := 0
	eachScript(t, func(t *testing.T, d *timeline.Device) {
		a, err := autopsy.Of(context.Background(), d, timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range a.Named {
			said++
			if !slices.ContainsFunc(a.Levers, func(l autopsy.Lever) bool { return l.Name == name }) {
				t.Errorf("%q names %s, and no lever is called so", a.Sentence, name)
			}
		}
		for _, l := range a.Levers {
			named := slices.Contains(a.Named, l.Name)
			if strings.Contains(a.Sentence, autopsy.LeverWords(l.Name, l.Parts)+", ") && !named {
				t.Errorf("%q speaks of %s, which is not marked", a.Sentence, l.Name)
			}
		}
	})
	if said == 0 {
		t.Error("no sentence names a lever")
	}
}

// A lever that divides the batch takes off the same bytes of the batch in every degree: of B bytes at the
// moment of the failure, B - B/parts. Its code says the same number as its text.
func TestALeverInMorePartsTakesOffThatMuchMore(t *testing.T) {
	divided := 0
	eachScript(t, func(t *testing.T, d *timeline.Device) {
		a, err := autopsy.Of(t.Context(), d, timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		for i := range a.Levers {
			l := &a.Levers[i]
			if l.Divide == nil || !a.OOM {
				continue
			}
			of := map[int64]autopsy.Lever{l.Parts: *l}
			for _, parts := range autopsy.MoreParts() {
				m, ok, err := l.Divide(t.Context(), parts)
				if err != nil || !ok {
					t.Fatal(parts, ok, err)
				}
				of[parts] = m
			}
			batch := int64(0)
			for _, id := range d.LiveAt(a.At, nil) {
				if c := d.Allocs.Category[id]; c == timeline.Activation || c == timeline.Input {
					batch += d.Allocs.Rounded[id]
				}
			}
			for parts, m := range of {
				divided++
				want := batch - batch/parts
				if off := m.Frees - want; off < -int64(len(m.Effect.Changes)) || off > 0 {
					t.Errorf("%s in %d parts frees %d of %d, want %d", m.Name, parts, m.Frees, batch, want)
				}
				code := fmt.Sprintf("//= %d", parts)
				if m.Command != "" && !strings.Contains(m.Command, code) {
					t.Errorf("%s in %d parts: %s", m.Name, parts, m.Command)
				}
				word := autopsy.Fraction(parts)
				if text := strings.Replace(m.Text, "halve ", "half ", 1); !strings.Contains(text, word) {
					t.Errorf("%s in %d parts does not say %s: %s", m.Name, parts, word, m.Text)
				}
			}
		}
	})
	if divided == 0 {
		t.Error("no lever divides anything")
	}
}
