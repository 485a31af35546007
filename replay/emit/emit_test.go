package emit_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/emit"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces/described"
)

// chain describes two steps of three layers. Each layer makes 1 MiB from the previous layer's output and
// saves it for the backward pass.
func chain(t *testing.T) *plan.Problem { return chainOf(t, "layer") }

// chainOf is chain with modules of another name, to which their number is added.
func chainOf(t *testing.T, name string) *plan.Problem {
	t.Helper()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cpu","pid":7,"rank":-1,` +
		`"world_size":-1,"epoch_ns":1,"steps":[[0,40000000],[40000000,80000000]]}`)
	line(`{"k":"alloc","id":1,"size":1048576,"addr":1048576,"t":0,"category":"parameter","on":"cpu"}`)
	for step := range 2 {
		now, id := step*40_000_000, step*10+10
		op := func(name, phase, module, r, w string, rerun bool) {
			now += 1_000_000
			line(`{"k":"op","t":%d,"d":500000,"name":%q,"phase":%q,"module":%q,"r":[%s],"w":[%s],"m":[],`+
				`"rerun":%v}`, now, name, phase, module, r, w, rerun)
		}
		for k := range 3 {
			from := "1"
			if k > 0 {
				from = fmt.Sprint(id+k-1, ",1")
			}
			line(`{"k":"alloc","id":%d,"size":1048576,"addr":%d,"t":%d,"category":"activation",`+
				`"on":"cpu"}`, id+k,
				(id+k)<<21, now+900_000)
			op("aten::relu", "forward", name+fmt.Sprint(k), from, fmt.Sprint(id+k), true)
			op(plan.SaveOp, "forward", name+fmt.Sprint(k), fmt.Sprint(id+k), "", false)
		}
		for k := 2; k >= 0; k-- {
			op(plan.LoadOp, "backward", "", fmt.Sprint(id+k), "", false)
			op("aten::relu_backward", "backward", "", fmt.Sprint(id+k, ",1"), "", false)
			line(`{"k":"free","id":%d,"t":%d}`, id+k, now+600_000)
		}
	}
	tr, err := described.Read(context.Background(), strings.NewReader(b.String()), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.FromDevice(context.Background(), timelinetest.Built(t, tr),
		plan.BuildOptions{Iteration: plan.SteadyIteration,
			EagerOnly: true, Name: "the chain", Hardware: plan.Hardware{Name: "any"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// planned returns a manager's plan for a problem, for eager PyTorch if eager is set.
func planned(t *testing.T, p *plan.Problem, manager string, budget int64, eager bool) *replay.Result {
	t.Helper()
	list, err := managers.Select(manager)
	if err != nil {
		t.Fatal(err)
	}
	c, err := replay.Compare(context.Background(), p, list,
		replay.Options{Budget: budget, Eager: managers.Eager,
			Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Results {
		if r := &c.Results[i]; (r.Executor == plan.TorchEager) == eager {
			if !r.Available {
				t.Fatalf("%s: %s", manager, r.Reason)
			}
			return r
		}
	}
	t.Fatalf("%s: nothing for eager %v among %d", manager, eager, len(c.Results))
	return nil
}

func TestAPlanBecomesRulesInPython(t *testing.T) {
	p := chain(t)
	for _, c := range []struct {
		manager, module, imported, head, rules string
	}{
		{"sqrt", "", "    import less_memory\n    less = less_memory.carry(optimizer)\n",
			"sqrt's plan for the chain: 3.00 MiB at the peak of a step instead of 4.00 MiB.\n" +
				"It keeps 67 % of what can move at the peak and recomputes 33 %.", `
    # Dropped, and made again by these calls when the first is needed. {bytes: [saves]}
    # relu layer0: 1.00 MiB in all
    rerun({"relu": [0]}, {1048576: [0]}),
`},
		{"vdnn-all", "smaller", "    import smaller\n    less = smaller.carry(optimizer)\n",
			"vdnn-all's plan for the chain: 3.00 MiB at the peak of a step instead of 4.00 MiB.\n" +
				"It keeps 67 % of what can move at the peak and swaps 33 %.", `
    # On the host meanwhile: (save, release, fetch). The tensor of a save leaves at a
    # later save and is back at a load.
    # relu layer1, 1.00 MiB
    swap(1048576, (1, 2, 0)),
    # relu layer0, 1.00 MiB
    swap(1048576, (0, 1, 1)),
`},
	} {
		text, rules, err := emit.Python(p, planned(t, p, c.manager, 3<<20, true), c.module, timeline.IEC)
		if err != nil || !rules {
			t.Fatalf("%s: rules %v, %v", c.manager, rules, err)
		}
		head, rest, _ := strings.Cut(strings.TrimPrefix(text, `"""`), "\n\n")
		_, table, _ := strings.Cut(rest, "\nRULES = [")
		table, _, _ = strings.Cut(table, "]\n\n\n")
		if head != c.head || table != c.rules {
			t.Errorf("%s: %s\nRULES = [%s", c.manager, head, table)
		}
		if !strings.Contains(text, c.imported) {
			t.Errorf("%s: it does not say how to import it: %s", c.manager, rest)
		}
		parsed(t, text)
	}
	parsed(t, emit.RuntimeSource())
}

func TestModuleIsTheNameThatPythonImports(t *testing.T) {
	for path, want := range map[string]string{
		"less_memory.py": "less_memory", "plans/größer2.py": "größer2", "_.py": "_",
		"less-memory.py": "", "less_memory": "", "less.memory.py": "", "2gib.py": "", "class.py": "",
		".py": "", "a b.py": "", "plans/gmemtop_carry.py": "", "torch.py": "",
	} {
		name, err := emit.Module(path)
		if name != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", path, name, err, want)
		}
		if err == nil {
			parsed(t, "''\nimport "+name)
		}
	}
}

// TestNamesOfARecordingStayText: whatever they contain, the file has the same statements.
func TestNamesOfARecordingStayText(t *testing.T) {
	want := ""
	for _, name := range []string{"layer", "a\nimport os\n", "a\rimport os\r", `"""`, `\`, "]", "\u2028"} {
		p := chainOf(t, name)
		p.Name = name
		text, _, err := emit.Python(p, planned(t, p, "vdnn-all", 3<<20, true), "", timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		statements := parsed(t, text)
		if want == "" {
			want = statements
		}
		if statements != want {
			t.Errorf("%q: %s, not %s\n%s", name, statements, want, text)
		}
	}
}

// parsed parses a file with Python and returns its statements.
func parsed(t *testing.T, text string) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("needs python3: %v", err)
	}
	cmd := exec.Command(python, "-c", `
import ast, sys
tree = ast.parse(sys.stdin.read())
tree.body.pop(0)  # the docstring
print(ast.dump(tree))`)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}

func TestABaselineBecomesSettingsOfTheAllocator(t *testing.T) {
	text, rules, err := emit.Python(chain(t), planned(t, chain(t), "expandable", 0, false), "", timeline.IEC)
	const want = `"""Settings of PyTorch's allocator that expandable stands for. Import this before torch."""
import os

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
`
	if err != nil || rules || text != want {
		t.Errorf("%v: %s", err, text)
	}
}

func TestPlansThatNoProgramCanCarryOutAreRefused(t *testing.T) {
	p := chain(t)
	elsewhere := *planned(t, p, "sqrt", 3<<20, true)
	unsaved := *p
	unsaved.SavesKnown = false
	for _, c := range []struct {
		p    *plan.Problem
		r    *replay.Result
		want string
	}{
		{p, planned(t, p, "caching", 0, false), "caching is PyTorch as it is: there is nothing to write"},
		{p, planned(t, p, "gmlake", 0, false), "gmlake is not an allocator of PyTorch's"},
		{p, planned(t, p, "stalloc", 0, false), "stalloc only chooses addresses"},
		{p, planned(t, p, "sqrt", 8<<20, false),
			"sqrt has nothing to do: a step already fits into 8.00 MiB"},
		{p, planned(t, p, "sqrt", 3<<20, false), "sqrt made this plan for the executor ideal"},
		{&unsaved, &elsewhere, "the recording does not show what autograd saves"},
	} {
		text, _, err := emit.Python(c.p, c.r, "", timeline.IEC)
		if !errors.As(err, new(*emit.Refused)) || !strings.Contains(err.Error(), c.want) || text != "" {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
