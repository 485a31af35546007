package pool_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/agent"
	"github.com/gmemtop/gmemtop/capture/pytorch/pool"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
)

// planned makes smartpool plan a recording, as a viewer does.
func planned(text []byte) (live.Table, int64, error) {
	var r pool.Recording
	if err := json.Unmarshal(text, &r); err != nil {
		return live.Table{}, 0, err
	}
	tr, err := pool.FromEvents(r)
	if err != nil {
		return live.Table{}, 0, err
	}
	if len(tr.Losses) > 0 {
		return live.Table{}, 0, fmt.Errorf("the recording lost something: %v", tr.Losses)
	}
	ctx := context.Background()
	tl, err := timeline.Build(ctx, tr, nil)
	if err != nil {
		return live.Table{}, 0, err
	}
	problem, err := plan.FromDevice(ctx, tl.Main(), plan.BuildOptions{Iteration: plan.SteadyIteration})
	if err != nil {
		return live.Table{}, 0, err
	}
	list, err := managers.Select("smartpool")
	if err != nil {
		return live.Table{}, 0, err
	}
	made, err := list[0].Plan(ctx, problem, plan.Request{})
	if err != nil {
		return live.Table{}, 0, err
	}
	p, err := live.PoolTable(problem, made)
	return p, made.Footprint, err
}

// read opens a file that another program will read, so that the go command does not reuse a test result from
// before the file changed.
func read(t *testing.T, path string) {
	t.Helper()
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
}

// built returns the shim.
func built(t *testing.T) string {
	t.Helper()
	path, err := pool.Build(context.Background())
	if err != nil {
		if strings.Contains(err.Error(), pool.ErrNoCompiler.Error()) {
			t.Skip("needs cc: " + err.Error())
		}
		t.Fatal(err)
	}
	return path
}

var scenarios = []string{"mlp", "resnet", "loader", "other", "odd", "nonsense", "toggles", "outlives",
	"raises", "fork", "threads", "refusals"}

// poolSource returns the pool's Python half, with its sentences filled in.
func poolSource() []byte {
	return []byte(agent.WithSentences(agent.Bundle("pool"), say.AgentSentences()))
}

// run is the output of testdata/train.py for all scenarios in one process, since importing torch takes
// longest.
var run struct {
	sync.Once
	results map[string]json.RawMessage
	plans   map[string]live.Table
	// footprints are what the planner claimed.
	footprints map[string]int64
	err        error
}

// ran returns the results of the scenario.
func ran(t *testing.T, scenario string, result any) {
	t.Helper()
	python, shim := torchtest.Python(t), built(t)
	run.Do(func() {
		run.results, run.plans, run.footprints = map[string]json.RawMessage{}, map[string]live.Table{},
			map[string]int64{}
		sources, train := t.TempDir(), filepath.Join("testdata", "train.py")
		if run.err = os.WriteFile(filepath.Join(sources, "pool.py"), poolSource(), 0o600); run.err != nil {
			return
		}
		read(t, train)
		cmd := exec.Command(python, train, shim, sources, strings.Join(scenarios, ","))
		cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1")
		var complaints strings.Builder
		cmd.Stderr = &complaints
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if run.err = cmd.Start(); run.err != nil {
			return
		}
		s := bufio.NewScanner(out)
		s.Buffer(nil, 64<<20)
		for s.Scan() {
			word, rest, _ := strings.Cut(s.Text(), " ")
			name, text, _ := strings.Cut(rest, " ")
			switch word {
			case "plan":
				p, footprint, err := planned([]byte(text))
				if err != nil {
					run.err = fmt.Errorf("planning %s: %w", name, err)
					_ = cmd.Process.Kill()
					break
				}
				run.plans[name] = p
				run.footprints[name] = footprint
				line, _ := json.Marshal(p)
				_, _ = in.Write(append(line, '\n'))
			case "result":
				run.results[name] = json.RawMessage(text)
			}
		}
		if err := cmd.Wait(); err != nil && run.err == nil {
			run.err = fmt.Errorf("train.py: %w\n%s", err, complaints.String())
		}
	})
	if run.results[scenario] == nil {
		t.Fatalf("%s reported nothing: %v", scenario, run.err)
	}
	if err := json.Unmarshal(run.results[scenario], result); err != nil {
		t.Fatal(err)
	}
}

