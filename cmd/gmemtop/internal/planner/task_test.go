package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

func TestBudgetIsASizeOrAShareOfThePeak(t *testing.T) {
	p, err := (&Task{Network: "alexnet", Batch: []int{8}, Outside: "1GiB"}).OfNetwork(0)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := p.PeakLive()
	all += 1 << 30
	for _, c := range []struct {
		budget string
		want   int64
		wrong  string
	}{
		{"", 0, ""}, {"8GiB", 8 << 30, ""}, {" 512MiB ", 512 << 20, ""},
		{"100%", all, ""}, {"50 %", all / 2, ""},
		{"12", 0, "write 12GiB"}, {"12B", 12, ""}, {"8589934592", 8 << 30, ""},
		{"0", 0, "leaves no room"}, {"much", 0, "is not a size"}, {"-1", 0, "is not a size"},
		{"half%", 0, "is not a share"}, {"0%", 0, "is not a share"}, {"NaN%", 0, "is not a share"},
		{"1001%", 0, "is not a share"},
	} {
		got, err := (&Task{Budget: c.budget}).BudgetFor(p)
		switch {
		case c.wrong == "" && (err != nil || got != c.want):
			t.Errorf("--budget %q: %d, %v, want %d", c.budget, got, err, c.want)
		case c.wrong != "" && (!exit.IsMistake(err) || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("--budget %q: %v", c.budget, err)
		}
	}
}

// threeSteps has three iterations, of which the last has the highest peak.
const threeSteps = `
mark iteration 0 4500 s0
mark iteration 4500 8500 s1
mark iteration 8500 12000 s2
repeat 2
+ a$i 1m
- a$i
end
at 4000
repeat 2
+ b$i 1m
- b$i
end
at 8000
+ c 4m
- c
empty
`

func TestAnIterationIsTakenByItsNumber(t *testing.T) {
	d := timelinetest.Script(t, threeSteps).Main()
	for _, c := range []struct{ iteration, outside, want string }{
		{"0", "", "2 MiB"}, {"it1", "", "2 MiB"}, {"2", "1MiB", "4 MiB and 1 outside"},
		{"3", "", "the last iteration is 2"}, {"it9", "", "--iteration it9: "},
		{"-1", "", "is not the number of an iteration"}, {"two", "", "is not the number of an iteration"},
		{"0", "all", "is not a size"},
	} {
		task := Task{Iteration: c.iteration, Outside: c.outside, Hardware: "a100"}
		p, err := task.ofDevice(context.Background(), d, "the script")
		if err != nil {
			if !exit.IsMistake(err) || p != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("--iteration %q: %v, %v, want %q", c.iteration, p, err, c.want)
			}
			continue
		}
		var sum int64
		for _, b := range p.Buffers {
			sum += b.Size
		}
		got := fmt.Sprintf("%d MiB", sum>>20)
		if p.Outside > 0 {
			got += fmt.Sprintf(" and %d outside", p.Outside>>20)
		}
		if got != c.want || p.Name != "the script" {
			t.Errorf("--iteration %q: %s of %s, want %s", c.iteration, got, p.Name, c.want)
		}
	}
}

