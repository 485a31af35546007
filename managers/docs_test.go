package managers_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
)

var update = flag.Bool("update", false, "rewrite the table of docs/managers.md")

const (
	page  = "../docs/managers.md"
	begin = "<!-- managers: written by go test ./managers -update -->\n"
	end   = "<!-- end of managers -->\n"
)

func TestTheDocumentedManagersAreThoseThatThereAre(t *testing.T) {
	var b strings.Builder
	family := plan.Family(255)
	for _, m := range append(managers.OnDevices(), managers.All()...) {
		i := m.Info()
		if i.Family != family {
			family = i.Family
			fmt.Fprintf(&b, "\n**%s**\n\n| name | after | needs | what it does | our choices where the "+
				"source says nothing |\n|---|---|---|---|---|\n", family)
		}
		after := i.After
		if i.Ours {
			after = "ours"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", i.Name, after, i.Needs, i.Summary, i.Reading)
	}
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(old), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	now := head + begin + b.String() + "\n" + end + tail
	if *update {
		if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if now != string(old) {
		t.Errorf("%s is stale: run go test ./managers -update", page)
	}
}

func TestEveryManagerSaysWhatItIs(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range managers.All() {
		i := m.Info()
		switch {
		case i.Name == "" || seen[i.Name]:
			t.Errorf("%q is no name of its own", i.Name)
		case i.Summary == "" || !strings.HasSuffix(i.Summary, "."):
			t.Errorf("%s has no sentence: %q", i.Name, i.Summary)
		case i.After == "" && !i.Ours && i.Family != plan.Baseline:
			t.Errorf("%s does not say whose method it is", i.Name)
		}
		seen[i.Name] = true
	}
}

func TestManagersAreSelectedByNamePrefixAndAll(t *testing.T) {
	for _, c := range []struct {
		list string
		want int // -1 for an error
	}{{"all", len(managers.All())}, {"caching", 1}, {"caching, exact", 2}, {"vdnn-*", 3}, {"EXACT", 1},
		{"nobody", -1}, {"", len(managers.Default())}} {
		got, err := managers.Select(c.list)
		if (err != nil) != (c.want < 0) || c.want >= 0 && len(got) != c.want {
			t.Errorf("%q selects %d (%v), want %d", c.list, len(got), err, c.want)
		}
	}
	if n := len(managers.Default()); n < 10 {
		t.Errorf("only %d of the default managers exist", n)
	}
}

func TestEveryManagerHasASummaryOfItsOwn(t *testing.T) {
	of := map[string]string{}
	for _, m := range append(managers.OnDevices(), managers.All()...) {
		i := m.Info()
		if other := of[i.Summary]; other != "" {
			t.Errorf("%s and %s share the summary %q", other, i.Name, i.Summary)
		}
		of[i.Summary] = i.Name
	}
}
