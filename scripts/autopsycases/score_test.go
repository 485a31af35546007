package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOneWrongWordLosesAPoint is the law of the judge: each of cause, lever and saving is judged by itself.
func TestOneWrongWordLosesAPoint(t *testing.T) {
	const gib = int64(1) << 30
	a := answer{Cause: []string{"kept_graph"}, Lever: []string{"detach_metric"}}
	for _, c := range []struct {
		name, said          string
		saving              int64
		cause, lever, saved bool
	}{
		{"all right", found(`{"kind":"leak"},{"kind":"kept_graph","main":true}`,
			`{"name":"detach_metric","saves_bytes":1073741824}`), gib, true, true, true},
		{"another main cause", found(`{"kind":"kept_graph"},{"kind":"leak","main":true}`,
			`{"name":"detach_metric","saves_bytes":1073741824}`), gib, false, true, true},
		{"the fourth lever", found(`{"name":"kept_graph","main":true}`,
			`{"name":"a"},{"name":"b"},{"name":"c"},{"name":"detach_metric","saves_bytes":1073741824}`),
			gib, true, false, true},
		{"eleven percent off", found(`{"kind":"kept_graph","main":true}`,
			`{"name":"detach_metric","saves_bytes":1073741824}`), gib * 112 / 100, true, true, false},
		{"an unknown saving", found(`{"kind":"kept_graph","main":true}`,
			`{"name":"detach_metric","saves_bytes":null}`), gib, true, true, false},
		{"nothing found", `{"found":false,"devices":[{}]}`, gib, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := score{answer: a, saving: c.saving}
			s.compare(reportOf(t, c.said))
			if s.right != c.cause || s.leverRight() != c.lever || s.savingRight() != c.saved {
				t.Errorf("cause %v, lever %v, saving %v", s.right, s.leverRight(), s.savingRight())
			}
		})
	}
}

// TestASavingOfAnotherChangeIsLeftOut: a lever may be accepted although --fixed does something else. What it
// was said to save is then compared with nothing, not even where the figures happen to agree.
func TestASavingOfAnotherChangeIsLeftOut(t *testing.T) {
	said := reportOf(t, found(`{"name":"logits","main":true}`,
		`{"name":"chunked_loss","saves_bytes":1073741824}`))
	for _, c := range []struct {
		applied []string
		want    string
	}{
		{nil, "within 10 %: 1 of 1 that are claimed and were measured; 0 more were " +
			"measured and not claimed (0 left out"},
		{[]string{"chunked_loss"}, "within 10 %: 1 of 1 that are claimed and were measured; 0 more were " +
			"measured and not claimed (0 left out"},
		{[]string{"smaller_vocabulary"}, "within 10 %: 0 of 0 that are claimed and were measured; 0 more " +
			"were measured and not claimed (1 left"},
	} {
		a := answer{Cause: []string{"logits"}, Lever: []string{"smaller_vocabulary", "chunked_loss"}}
		a.Applied = c.applied
		s := score{answer: a, saving: 1 << 30}
		s.compare(said)
		if got := tableOf([]score{s}); !s.leverRight() || !strings.Contains(got, c.want) {
			t.Errorf("applied %v: %s, want %q", c.applied, got, c.want)
		}
	}
}

// TestASavingThatIsNotClaimedIsNotCounted: what a lever frees at the failed request is no saving of the run.
func TestASavingThatIsNotClaimedIsNotCounted(t *testing.T) {
	s := score{answer: answer{Cause: []string{"logits"}, Lever: []string{"chunked_loss"}}, saving: 1 << 30}
	s.compare(reportOf(t, found(`{"name":"logits","main":true}`,
		`{"name":"chunked_loss","saves_bytes":null,"frees_bytes":1073741824}`)))
	got := tableOf([]score{s})
	for _, want := range []string{"| none, frees 1.00 |", "Saving within 10 %: 0 of 0 that are claimed"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %q", got, want)
		}
	}
}

// TestASettingThatWasSaidToFinishIsRun: those that were said to finish are claims, whether accepted or not;
// one that only serves the request is none, and neither is a change of the program.
func TestASettingThatWasSaidToFinishIsRun(t *testing.T) {
	s := score{answer: answer{Cause: []string{"leak"}, Lever: []string{"no_grad"}}}
	s.compare(reportOf(t, found(`{"name":"leak","main":true}`,
		`{"name":"no_grad","tried":{"outcome":"finishes"}},`+
			`{"name":"a","simulated":{"conf":"a:1"},"tried":{"outcome":"finishes"}},`+
			`{"name":"b","simulated":{"conf":"b:1"},"tried":{"outcome":"serves_request"}},`+
			`{"name":"c","simulated":{"conf":"c:1"},"fits":true}`)))
	want := []claim{{lever: "a", conf: "a:1"}, {lever: "c", conf: "c:1"}}
	if !slices.Equal(s.settings, want) {
		t.Fatalf("claims %v, want %v", s.settings, want)
	}
	s.settings[0].ran, s.settings[1].ran, s.settings[1].kept = true, true, true
	got := tableOf([]score{s})
	for _, want := range []string{
		"| a |\n", "which was said of 1 of 1", "said to finish: 2, of which 1 did not",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %q", got, want)
		}
	}
}

