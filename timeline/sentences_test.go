package timeline_test

import (
	"context"
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
			if strings.Contains(a.Sentence, autopsy.LeverWords(l.Name)+", ") && !named {
				t.Errorf("%q speaks of %s, which is not marked", a.Sentence, l.Name)
			}
		}
	})
	if said == 0 {
		t.Error("no sentence names a lever")
	}
}
