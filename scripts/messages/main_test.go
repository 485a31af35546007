package main

import (
	"os"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/say"
)

func TestThePageOfMessagesIsUpToDate(t *testing.T) {
	want, err := write("../../capture/say")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/messages.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/messages.md is out of date: go generate ./scripts/messages")
	}
}

func TestThePageHasEverySentenceOfTheAgent(t *testing.T) {
	page, err := write("../../capture/say")
	if err != nil {
		t.Fatal(err)
	}
	for code, s := range say.AgentSentences() {
		if !strings.Contains(page, "\n- "+strings.ReplaceAll(s, "%s", "…")+"\n") {
			t.Errorf("the agent's %s is missing", code)
		}
	}
}

func TestGapsAreNamedInTheirOrder(t *testing.T) {
	for _, c := range []struct{ text, gaps, want string }{
		{"process %d (%s): attach %[1]d", "a PID, why", "process *a PID* (*why*): attach *a PID*"},
		{"%s, 5 %% of %d", "a, b", "*a*, 5 % of *b*"},
		{"nothing", "", "nothing"},
		{"%s", "", ""}, {"%s", "a, b", ""}, {"%[3]s", "a", ""}, {"%[0]s", "a", ""}, {"", "", ""},
	} {
		var names []string
		if c.gaps != "" {
			names = strings.Split(c.gaps, ", ")
		}
		got, err := fill(c.text, names)
		if err == nil && got != c.want || (err == nil) == (c.want == "") {
			t.Errorf("%q with %q: %q, %v", c.text, c.gaps, got, err)
		}
	}
}
