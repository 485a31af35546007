package pytorch_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// python returns the interpreter that has torch.
var python = torchtest.Python

// private gives the test a separate folder for sockets, markers and output.
func private(t *testing.T) (dir string) {
	t.Helper()
	dir = torchtest.Folder(t)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	return dir
}

// what a scenario prints about its own tensors.
type truth struct {
	Name           string `json:"name"`
	Parameters     int64  `json:"parameters"`
	Gradients      int64  `json:"gradients"`
	OptimizerState int64  `json:"optimizer_state"`
	Buffers        int64  `json:"buffers"`
	Saved          int64  `json:"saved"`
}

// learnt returns the lines with a training's results, sorted, since ranks print in any order, and the truths
// by scenario.
func learnt(t *testing.T, out []byte) ([]string, map[string]truth) {
	t.Helper()
	var lines []string
	truths := map[string]truth{}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		switch word, rest, _ := strings.Cut(s.Text(), " "); word {
		case "losses", "digest":
			lines = append(lines, s.Text())
		case "truth":
			var x truth
			if err := json.Unmarshal([]byte(rest), &x); err != nil {
				t.Fatal(err)
			}
			truths[x.Name] = x
		}
	}
	slices.Sort(lines)
	return lines, truths
}

// described are the scenarios whose steps are described one after the other.
var described = []string{"mlp", "convnet", "gpt", "checkpoint", "amp", "scaled", "accumulate", "closure",
	"lbfgs", "sparse",
	"functional", "loader", "gan", "arrays", "frozen", "averaged"}

// controls trains all scenarios without capture, in one process, since importing torch takes longest; the one
// that ends with an exception comes last.
var controls struct {
	sync.Once
	sections map[string]string
}

// control returns what scenarios learn without capture.
func control(t *testing.T, scenarios ...string) []string {
	t.Helper()
	p := python(t)
	controls.Do(func() {
		ranks := "ranks"
		if version(t) < fsdp2 {
			ranks = "ddp"
		}
		all := append(possible(t, described), "moded", "compiled@100", "forks", "mlp@16", "byhand@16",
			"mlp@400", "gpt@60", ranks, "raises")
		cmd := exec.Command(p, "testdata/train.py", strings.Join(all, ","))
		cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
		out, _ := cmd.Output() // the last fails by design
		controls.sections = map[string]string{}
		for _, section := range strings.Split("\n"+string(out), "\nbegins ")[1:] {
			name, text, _ := strings.Cut(section, "\n")
			controls.sections[name] = text
		}
	})
	var text strings.Builder
	for _, s := range scenarios {
		if controls.sections[s] == "" {
			t.Fatalf("%s learnt nothing without a capture", s)
		}
		text.WriteString(controls.sections[s] + "\n")
	}
	lines, _ := learnt(t, []byte(text.String()))
	return lines
}

// First versions of torch, as 100*major + minor, that can do what a scenario needs.
const (
	cpuScaler     = 203
	fsdp2         = 207 // on the CPU: tried with 2.6, which cannot, and 2.15
	compiledSteps = 206 // tried with 2.2, which does not, and 2.6, which does
)

// version returns the version of torch that the interpreter has; needs skips a test that an older one cannot
// run.
var version, needs = torchtest.Version, torchtest.Needs

// possible returns the scenarios that this torch can train.
func possible(t *testing.T, scenarios []string) []string {
	return slices.DeleteFunc(slices.Clone(scenarios), func(s string) bool {
		return s == "scaled" && version(t) < cpuScaler
	})
}

// held returns the bytes that are alive at a described window's end by category, and the bytes of activations
// of its last step that a backward op reads.
func held(tr *traces.Trace) (alive map[string]int64, saved int64) {
	alive = map[string]int64{}
	type block struct {
		size     int64
		category string
		born     int64
	}
	blocks := map[uint64]block{}
	read := map[uint64]bool{}
	last := tr.Marks[len(tr.Marks)-1]
	all := map[uint64]block{}
	for i := range tr.Events.Len() {
		e := tr.Events.At(i)
		if e.Action == traces.Alloc {
			blocks[e.Addr] = block{e.Size, tr.Text(tr.DetailOf(i).Category), e.Time}
			all[e.Addr] = blocks[e.Addr]
		} else {
			delete(blocks, e.Addr)
		}
	}
	for _, b := range blocks {
		alive[b.category] += b.size
	}
	for _, a := range tr.Accesses {
		if op := tr.Ops[a.Op]; op.Phase == traces.PhaseBackward && a.Mode == traces.Read &&
			op.Start >= last.Start {
			read[a.Addr] = true
		}
	}
	for addr := range read {
		if b := all[addr]; b.category == "activation" && b.born >= last.Start {
			saved += b.size
		}
	}
	return alive, saved
}