// TestEveryCaseHasAnAnswer reads all cases: one that fails cites its report, its cause and its fix.
func TestEveryCaseHasAnAnswer(t *testing.T) {
	files, err := filepath.Glob("cases/*/*/answer.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		var a answer
		if err := readJSON(file, &a); err != nil {
			t.Error(err)
			continue
		}
		healthy := filepath.Base(filepath.Dir(filepath.Dir(file))) == "healthy"
		answered := a.Issue != "" && len(a.Cause) > 0 && len(a.Lever) > 0 && a.Fix != ""
		if a.Card == "" || !healthy && !answered {
			t.Errorf("%s lacks its card, report, cause, lever or fix", file)
		}
		for _, name := range a.Applied {
			if !slices.Contains(a.Lever, name) {
				t.Errorf("%s applies %s, which is no accepted lever", file, name)
			}
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(file), "train.py")); err != nil {
			t.Error(err)
		}
	}
}

// found returns the report of a device with these causes and levers.
func found(causes, levers string) string {
	return `{"found":true,"devices":[{"oom":true,"causes":[` + causes + `],"levers":[` + levers + `]}]}`
}

func reportOf(t *testing.T, said string) report {
	t.Helper()
	var r report
	if err := json.Unmarshal([]byte(said), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestASavingIsTakenFromWhatWasAllocatedWhenItFailed(t *testing.T) {
	var failed, fixed result
	for text, into := range map[string]*result{
		`{"message": "Of the allocated memory 1.50 GiB is allocated by PyTorch, and",
		"failed": [{"device": 0, "asked": 536870912}], "devices": [{"peak_allocated": 4294967296}]}`: &failed,
		`{"devices": [{"peak_allocated": 1073741824}]}`: &fixed,
	} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	if n := savingOf(failed, fixed); n != 1<<30 {
		t.Errorf("%d bytes, want %d: the peak was before the failure", n, 1<<30)
	}
	failed.Message = ""
	if n := savingOf(failed, fixed); n != 7<<29 {
		t.Errorf("%d bytes without the message, want %d", n, int64(7)<<29)
	}
}

// TestASavingIsTakenUpToTheStepThatFailed: what the run with the fix needs later, the other never reached.
func TestASavingIsTakenUpToTheStepThatFailed(t *testing.T) {
	fixed := `{"devices": [{"peak_allocated": 900}],
		"steps": {"began": [[100], [300]], "ended": [[200], [400]]}}`
	for failed, want := range map[string]int64{
		`"began": 0, "ended": 0`: 1000 - 100, // before the first step
		`"began": 1, "ended": 0`: 1000 - 200, // in it
		`"began": 1, "ended": 1`: 1000 - 300,
		`"began": 2, "ended": 2`: 1000 - 900, // after the last that the other run has
	} {
		var with, without result
		for text, into := range map[string]*result{
			`{"failed": [{"device": 0, "asked": 400, ` + failed + `}],
			"devices": [{"peak_allocated": 600}]}`: &without,
			fixed: &with,
		} {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				t.Fatal(err)
			}
		}
		if got := savingOf(without, with); got != want {
			t.Errorf("%s: %d bytes, want %d", failed, got, want)
		}
	}
}

// TestCasesToJudgeByAreNotNamed: their counts are those of the table, without its rows.
func TestCasesToJudgeByAreNotNamed(t *testing.T) {
	a := answer{Cause: []string{"leak"}, Lever: []string{"no_grad"}}
	s := score{set: blind, name: "some-case", answer: a}
	s.compare(reportOf(t, found(`{"name":"leak","main":true}`, `{"name":"no_grad"}`)))
	table, counts := tableOf([]score{s}), countsOf([]score{s})
	if strings.Contains(counts, s.name) || !strings.HasPrefix(counts, "- Cause: 1 of 1.") ||
		!strings.HasSuffix(table, "\n"+counts) {
		t.Errorf("counts %q of table %q", counts, table)
	}
}

// TestSavingsOfAPageAreKept: a table made of failing runs alone keeps what the page says of the fixes.
func TestSavingsOfAPageAreKept(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	a := score{set: "develop", name: "a", saving: 3 << 29, answer: answer{Lever: []string{"no_grad"}}}
	b := score{set: "develop", name: "b", answer: answer{Lever: []string{"no_grad"}}}
	text := "x\n<!-- develop -->\n" + tableOf([]score{a, b}) + "<!-- end of develop -->\n"
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := savingsIn(page, "develop")
	if err != nil || len(got) != 1 || got["a"] != 3<<29 {
		t.Errorf("%v, %v", got, err)
	}
	r := runner{failing: true, recordings: t.TempDir(), saved: got}
	if n := r.savingOf("develop", "a", result{}, result{}); n != 3<<29 {
		t.Errorf("a saves %d", n)
	}
}