type figures struct {
	Served, Missed, Unplanned, Occupied, Iterations, Planned int64
	Live, Held, Arenas, Armed, Installed                     int64
	ServedBytes                                              int64 `json:"served_bytes"`
	LastServed                                               int64 `json:"last_served"`
	LastServedBytes                                          int64 `json:"last_served_bytes"`
	PlannedBytes                                             int64 `json:"planned_bytes"`
	ArenaBytes                                               int64 `json:"arena_bytes"`
	Why                                                      string
}

type outcome struct {
	Armed          string
	Figures, After figures
	Left, Error    string
	Same           bool
}

// clean fails if a pool that was turned off left something behind.
func (o *outcome) clean(t *testing.T) {
	t.Helper()
	if o.Armed != "" || o.Left != "" || o.Error != "" {
		t.Errorf("armed %q, left behind %q, errors %q", o.Armed, o.Left, o.Error)
	}
	if o.After.Live != 0 || o.After.Arenas != 0 || o.After.ArenaBytes != 0 {
		t.Errorf("after the pool %d blocks live in %d arenas of %d bytes", o.After.Live, o.After.Arenas,
			o.After.ArenaBytes)
	}
}

// serves fails if less than the share of the planned bytes was served in the last iteration.
func (f *figures) serves(t *testing.T, share float64) {
	t.Helper()
	if f.PlannedBytes == 0 || float64(f.LastServedBytes) < share*float64(f.PlannedBytes) {
		t.Errorf("of %d planned bytes %d were served in the last iteration (%+v)", f.PlannedBytes,
			f.LastServedBytes, *f)
	}
}

func TestThePoolDoesNotChangeTrainingByABit(t *testing.T) {
	for _, name := range scenarios[:3] {
		t.Run(name, func(t *testing.T) {
			var o struct {
				outcome
				Recorded, Pooled, Toggled, Table, Differ bool
				Toggles, Threads                         int
				Refused                                  []string
				RecordingLeft                            string `json:"recording_left"`
				ToggledLeft                              string `json:"toggled_left"`
			}
			ran(t, name, &o)
			if !o.Recorded || !o.Pooled || !o.Toggled {
				t.Errorf("the same learnt while recorded: %v, with the pool: %v, switching: %v", o.Recorded,
					o.Pooled, o.Toggled)
			}
			if !o.Differ {
				t.Error("two steps learnt the same, so the comparison proves nothing")
			}
			o.clean(t)
			o.Figures.serves(t, 0.9)
			if o.Figures.Served < 40*o.Figures.Planned || o.Figures.Armed != 1 {
				t.Errorf("%d allocations served in %d iterations of %d planned", o.Figures.Served,
					o.Figures.Iterations, o.Figures.Planned)
			}
			if o.Toggles < 5 || len(o.Refused) > 0 {
				t.Errorf("%d toggles, refused %q", o.Toggles, o.Refused)
			}
			if o.RecordingLeft != "" || o.ToggledLeft != "" || !o.Table || o.Threads != 0 {
				t.Errorf("left behind: %q, %q, %d threads; torch's own table: %v", o.RecordingLeft,
					o.ToggledLeft, o.Threads, o.Table)
			}
			p := run.plans[name]
			if places, all := p.PlannedBytes(); float64(places) < 0.9*float64(all) {
				t.Errorf("%d of %d bytes have a place", places, all)
			}
			if places, _ := p.PlannedBytes(); p.Arena > run.footprints[name] || p.Arena > places*2/3 {
				t.Errorf("an arena of %d bytes for %d bytes of allocations; planned were %d", p.Arena, places,
					run.footprints[name])
			}
		})
	}
}