func check(t *testing.T, name string, tr *traces.Trace, want truth) {
	t.Helper()
	if tr.Kind() != traces.Dataflow || len(tr.Marks) != 2 {
		t.Errorf("%s: a trace of the kind %s with %d steps", name, tr.Kind(), len(tr.Marks))
		return
	}
	for _, l := range tr.Losses {
		if l.Severity != traces.Info {
			t.Errorf("%s: %s: %s", name, l.Name, l.Detail)
		}
	}
	alive, saved := held(tr)
	if alive["parameter"] != want.Parameters+want.Buffers {
		t.Errorf("%s: %d bytes of parameters, the program has %d and %d of buffers", name, alive["parameter"],
			want.Parameters, want.Buffers)
	}
	if alive["gradient"] != want.Gradients {
		t.Errorf("%s: %d bytes of gradients, the program has %d", name, alive["gradient"], want.Gradients)
	}
	if alive["optimizer_state"] != want.OptimizerState {
		t.Errorf("%s: %d bytes of optimizer state, the program has %d", name, alive["optimizer_state"],
			want.OptimizerState)
	}
	if want.Saved > 0 && saved != want.Saved {
		t.Errorf("%s: backward reads %d bytes of activations, autograd saves %d", name, saved, want.Saved)
	}
	phases := map[traces.Phase]int{}
	for _, op := range tr.Ops {
		phases[op.Phase]++
	}
	if phases[traces.PhaseForward] == 0 || phases[traces.PhaseBackward] == 0 ||
		phases[traces.PhaseOptimizer] == 0 {
		t.Errorf("%s: ops by phase: %v", name, phases)
	}
}

func TestCaptureDoesNotChangeTrainingByABit(t *testing.T) {
	t.Parallel()
	scenarios := possible(t, described)
	if len(scenarios) < len(described) {
		t.Run("scaled", func(t *testing.T) { needs(t, cpuScaler, "torch.amp.GradScaler on the CPU") })
	}
	without := control(t, scenarios...)
	w := watch(t, strings.Join(scenarios, ","))
	for _, s := range scenarios {
		w.describe(s)
		w.until(s+"'s truth", func(v capture.View) bool {
			return bytes.Contains(v.Output, []byte(`{"name": "`+s+`"`))
		})
	}
	v := w.end()
	with, truths := learnt(t, v.Output)
	if !slices.Equal(with, without) {
		t.Errorf("with capture:\n%s\nwithout:\n%s", strings.Join(with, "\n"), strings.Join(without, "\n"))
	}
	if v.End.Reason != capture.Exited || v.End.Code != maybe.Known(0) || len(v.Losses) > 0 {
		t.Errorf("%+v, losses %v", v.End, v.Losses)
	}
	if len(v.Windows) != len(scenarios) {
		t.Fatalf("%d windows of %d scenarios; notices %v", len(v.Windows), len(scenarios), v.Notices)
	}
	for i, s := range scenarios {
		check(t, s, v.Windows[i].Trace, truths[s])
		if n := len(v.Windows[i].Trace.Ops); n > 0 {
			t.Logf("%s: %d ops, %s of the agent's own time, %s an op", s, n, v.Windows[i].Cost,
				v.Windows[i].Cost/time.Duration(n))
		}
	}
	skipped := 0
	for _, s := range v.Steps {
		if s.Skipped {
			skipped++
		}
	}
	if skipped != 2 && slices.Contains(scenarios, "scaled") {
		t.Errorf("%d skipped steps, the scaler skips two of eight", skipped)
	}
	for i := 1; i < len(v.Steps); i++ {
		if a, b := v.Steps[i-1], v.Steps[i]; b.Index != a.Index+1 || b.Start != a.End || b.RSS.Or(-1) == 0 {
			t.Errorf("step %+v follows %+v", b, a)
		}
	}
	t.Run("ops have their place", func(t *testing.T) {
		checkPlaces(t, v.Windows[slices.Index(scenarios, "mlp")].Trace)
	})
	t.Run("checkpoints run again", func(t *testing.T) {
		for name, want := range map[string]bool{"checkpoint": true, "gpt": false, "lbfgs": false} {
			tr := v.Windows[slices.Index(scenarios, name)].Trace
			again := func(op traces.Op) bool { return op.Again }
			if got := slices.ContainsFunc(tr.Ops, again); got != want {
				t.Errorf("%s: ops run again: %v", name, got)
			}
			for _, op := range tr.Ops {
				backward := strings.Contains(tr.Text(op.Name), "backward")
				if op.Again && (op.Phase != traces.PhaseBackward || backward) {
					t.Errorf("%s: %s runs again in %v", name, tr.Text(op.Name), op.Phase)
				}
			}
		}
	})
	t.Run("data comes in its own step", func(t *testing.T) {
		checkData(t, v.Windows[slices.Index(scenarios, "arrays")].Trace)
	})
}

