package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
		"and these targets are missed by 2." {
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

// TestThePageNamesTheSmallestCard: from kept results, with the next smaller card that was tried and where it
// ran out of memory. A result of another command or commit counts as none.
func TestThePageNamesTheSmallestCard(t *testing.T) {
	o := options{results: t.TempDir()}
	yes, no := true, false
	all := onAll()
	if len(all) < 10 {
		t.Fatalf("%d programs are run on all cards", len(all))
	}
	save := func(k int, f onCards) {
		t.Helper()
		f.Date, f.Seconds, f.Processor = "2026-11-29", 99, 55
		if err := o.keep(all[k].name, cards, &f); err != nil {
			t.Fatal(err)
		}
	}
	of := func(k int, smallest string, list ...onCard) onCards {
		return onCards{Command: all[k].onAllCards(), Commit: all[k].commit, Smallest: smallest, Cards: list}
	}
	const full = "out of memory in step 1, asking for 392 MiB at resnet.py:154"
	small := onCard{Name: "Tesla T4", Memory: 15 << 30, Fits: &no, Turn: 2, Why: full}
	none := onCard{Name: "Tesla V100-SXM2-16GB", Memory: 16 << 30, Why: "no kernels"}
	middle := onCard{Name: "NVIDIA L4", Memory: 22 << 30, Fits: &yes, Turn: 3, Reserved: 20 << 30, Retries: 2}
	large := onCard{Name: "NVIDIA GeForce RTX 5090", Memory: 31 << 30, Fits: &yes, Turn: 1}
	save(0, of(0, "NVIDIA L4", small, none, middle, large))
	first := small
	first.Fits, first.Turn, first.Reserved = &yes, 2, 3<<20
	save(1, of(1, "Tesla T4", first, none, large))
	save(2, of(2, "", none, small))
	failed := of(3, "")
	failed.Failed = "not done after 20m0s"
	save(3, failed)
	old := of(4, "NVIDIA L4", middle)
	old.Command += " --lr 2"
	save(4, old)
	older := of(5, "NVIDIA L4", middle)
	older.Commit = "0123abcd"
	save(5, older)
	save(6, of(6, "Tesla V100-SXM2-32GB", none, onCard{Name: "Tesla V100-SXM2-32GB", Fits: &yes, Turn: 1}))
	table, err := o.whichCard()
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(table, "\n")[2:]
	for k, want := range []string{
		"L4 (22.0 GiB) | 20.0 GiB, retries: 2 | T4 (15.0 GiB): " + full +
			" | RTX 5090 yes, T4 no, L4 yes | 99 (55) | 2026-11-29",
		"T4 (15.0 GiB) | 3.00 MiB | there is no smaller one | RTX 5090 yes, T4 yes | 99 (55) | 2026-11-29",
		"none of them |  | T4 (15.0 GiB): " + full + " | T4 no | 99 (55) | 2026-11-29",
		"failed |  | not done after 20m0s |  | 99 (55) | 2026-11-29",
		"not run |  |  |  | – | –",
		"not run |  |  |  | – | –",
		"V100-SXM2-32GB (0 B) | 0 B | those that are smaller cannot be estimated: torch has no kernels for " +
			"them | V100-SXM2-32GB yes | 99 (55) | 2026-11-29",
		"not run |  |  |  | – | –",
	} {
		if want = "| " + all[k].title + " | " + want + " |"; rows[k] != want {
			t.Errorf("%s\nexpected\n%s", rows[k], want)
		}
	}
	said, err := o.answered()
	if want := fmt.Sprintf("4 of %d programs have their answer, and 1 failed. ", len(all)); err != nil ||
		!strings.HasPrefix(said, want) {
		t.Errorf("%v: %q, expected %q", err, said, want)
	}
	save(0, of(0, ""))
	if _, err := o.whichCard(); err == nil || !strings.Contains(err.Error(), "names no cards") {
		t.Error(err)
	}
}

// TestAResultOfAnotherCommandIsMadeAgain, but one of this command is kept, and programs that the page wants
// no card for are left out.
func TestAResultOfAnotherCommandIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	o := options{results: dir, data: dir, limit: time.Minute, only: "mlp", allocators: cards,
		gmemtop: filepath.Join(dir, "gmemtop"), python: "python"}
	said := `{"torch": "2.15.0", "smallest": "NVIDIA L4", "cards": [{"name": "NVIDIA L4", "memory_bytes": 5,
		"fits": true, "turn": 1, "run_time_ns": 1600000000, "reserved_bytes": 3}]}`
	script := "#!/bin/sh\necho \"$@\" >> " + dir + "/typed\necho '" + said + "'\n"
	if err := os.WriteFile(o.gmemtop, []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	mlp := &groups["examples"][0]
	defer func(was bool) { mlp.cards = was }(mlp.cards)
	runs := func() int {
		t.Helper()
		if err := o.measure(context.Background()); err != nil {
			t.Fatal(err)
		}
		typed, err := os.ReadFile(filepath.Join(dir, "typed"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Count(string(typed),
			"estimate --allocator real --hardware all --json -- python examples/mlp.py\n")
	}
	if n := runs(); n != 0 {
		t.Errorf("%d runs of a program that the page wants no card for", n)
	}
	mlp.cards = true
	for range 2 {
		if n := runs(); n != 1 {
			t.Errorf("%d runs, expected one", n)
		}
	}
	f, err := o.keptCards(mlp)
	if err != nil || f == nil || f.Smallest != "NVIDIA L4" || f.Cards[0].Seconds != 2 || !*f.Cards[0].Fits ||
		f.Cards[0].Reserved != 3 || f.Torch != "2.15.0" {
		t.Errorf("%v: %+v", err, f)
	}
	f.Command += " --more"
	if err := o.keep("mlp", cards, f); err != nil {
		t.Fatal(err)
	}
	if n := runs(); n != 2 {
		t.Errorf("%d runs, expected a second one", n)
	}
}

// TestAFailedScriptIsQuoted, not gmemtop's remark that it failed.
func TestAFailedScriptIsQuoted(t *testing.T) {
	const above = "gmemtop: the command ended with code 1; its output is above\n"
	for said, want := range map[string]string{
		"Traceback\nValueError: no pictures\n" + above: "ValueError: no pictures",
		above: strings.TrimSpace(strings.TrimPrefix(above, "gmemtop: ")),
		"gmemtop: 10s: 0 of 3 steps\ngmemtop: cannot be estimated\n": "cannot be estimated",
	} {
		if got := reason([]byte(said)); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}