func TestAPlanOfAnotherNetworkFallsThroughAndGoesStale(t *testing.T) {
	var o outcome
	ran(t, "other", &o)
	o.clean(t)
	if !o.Same {
		t.Error("another network's plan changed what was learnt")
	}
	if o.Figures.Armed != 0 || !strings.Contains(o.Figures.Why, "three iterations in a row") ||
		o.Figures.Iterations != 3 || o.Figures.Unplanned == 0 {
		t.Errorf("the plan was not found stale after three iterations: %+v", o.Figures)
	}
}

// In a step that differs torch serves what the plan does not have. The plan serves later steps as it did
// those before.
func TestAnOddBatchDoesNotMakeAPlanStale(t *testing.T) {
	var o struct {
		outcome
		// Torchs has each step and how many of its allocations torch served.
		Torchs [][2]int64 `json:"torchs"`
	}
	ran(t, "odd", &o)
	usual := o.Torchs[1][1]
	for _, x := range o.Torchs {
		if step, n := x[0], x[1]; (step%8 == 0) != (n > usual) {
			t.Errorf("torch served %d allocations of step %d, and %d of a usual one", n, step, usual)
		}
	}
	o.clean(t)
	o.Figures.serves(t, 0.9)
	if !o.Same || o.Figures.Armed != 1 || o.Figures.Missed == 0 {
		t.Errorf("same %v, %+v", o.Same, o.Figures)
	}
}

func TestNoPlanMakesThePoolGiveOutMemoryTwice(t *testing.T) {
	var o struct {
		Same             bool
		Served, Occupied int
	}
	ran(t, "nonsense", &o)
	if !o.Same {
		t.Error("a plan of random places changed what was learnt")
	}
	if o.Served == 0 || o.Occupied == 0 {
		t.Errorf("%d allocations served, %d found their place taken: this tests nothing",
			o.Served, o.Occupied)
	}
}

func TestAHundredTogglesLeaveNothingBehind(t *testing.T) {
	var o struct {
		Said    []string
		Table   bool
		Threads int
		Grew    int64
		Figures figures
	}
	ran(t, "toggles", &o)
	if !slices.Equal(o.Said, []string{""}) && !allAlive(o.Said) {
		t.Errorf("said %q", o.Said)
	}
	if !o.Table || o.Threads != 0 || o.Figures.Arenas != 0 || o.Grew > 32<<20 {
		t.Errorf("torch's own table: %v, %d threads, %d bytes grown, %+v", o.Table, o.Threads,
			o.Grew, o.Figures)
	}
}

// allAlive reports whether the only complaint was that gradients were still alive, which the next step frees.
func allAlive(said []string) bool {
	return !slices.ContainsFunc(said, func(s string) bool {
		return s != "" && !strings.Contains(s, "still alive")
	})
}

func TestATensorOutlivesThePoolThatServedIt(t *testing.T) {
	var o struct {
		Live                 int
		Left                 string
		Hooked, Whole, Table bool
		After                figures
	}
	ran(t, "outlives", &o)
	if o.Live == 0 || !strings.Contains(o.Left, "still alive") || !o.Hooked || !o.Whole {
		t.Errorf("%d live, %q, hooked %v, whole %v", o.Live, o.Left, o.Hooked, o.Whole)
	}
	if !o.Table || o.After.Arenas != 0 {
		t.Errorf("with the last tensor: torch's own table %v, %d arenas", o.Table, o.After.Arenas)
	}
}

func TestTrainingGoesOnAfterExceptions(t *testing.T) {
	var o outcome
	ran(t, "raises", &o)
	o.clean(t)
	o.Figures.serves(t, 0.9)
	if !o.Same {
		t.Error("exceptions changed what was learnt")
	}
}

func TestAForkedChildUsesTorchAlone(t *testing.T) {
	var o struct {
		outcome
		Codes []int
	}
	ran(t, "fork", &o)
	o.clean(t)
	o.Figures.serves(t, 0.9)
	if !o.Same || !slices.Equal(o.Codes, []int{0, 0}) {
		t.Errorf("same %v, children ended with %v", o.Same, o.Codes)
	}
}

