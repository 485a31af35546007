package main

import (
	"go/parser"
	"go/token"
	"os"
	"slices"
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

// A person who reads the page from top to bottom misses nothing that a command, a report or a view says.
func TestThePageHasWhatReportsAndCommandsSay(t *testing.T) {
	page, err := write("../../capture/say")
	if err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{"lambda p:", "- import ", "@media", "(?:"} {
		if strings.Contains(page, not) {
			t.Errorf("%q is nothing that a person is told", not)
		}
	}
	for _, want := range []string{
		"# Messages of the screen", "\n- Stop watching the job?\n",
		"# Messages of reports",
		"\n- Call optimizer.zero_grad(set_to_none=True) right after the optimizer's step.\n",
		"# Messages about plans", "\n- no plan was carried out\n",
		"# Messages of commands", "\n- Why it ran out of memory, who held it, what would help\n",
		"# Messages about watching a job",
		"\n- it has ended and waits to be reaped by its parent (a zombie)\n",
	} {
		at := strings.Index(page, want)
		if at < 0 {
			t.Errorf("%q is missing, or out of its chapter", want)
			continue
		}
		page = page[at:]
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

func TestTextsOfTheScreenAreFoundHoweverTheyAreWritten(t *testing.T) {
	const source = `package p

import "a/path with four words"

func f() {
	say("no step is " + "captured yet")
	say("at most " + x + " are alive")
	say(fmt.Sprintf("it takes %-8s, %.2f %% more than now", a, b))
	say("too few words", "<rect with many words in it>")
	say("50% of what it holds, torch.cuda.memory._dump_snapshot(a)", "torch.a.long.name.of_code()")
}

type s struct {
	F int ` + "`json:\"a_tag_of_four words,omitempty\"`" + `
}`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"no step is captured yet", "at most … are alive", "it takes …, … % more than now",
		"50% of what it holds, torch.cuda.memory._dump_snapshot(a)"}
	if got := sentencesOf(f); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
