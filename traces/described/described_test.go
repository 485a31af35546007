package described_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/described"
	"github.com/gmemtop/gmemtop/traces/internal/tracetext"
)

// table prints a trace as text.
func table(t *traces.Trace) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", t.Kind(), t.Source.Tool)
	for _, m := range t.Marks {
		fmt.Fprintf(&b, "mark %s [%d, %d)\n", t.Text(m.Name), m.Start, m.End)
	}
	acc := t.Accesses
	for i := range t.Events.Len() + 1 {
		for len(acc) > 0 && int(acc[0].Event) <= i {
			op := t.Ops[acc[0].Op]
			fmt.Fprintf(&b, "  %s %s %s %x %s\n", t.Text(op.Name), op.Phase, t.Text(op.Module), acc[0].Addr,
				acc[0].Mode)
			acc = acc[1:]
		}
		if i < t.Events.Len() {
			e := t.Events.At(i)
			d := t.Devices[e.Device]
			fmt.Fprintf(&b, "%d %s %x %d %s %s%d\n", e.Time, e.Action, e.Addr, e.Size,
				t.Text(t.DetailOf(i).Category), d.Kind, d.Ordinal)
		}
	}
	return b.String()
}

func TestRead(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, f := range files {
		a, err := txtar.ParseFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var in, want string
		for _, x := range a.Files {
			switch x.Name {
			case "trace":
				in = string(x.Data)
			case "want":
				want = string(x.Data)
			}
		}
		if !described.Sniff([]byte(in)) {
			t.Errorf("%s is not recognised", f)
		}
		tr, err := described.Read(context.Background(), strings.NewReader(in), nil)
		got := ""
		if tr != nil {
			got = table(tr)
		}
		if err != nil {
			got += "error: " + err.Error() + "\n"
		}
		if got != want {
			t.Errorf("%s:\n%s", f, got)
		}
	}
}

const head = `{"gmemtop":"described","version":1,"torch":"2.9","steps":[]}` + "\n"

func TestBadInputIsAnErrorWithItsLine(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", "line 1: the recording has no head"},
		{"{}\n", "line 1: the head does not say"},
		{`{"gmemtop":"described","version":9}` + "\n", "version 9 is not known"},
		{head + `{"k":"alloc","id":-1,"size":1}`, "line 2: -1 is not the number of a storage"},
		{head + `{"k":"alloc","id":1,"size":-1}`, "line 2: storage 1 has -1 bytes"},
		{head + `{"k":"alloc","id":1,"size":9223372036854775807}`, "line 2: storage 1 has"},
		{head + `{"k":"free","id":1}`, "line 2: storage 1 is freed and was never"},
		{head + "\n" + `{"k":"op","name":"mm","r":[7]}`, "line 3: op \"mm\" touches storage 7"},
		{head + `{"k":"op","t":-5}`, "line 2: a time is negative"},
		{head + `{"k":"dance"}`, "is not alloc, free or op"},
		{head + `{"k":`, "line 2: the line is damaged"},
		{head + `{"k":"alloc","id":1,"size":8}` + "\n" + `{"k":"alloc","id":1,"size":8}`, "allocated twice"},
	} {
		_, err := described.Read(context.Background(), strings.NewReader(c.in), nil)
		if !errors.Is(err, traces.ErrFormat) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v does not mention %q", c.in, err, c.want)
		}
	}
}

func TestEverythingBeforeDamageIsKept(t *testing.T) {
	tr, err := described.Read(context.Background(),
		strings.NewReader(head+`{"k":"alloc","id":1,"size":8,"on":"cpu"}`+"\nrubbish"), nil)
	if err == nil || tr == nil || tr.Events.Len() != 1 ||
		!slices.ContainsFunc(tr.Losses, func(l traces.Loss) bool {
			return l.Name == "torn_tail"
		}) {
		t.Errorf("%v, %v", tr, err)
	}
}

func FuzzRead(f *testing.F) { tracetext.Fuzz(f, described.Sniff, described.Read, nil) }

// TestTheRecorderDescribesTheStepAndChangesNoResult trains a small network in PyTorch with and without
// describe.py.
func TestTheRecorderDescribesTheStepAndChangesNoResult(t *testing.T) {
	python := torchtest.Python(t)
	dir := t.TempDir()
	run := func(out string) string {
		cmd := exec.Command(python, "testdata/train.py", out)
		cmd.Env = append(os.Environ(), "PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1")
		b, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				t.Fatalf("%v\n%s", err, exit.Stderr)
			}
			t.Fatal(err)
		}
		return string(b)
	}
	path := filepath.Join(dir, "step.jsonl")
	if plain, watched := run(""), run(path); plain != watched || plain == "" {
		t.Errorf("losses and parameters differ:\n%s%s", plain, watched)
	}
	in, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := described.Read(context.Background(), bytes.NewReader(in), nil)
	if err != nil {
		t.Fatal(err)
	}
	if tr.Kind() != traces.Dataflow || len(tr.Marks) != 2 {
		t.Errorf("kind %s, %d marks", tr.Kind(), len(tr.Marks))
	}
	phases, modules, running := map[traces.Phase]int{}, map[string]int{}, 0
	for _, op := range tr.Ops {
		phases[op.Phase]++
		modules[tr.Text(op.Module)]++
		if tr.Text(op.Name) == "running_statistics" {
			running++
		}
	}
	for _, p := range []traces.Phase{traces.PhaseForward, traces.PhaseBackward, traces.PhaseOptimizer} {
		if phases[p] == 0 {
			t.Errorf("no op in phase %s", p)
		}
	}
	if modules["0"] < 4 || running != 2 {
		t.Errorf("%d ops of module 0, forward and backward, in two steps, and %d "+
			"changes of running statistics", modules["0"], running)
	}
	categories := map[string]bool{}
	for i := range tr.Events.Len() {
		categories[tr.Text(tr.DetailOf(i).Category)] = true
	}
	for _, c := range []string{"parameter", "optimizer_state", "gradient", "activation", "input"} {
		if !categories[c] {
			t.Errorf("no %s among %v", c, categories)
		}
	}
}

func TestATraceReturnedWithAnErrorHasNoAccessByAMissingOp(t *testing.T) {
	in := head + `{"k":"alloc","id":0,"size":8,"t":0}` + "\n" + `{"k":"op","t":1,"d":1,"name":"a","r":[0]}` +
		"\n" + `{"k":"op","t":3,"d":1,"name":"b","r":[0,9]}` + "\n"
	tr, err := described.Read(context.Background(), strings.NewReader(in), nil)
	if err == nil || tr == nil {
		t.Fatalf("%v, %v", tr, err)
	}
	for _, a := range tr.Accesses {
		if int(a.Op) >= len(tr.Ops) {
			t.Errorf("an access names op %d of %d", a.Op, len(tr.Ops))
		}
	}
	if len(tr.Ops) != 1 || len(tr.Accesses) != 1 {
		t.Errorf("%d ops, %d accesses", len(tr.Ops), len(tr.Accesses))
	}
}
