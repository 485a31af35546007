package main

import (
	"encoding/json"
	"os"
	"path/filepath"
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
			var said report
			if err := json.Unmarshal([]byte(c.said), &said); err != nil {
				t.Fatal(err)
			}
			s := score{answer: a, saving: c.saving}
			s.compare(said)
			if s.right != c.cause || s.leverRight() != c.lever || s.savingRight() != c.saved {
				t.Errorf("cause %v, lever %v, saving %v", s.right, s.leverRight(), s.savingRight())
			}
		})
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
		if _, err := os.Stat(filepath.Join(filepath.Dir(file), "train.py")); err != nil {
			t.Error(err)
		}
	}
}

// found returns the report of a device with these causes and levers.
func found(causes, levers string) string {
	return `{"found":true,"devices":[{"oom":true,"causes":[` + causes + `],"levers":[` + levers + `]}]}`
}