// The totals of a step count frozen parameters and copies of a model, which no optimizer has.
func TestStepsCountParametersThatNoOptimizerHas(t *testing.T) {
	t.Parallel()
	w := watch(t, "frozen")
	w.until("the gate", printed("at frozen"))
	w.open("frozen")
	v := w.end()
	_, truths := learnt(t, v.Output)
	if got := v.Steps[len(v.Steps)-1].Parameters; got != maybe.Known(truths["frozen"].Parameters) {
		t.Errorf("steps count %v bytes of parameters, the program has %d", got, truths["frozen"].Parameters)
	}
}

// checkPlaces checks a window of the scenario mlp, a chain of five modules: each has ops in forward and in
// backward, of some length and within a step, a layer of weights reads them in forward, and the optimizer
// changes every parameter in place.
func checkPlaces(t *testing.T, tr *traces.Trace) {
	t.Helper()
	categories, parameters := map[uint64]string{}, 0
	for i := range tr.Events.Len() {
		if e := tr.Events.At(i); e.Action == traces.Alloc {
			if categories[e.Addr] = tr.Text(tr.DetailOf(i).Category); categories[e.Addr] == "parameter" {
				parameters++
			}
		}
	}
	type place struct {
		module string
		phase  traces.Phase
	}
	ops := map[place]int{}
	for _, op := range tr.Ops {
		within := slices.ContainsFunc(tr.Marks, func(m traces.Mark) bool {
			return m.Start <= op.Start && op.Start+op.Duration <= m.End
		})
		if name := tr.Text(op.Name); !within || op.Duration <= 0 && name != "running_statistics" {
			t.Errorf("%s lasts %d ns from %d on, in no step", name, op.Duration, op.Start)
		}
		ops[place{tr.Text(op.Module), op.Phase}]++
	}
	reads, changes := map[string]int{}, map[uint64]int{}
	for _, a := range tr.Accesses {
		if categories[a.Addr] == "parameter" {
			switch op := tr.Ops[a.Op]; {
			case a.Mode == traces.Read && op.Phase == traces.PhaseForward:
				reads[tr.Text(op.Module)]++
			case a.Mode == traces.Mutate && op.Phase == traces.PhaseOptimizer:
				changes[a.Addr]++
			case a.Mode != traces.Read:
				t.Errorf("%s of phase %s writes a parameter", tr.Text(op.Name), op.Phase)
			}
		}
	}
	for i := range 5 {
		module, layers := fmt.Sprint("net.", i), 2 // of weights and of their bias, in each of two steps
		for _, phase := range []traces.Phase{traces.PhaseForward, traces.PhaseBackward} {
			if ops[place{module, phase}] == 0 {
				t.Errorf("no op of %s in phase %s: %v", module, phase, ops)
			}
		}
		if i%2 == 1 {
			layers = 0 // it has none
		}
		if reads[module] != 2*layers {
			t.Errorf("%s reads %d parameters in two forward passes, not %d", module, reads[module], 2*layers)
		}
	}
	if parameters != 6 || len(changes) != parameters {
		t.Errorf("of %d parameters the optimizer changes %d in place", parameters, len(changes))
	}
}

// checkData checks a window of the scenario arrays: arrays of numpy and lists become tensors without an op
// that a dispatch mode sees, but that does not mean they were there before; and a criterion is called with
// the network's output, which is not an input.
func checkData(t *testing.T, tr *traces.Trace) {
	t.Helper()
	const array, list, table, logits = 8 * 40 * 4, 8 * 8, 13 * 40 * 4, 8 * 10 * 4
	var inputs []string
	categories := map[string]int{}
	for i := range tr.Events.Len() {
		e, category := tr.Events.At(i), tr.Text(tr.DetailOf(i).Category)
		switch {
		case e.Action != traces.Alloc:
		case category == "input":
			step := "before"
			for k, m := range tr.Marks {
				if e.Time > 0 && e.Time >= m.Start && e.Time < m.End {
					step = fmt.Sprint("step ", k+1)
				}
			}
			inputs = append(inputs, fmt.Sprint(step, ": ", e.Size))
		case e.Size == logits:
			categories[category]++
		}
	}
	slices.Sort(inputs)
	want := []string{fmt.Sprint("before: ", table)}
	for _, step := range []string{"step 1: ", "step 2: "} {
		// the array, and the sum of it and a row of the table
		want = append(want, fmt.Sprint(step, array), fmt.Sprint(step, array), fmt.Sprint(step, list))
	}
	if !slices.Equal(inputs, want) {
		t.Errorf("inputs %q, not %q", inputs, want)
	}
	if categories["activation"] < 2 {
		t.Errorf("the network's output for the criterion is %v", categories)
	}
}