func TestHardwareIsNamedMeasuredOrDefault(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // nothing was calibrated here
	t.Setenv("HOME", t.TempDir())
	own := plan.Hardware{Name: "mine"}
	for _, c := range []struct {
		task Task
		want string
	}{
		{Task{}, "A100"}, {Task{Hardware: "h100"}, "H100"}, {Task{Measured: &own}, "mine"},
		{Task{Hardware: "h100", Measured: &own}, "H100"},
	} {
		h, err := c.task.ChosenHardware()
		if err != nil || !strings.HasPrefix(h.Name, c.want) {
			t.Errorf("%+v: %s, %v", c.task, h.Name, err)
		}
		l, err := c.task.liveHardware()
		if err != nil || l.Chosen != (c.task.Hardware != "") {
			t.Errorf("%+v: chosen %v, %v", c.task, l.Chosen, err)
		}
	}
	for _, name := range []string{"none", "none.json"} {
		task := Task{Hardware: name}
		_, err := task.ChosenHardware()
		if wrong := name == "none"; err == nil || exit.IsMistake(err) != wrong {
			t.Errorf("%s: %v", name, err)
		}
		if task.Check() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestNetworkIsPlannedAtTheGivenSizes(t *testing.T) {
	for _, c := range []struct {
		task Task
		size int
		want string
	}{
		{Task{Network: "alexnet", Batch: []int{8}}, 0, "8"},
		{Task{Network: "alexnet", Batch: []int{8}}, 16, "16"},
		{Task{Network: "none"}, 0, "wrong"},
		{Task{Network: "alexnet", Hardware: "none"}, 0, "wrong"},
		{Task{Network: "alexnet", Sequence: []int{1, 2}}, 0, "wrong"},
		{Task{Network: "alexnet", Outside: "all"}, 0, "wrong"},
	} {
		p, err := c.task.OfNetwork(c.size)
		got := "wrong"
		if err == nil {
			got = p.Name
		} else if !exit.IsMistake(err) || p != nil {
			t.Errorf("%+v: %v, %v", c.task, p, err)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%+v at %d: %s, want %s", c.task, c.size, got, c.want)
		}
	}
}

func TestTargetsAreReadAsTheNumbersOfGPUs(t *testing.T) {
	for _, c := range []struct {
		text string
		want []int
	}{
		{"sim", nil}, {"cuda", []int{0}}, {"cuda:2,cuda:1,sim,cuda:2", []int{1, 2}},
		{"cuda:1,cuda:all", []int{allDevices, 1}},
	} {
		if got, err := gpusOf(c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", c.text, got, err)
		}
	}
	for _, bad := range []string{"", "gpu", "cuda:x", "cuda:-1", "3", "sim,live:1"} {
		if _, err := gpusOf(bad); !exit.IsMistake(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if pid, err := LivePID("live:42"); pid != 42 || err != nil {
		t.Errorf("live:42: %d, %v", pid, err)
	}
	for _, bad := range []string{"live", "live:", "live:x", "live:0", "42"} {
		if _, err := LivePID(bad); !exit.IsMistake(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestRunningOutOfMemoryIsNotAFailedMeasurement(t *testing.T) {
	full, broken := fmt.Errorf("cuda: %w", driver.ErrOutOfMemory), errors.New("wrong bytes")
	target := []replay.Device{{Target: replay.Simulated{}}}
	for _, c := range []struct {
		results []replay.Result
		want    string
	}{
		{nil, ""},
		{[]replay.Result{{Available: true}, {Err: full}}, ""},
		{[]replay.Result{{Err: full}}, "nothing could be measured"},
		{[]replay.Result{{Available: true}, {Err: broken}, {Err: full}},
			"1 of 3 measurements failed, the first with: wrong bytes"},
	} {
		got := ""
		if err := Unmeasured(&replay.Comparison{Measured: c.results, Devices: target}); err != nil {
			got = err.Error()
		}
		if got != c.want && !(c.want != "" && strings.HasPrefix(got, c.want)) {
			t.Errorf("%v: %q, want %q", c.results, got, c.want)
		}
	}
	for _, why := range []error{driver.ErrNoDriver, driver.ErrBusy} {
		if !unusable(fmt.Errorf("cuda:0: %w", why)) {
			t.Errorf("%v is no reason", why)
		}
	}
	if unusable(broken) || unusable(nil) {
		t.Error("a GPU that fails, or none, is called unusable")
	}
}

func TestOnePlanIsChosenOfAComparison(t *testing.T) {
	info := plan.Info{Name: "joint"}
	moves := &plan.Plan{Absences: make([]plan.Absence, 1)}
	theory := replay.Result{Info: info, Available: true, Plan: moves}
	eager := replay.Result{Info: info, Available: true, Plan: &plan.Plan{}, Executor: plan.TorchEager}
	still := replay.Result{Info: info, Available: true, Plan: &plan.Plan{}}
	for _, c := range []struct {
		results []replay.Result
		eager   bool
		want    int // index
		why     string
	}{
		{results: []replay.Result{theory, eager}, want: 0},
		{results: []replay.Result{theory, eager}, eager: true, want: 1},
		{results: []replay.Result{theory}, eager: true, want: 0, why: "eager PyTorch cannot run any"},
		{results: []replay.Result{still}, eager: true, want: 0},
		{results: []replay.Result{{Info: info, Reason: "no ops"}}, eager: true, want: 0,
			why: "joint: no ops"},
	} {
		made := &replay.Comparison{Results: c.results}
		r, err := Made(made, c.eager)
		if r != &made.Results[c.want] || (err == nil) != (c.why == "") ||
			err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%+v: %+v, %v", c, r, err)
		}
	}
}

func TestTooSmallUsesTheUsersUnits(t *testing.T) {
	small := &plan.TooSmall{Held: "parameters", Need: 3 << 20, Budget: 2 << 20}
	for _, c := range []struct {
		err    error
		budget int64
		want   string
	}{
		{fmt.Errorf("compare: %w", small), 2 << 20,
			"not possible: parameters need 3.00 MiB, and the budget is 2.00 MiB"},
		{small, 5 << 20,
			"not possible: parameters need 3.00 MiB, and of the budget of 5.00 MiB --outside and " +
				"--margin leave 2.00 MiB"},
		{errors.New("cut"), 5 << 20, ""},
		{nil, 5 << 20, ""},
	} {
		got, ok := TooSmall(c.err, c.budget, timeline.IEC)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%v of %d: %q, want %q", c.err, c.budget, got, c.want)
		}
	}
}

func TestResultsAreTheSameOrAny(t *testing.T) {
	for word, want := range map[string]live.Results{"same": live.Same, "any": live.Any} {
		if got, err := resultsOf(word); got != want || err != nil {
			t.Errorf("%s: %v, %v", word, got, err)
		}
	}
	if _, err := resultsOf("perhaps"); !exit.IsMistake(err) {
		t.Errorf("%v", err)
	}
}
