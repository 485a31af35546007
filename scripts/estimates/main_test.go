package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestThePageIsMadeFromWhatIsKept: nothing of it is written by hand.
func TestThePageIsMadeFromWhatIsKept(t *testing.T) {
	o := options{results: filepath.Base(results)}
	want, err := o.page()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/estimate.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/estimate.md is not what go run ./scripts/estimates -table writes")
	}
}

// keep writes what would have been found.
func keep(t *testing.T, o *options, name, allocator string, f found) {
	t.Helper()
	text, err := json.Marshal(&f)
	if err == nil {
		err = os.WriteFile(o.path(name, allocator), text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTheTableSaysWhatIsTooFarOff writes it from kept estimates; it also says what is missing, failed or old.
func TestTheTableSaysWhatIsTooFarOff(t *testing.T) {
	o := options{results: t.TempDir()}
	steps := 3
	for name, sizes := range map[string][4]int64{ // allocated and reserved: real, then model
		"mlp":      {1000, 2000, 1010, 1960},
		"vgg16":    {1000, 2000, 989, 2000},
		"vit":      {1000, 2000, 1000, 2041},
		"resnet50": {1000, 2000, 1000, 2000},
	} {
		for k, allocator := range []string{"real", "model"} {
			keep(t, &o, name, allocator, found{Date: "2026-11-27", Seconds: 7, Steps: &steps, Fits: true,
				Allocated: sizes[2*k], Reserved: sizes[2*k+1]})
		}
	}
	table, err := o.table("examples")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| mlp | `python examples/mlp.py` | 1000 B | 1.95 KiB | +1.00 %, -2.00 % | 7, 7 | 2026-11-27 | ",
		"| none |", "| **-1.10 %, 0** |", "| **0, +2.05 %** |", "| equal |",
		"| gpt2 | `python examples/gpt2.py` | not run |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	keep(t, &o, "mnist", "real", found{Date: "2026-11-23", Printed: []string{"1 MiB", "2 MiB"},
		Lines: []string{"main.py:48"}})
	keep(t, &o, "mnist", "model", found{Failed: "not done after 5m0s"})
	if table, err = o.table("scripts"); err != nil || !strings.Contains(table,
		"| 1 MiB | 2 MiB | failed | –, – | 2026-11-23 ¹ | main.py:48 |") {
		t.Errorf("%v:\n%s", err, table)
	}
	why, err := o.failures()
	if err != nil || why != "- pytorch/examples 77f55b91, mnist with `model`: not done after 5m0s" {
		t.Errorf("%v: %q", err, why)
	}
	said, err := o.agreement()
	if err != nil || said != "Of 4 programs whose sizes are known to the byte under both, 1 are equal, "+
		"and 2 miss those targets." {
		t.Errorf("%v: %q", err, said)
	}
	keep(t, &o, "gpt2", "real", found{})
	if _, err := o.table("examples"); err == nil || !strings.Contains(err.Error(), "no estimate") {
		t.Error(err)
	}
}

// TestSourcesAreThoseOfTheirCommit: another commit is refused, and so is a script that was edited.
func TestSourcesAreThoseOfTheirCommit(t *testing.T) {
	o := options{sources: t.TempDir(), data: t.TempDir()}
	at := filepath.Join(o.sources, "some")
	git := func(args ...string) string {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", at, "-c", "user.name=n", "-c", "user.email=e"},
			args...)...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	script := filepath.Join(at, "train.py")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(script, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(at, 0o777); err != nil {
		t.Fatal(err)
	}
	git("init", "-q")
	write("train()\n")
	git("add", ".")
	git("commit", "-qm", "one")
	some := checkout{"some", "some/one", git("rev-parse", "--short=8", "HEAD")}
	right := some.program("some", "", "train.py", "")
	other := right
	other.commit = "0123abcd"
	check := func(p program, want string) {
		t.Helper()
		err := o.prepare(context.Background(), &p)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
	check(right, "")
	check(other, "not at 0123abcd")
	write("train(less=True)\n")
	check(right, "not as it was committed")

	// incomplete data are not left for the next run
	write("train()\n")
	o.data, o.python = filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(o.python, []byte("#!/bin/sh\nmkdir \"$3\"\nexit 1\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	check(right, "making up data")
	if _, err := os.Stat(o.data); !os.IsNotExist(err) {
		t.Errorf("what was made of the data is still there: %v", err)
	}
}

// TestEveryProgramHasItsOwnName, under which its results are kept.
func TestEveryProgramHasItsOwnName(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range all() {
		if seen[p.name] || strings.ContainsAny(p.name, "/ ") {
			t.Errorf("%q", p.name)
		}
		seen[p.name] = true
	}
}