func TestOtherThreadsMayAllocateAndFreeMeanwhile(t *testing.T) {
	var o outcome
	ran(t, "threads", &o)
	o.clean(t)
	o.Figures.serves(t, 0.9)
	if !o.Same {
		t.Error("other threads changed what was learnt")
	}
}

func TestTheTableOfTorchsGPUAllocatorIsReplacedAndRestored(t *testing.T) {
	python, shim := torchtest.Python(t), built(t)
	train := filepath.Join("testdata", "train.py")
	read(t, train)
	sources := t.TempDir()
	source := poolSource()
	if err := os.WriteFile(filepath.Join(sources, "pool.py"), source, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, train, shim, sources, "cuda").CombinedOutput()
	if strings.Contains(string(out), "libc10_cuda.so is not loaded in this process") {
		t.Skip("needs a torch built for CUDA")
	}
	var o struct {
		Refused, Backend, Armed, CPU, Left string
		Hooked, Calls, Table               bool
	}
	_, text, _ := strings.Cut(string(out), "result cuda ")
	if err != nil || json.Unmarshal([]byte(text), &o) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if o.Refused != "" || !o.Hooked || o.Backend != "native" || !o.Calls || o.Left != "" || !o.Table ||
		!strings.Contains(o.CPU, "another") {
		t.Errorf("%+v", o)
	}
	t.Logf("armed without a GPU: %s", o.Armed)
}

func TestErrorsAreReportedAndNothingIsLeft(t *testing.T) {
	var o struct {
		None, Missing, MPS, CUDA, Huge, Empty, Outside, Nothing, Unaligned, Negative, Placeless, Stream, Arm,
		Twice, Second, Left, Moved, Unnamed string
		CUDARecord         string `json:"cuda_record"`
		Short              string
		Armed, Taken, Kept int
		Table              bool
		Versions           map[string]string
		Found, Known       map[string][]int
	}
	ran(t, "refusals", &o)
	for _, c := range []struct{ name, said, want string }{
		{"missing", o.Missing, "cannot be loaded"}, {"mps", o.MPS, "NVIDIA"}, {"cuda_record", o.CUDARecord,
			"history"}, {"huge", o.Huge, "memory"}, {"empty", o.Empty, "0 entries"},
		{"outside", o.Outside, "outside"}, {"nothing", o.Nothing, "entries"},
		{"unaligned", o.Unaligned, "aligned"}, {"negative", o.Negative, "malformed"},
		{"placeless", o.Placeless, "no entry"}, {"stream", o.Stream, "malformed"},
		{"twice", o.Twice, "turn it off"}, {"second", o.Second, "another pool"}, {"moved", o.Moved,
			"does not know this build of torch"}, {"unnamed", o.Unnamed, "the pool supports torch"},
	} {
		if !strings.Contains(c.said, c.want) {
			t.Errorf("%s: said %q", c.name, c.said)
		}
	}
	if o.None != "" || o.CUDA != "" || o.Arm != "" || o.Left != "" || o.Armed != 0 || !o.Table {
		t.Errorf("refused %q and %q, armed %q, left behind %q, %d armed, torch's own table %v", o.None,
			o.CUDA, o.Arm, o.Left, o.Armed, o.Table)
	}
	if !strings.Contains(o.Short, "out of memory") || o.Taken != 1 || o.Kept > 1<<30 {
		t.Errorf("without memory: %q, then armed with another's block: %d; refused plans kept %d bytes",
			o.Short, o.Taken, o.Kept)
	}
	for version, said := range o.Versions {
		if !strings.Contains(said, version) {
			t.Errorf("torch %s: %q", version, said)
		}
	}
	for device, known := range o.Known {
		if !slices.Equal(known, o.Found[device]) {
			t.Errorf("%s: slots %v, not %v", device, o.Found[device], known)
		}
	}
}
