// Command autopsycases asks gmemtop oom about public out-of-memory reports whose accepted answers are known:
//
//	go run ./scripts/autopsycases -python PYTHON [-set develop|judge|healthy] [-only NAME] [-gmemtop BINARY]
//		[-live] [-failing] [-recordings DIR] [-o docs/autopsy.md]
//
// Each case is a script of ours that fails on the stand-in GPU as its report says, and that finishes with
// --fixed, which applies the accepted answer. A case is run once in each way unless DIR already has its
// recordings, and once more under each setting of the allocator that is said to finish. The table of the set
// goes to standard output, or with -o into its section of that file. For the cases to judge by, only counts
// are written: whoever read the details would write detectors for these very cases.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/gmemtop/gmemtop/capture/standin"
)

const cases = "scripts/autopsycases/cases"

// blind is the set whose cases are named nowhere.
const blind = "judge"

// patience is how long gmemtop may take for an answer: one that hangs is an error of its case.
const patience = 2 * time.Minute

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "autopsycases:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, usage io.Writer) error {
	var r runner
	flags := flag.NewFlagSet("autopsycases", flag.ContinueOnError)
	flags.SetOutput(usage)
	set := flags.String("set", "develop", "which cases: develop, judge or healthy")
	only := flags.String("only", "", "only the case of this name")
	page := flags.String("o", "", "the page whose section of this set is written again")
	flags.StringVar(&r.python, "python", "", "an interpreter with a torch built for CUDA")
	flags.StringVar(&r.gmemtop, "gmemtop", "bin/gmemtop", "the program to ask")
	flags.BoolVar(&r.live, "live", false,
		"ask about what gmemtop record saw of the failing run, not about PyTorch's snapshot")
	flags.BoolVar(&r.failing, "failing", false,
		"only the failing runs: savings are those of runs that are recorded, or what the page says")
	flags.StringVar(&r.recordings, "recordings", "",
		"a folder that keeps recordings (default a temporary one)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if r.recordings == "" {
		dir, err := os.MkdirTemp("", "autopsycases-")
		if err != nil {
			return fmt.Errorf("make a folder for recordings: %w", err)
		}
		defer os.RemoveAll(dir)
		r.recordings = dir
	}
	if r.failing && *page != "" {
		var err error
		if r.saved, err = savingsIn(*page, *set); err != nil {
			return err
		}
	}
	names, err := namesOf(*set, *only)
	if err != nil {
		return err
	}
	var scores []score
	for _, name := range names {
		s, err := r.score(ctx, *set, name)
		if err != nil {
			return fmt.Errorf("case %s/%s: %w", *set, name, err)
		}
		scores = append(scores, s)
	}
	table := tableOf(scores)
	if *set == blind {
		table = countsOf(scores)
	}
	if *page != "" {
		return writeSection(*page, *set, table)
	}
	_, err = io.WriteString(out, table)
	return err
}

// namesOf returns the names of a set's cases in alphabetical order.
func namesOf(set, only string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(cases, set))
	if err != nil {
		return nil, fmt.Errorf("list the cases: %w: run it in the root of the repository", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && (only == "" || e.Name() == only) {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no case %q in the set %q", only, set)
	}
	return names, nil
}

// answer is what a case's answer.json says: the report, the card, and what its thread accepted.
type answer struct {
	Issue   string   `json:"issue"` // the report's URL; empty for a healthy training
	Title   string   `json:"title"`
	Card    string   `json:"card"`
	Memory  string   `json:"memory"` // of each device; empty for the card's
	Devices int      `json:"devices"`
	Cause   []string `json:"cause"` // names, each of which is right; none if nothing is wrong
	Lever   []string `json:"lever"`
	// Applied are the accepted levers that are what --fixed does; none for all of them.
	Applied []string `json:"applied"`
	Fix     string   `json:"fix"`
	Read    string   `json:"read"` // how much of the thread could be read, if not all of it
}

func (a *answer) applied() []string {
	if len(a.Applied) == 0 {
		return a.Lever
	}
	return a.Applied
}

// result is what a run of observe.py says. Sizes are in bytes.
type result struct {
	OutOfMemory bool   `json:"out_of_memory"`
	Message     string `json:"message"`
	Failed      []struct {
		Device int   `json:"device"`
		Asked  int64 `json:"asked"`
		Began  int   `json:"began"` // steps of optimizers that had begun, and that had ended
		Ended  int   `json:"ended"`
	} `json:"failed"`
	// Steps has, for each step of an optimizer, the peak of each device by the time it began and ended.
	Steps struct {
		Began [][]int64 `json:"began"`
		Ended [][]int64 `json:"ended"`
	} `json:"steps"`
	Devices []struct {
		PeakAllocated int64 `json:"peak_allocated"`
	} `json:"devices"`
}

type runner struct {
	python, gmemtop, recordings string
	live, failing               bool
	saved                       map[string]int64 // a page's savings by case, if fixes are not run again
	lib                         *standin.Library
}

// score runs a case in both ways and compares what gmemtop says with its answer.
func (r *runner) score(ctx context.Context, set, name string) (score, error) {
	a, failed, fixed, err := r.both(ctx, set, name)
	if err != nil {
		return score{}, err
	}
	s := score{set: set, name: name, answer: a}
	if len(a.Lever) > 0 {
		s.saving = r.savingOf(set, name, failed, fixed)
	}
	recording, err := r.recording(ctx, &s)
	if err != nil {
		return score{}, err
	}
	said, err := r.ask(ctx, recording)
	if err != nil {
		return score{}, err
	}
	s.compare(said)
	if r.failing {
		return s, nil
	}
	return s, r.test(ctx, &s)
}

// savingOf returns what a case's fix saved. If only failing runs are made, it comes from a recorded run with
// the fix, or from the page.
func (r *runner) savingOf(set, name string, failed, fixed result) int64 {
	if r.failing {
		fixed = result{}
		err := readJSON(filepath.Join(r.recordings, "fixed", set, name, "result.json"), &fixed)
		if err != nil || fixed.OutOfMemory {
			return r.saved[name]
		}
	}
	return savingOf(failed, fixed)
}

// recording returns the file to ask about: what PyTorch recorded, or of a live run what gmemtop did.
func (r *runner) recording(ctx context.Context, s *score) (string, error) {
	dir := filepath.Join(r.recordings, s.set, s.name)
	if !r.live {
		return filepath.Join(dir, "snapshot.pickle"), nil
	}
	path := filepath.Join(dir, "live.gmt")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, r.run(ctx, s.answer, r.gmemtop, "record", "-o", path, "--",
		r.python, filepath.Join(cases, s.set, s.name, "train.py"))
}

// test runs a case under the allocator's settings that were said to finish.
func (r *runner) test(ctx context.Context, s *score) error {
	for i := range s.settings {
		c := &s.settings[i]
		dir := filepath.Join(r.recordings, "settings", s.set, s.name, c.lever)
		res, err := r.record(ctx, s.answer, s.set, s.name, dir, attempt{conf: c.conf})
		if err != nil {
			return fmt.Errorf("run with %s: %w", c.conf, err)
		}
		c.ran, c.kept = true, !res.OutOfMemory
	}
	return nil
}

// both runs a case as it is and, if a lever is accepted, with the fix. It is an error if the first does not
// end as the answer says, or the second runs out of memory.
func (r *runner) both(ctx context.Context, set, name string) (a answer, failed, fixed result, err error) {
	if err = readJSON(filepath.Join(cases, set, name, "answer.json"), &a); err != nil {
		return a, failed, fixed, err
	}
	failed, err = r.record(ctx, a, set, name, filepath.Join(r.recordings, set, name), attempt{})
	if err != nil {
		return a, failed, fixed, err
	}
	if wrong := len(a.Cause) > 0; wrong != failed.OutOfMemory {
		return a, failed, fixed, fmt.Errorf("out of memory is %v, and the answer expects %v",
			failed.OutOfMemory, wrong)
	}
	if len(a.Lever) == 0 || r.failing {
		return a, failed, fixed, nil
	}
	dir := filepath.Join(r.recordings, "fixed", set, name)
	fixed, err = r.record(ctx, a, set, name, dir, attempt{fixed: true})
	if err == nil && fixed.OutOfMemory {
		err = errors.New("runs out of memory with the accepted fix: give it more memory")
	}
	return a, failed, fixed, err
}

// allocated is what PyTorch's message says of the device that ran out.
var allocated = regexp.MustCompile(`Of the allocated memory ([0-9.]+) (MiB|GiB) is allocated by PyTorch`)

// allocatedIn returns the bytes that a message says are allocated, to two digits of its unit.
func allocatedIn(message string) (int64, bool) {
	found := allocated.FindStringSubmatch(message)
	if found == nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(found[1], 64)
	unit := map[string]float64{"MiB": 1 << 20, "GiB": 1 << 30}[found[2]]
	return int64(n * unit), err == nil
}

// peakBy returns the peak of a device in the run with the fix, up to the step of the failure, since the other
// run never got further. Without optimizers it is the peak of the whole run.
func peakBy(failed, fixed result) int64 {
	f := failed.Failed[0]
	rows, k := fixed.Steps.Began, f.Began
	if f.Ended < f.Began { // within a step
		rows, k = fixed.Steps.Ended, f.Began-1
	}
	if k < len(rows) && f.Device < len(rows[k]) {
		return rows[k][f.Device]
	}
	return fixed.Devices[f.Device].PeakAllocated
}

// savingOf returns what the fix saved on the device that ran out: the bytes allocated and requested at that
// moment, minus the peak of the run with the fix up to there.
func savingOf(failed, fixed result) int64 {
	if len(failed.Failed) == 0 {
		return 0
	}
	first := failed.Failed[0]
	if first.Device >= len(failed.Devices) || first.Device >= len(fixed.Devices) {
		return 0
	}
	needed := failed.Devices[first.Device].PeakAllocated + first.Asked
	if n, ok := allocatedIn(failed.Message); ok { // the peak may have been before
		needed = n + first.Asked
	}
	return needed - peakBy(failed, fixed)
}

// attempt is how a case is run.
type attempt struct {
	fixed bool   // with the accepted fix
	conf  string // the allocator's settings
}

// record runs a case on the stand-in, unless dir has its result, and returns that.
func (r *runner) record(ctx context.Context, a answer, set, name, dir string, t attempt) (res result,
	err error,
) {
	path := filepath.Join(dir, "result.json")
	if err := readJSON(path, &res); err == nil {
		return res, nil
	}
	args := []string{filepath.Join(cases, "observe.py"), dir, filepath.Join(cases, set, name, "train.py")}
	if t.fixed {
		args = append(args, "--fixed")
	}
	if t.conf != "" {
		args = append([]string{"PYTORCH_CUDA_ALLOC_CONF=" + t.conf, r.python}, args...)
		err = r.run(ctx, a, "env", args...)
	} else {
		err = r.run(ctx, a, r.python, args...)
	}
	if err != nil {
		return res, err
	}
	return res, readJSON(path, &res)
}

// run runs a program on the stand-in and waits for it. That it dies of an out-of-memory is no error.
func (r *runner) run(ctx context.Context, a answer, program string, args ...string) error {
	if r.python == "" {
		return errors.New("there is no recording yet: name an interpreter with -python")
	}
	if r.lib == nil {
		lib, err := standin.Build(ctx, r.python)
		if err != nil {
			return fmt.Errorf("build the stand-in: %w", err)
		}
		r.lib = lib
	}
	board, err := os.MkdirTemp("", "autopsycases-board-")
	if err != nil {
		return fmt.Errorf("make the folder in which processes share the devices: %w", err)
	}
	defer os.RemoveAll(board)
	root, err := filepath.Abs(cases)
	if err != nil {
		return fmt.Errorf("find the cases: %w", err)
	}
	c := exec.CommandContext(ctx, program, args...)
	m := standin.Machine{Model: a.Card, Memory: a.Memory, Devices: a.Devices}
	m.Board = filepath.Join(board, "board")
	c.Env = append(r.lib.Environ(m), "PYTHONPATH="+root)
	c.WaitDelay = patience // a child that it leaves behind may hold the other end of the pipe for ever
	output, err := c.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) || bytes.Contains(output, []byte("OutOfMemoryError")) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("run %s %v: %w\n%s", program, args, err, output)
	}
	return nil
}

// ask returns what gmemtop oom says about a recording. Exit code 3 means that it found an out-of-memory.
func (r *runner) ask(ctx context.Context, recording string) (report, error) {
	var said report
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	output, err := exec.CommandContext(ctx, r.gmemtop, "oom", "--json", recording).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 3 {
		err = nil
	}
	if err != nil {
		return said, fmt.Errorf("ask %s about %s: %w", r.gmemtop, recording, err)
	}
	if err := json.Unmarshal(output, &said); err != nil {
		return said, fmt.Errorf("read what %s said: %w", r.gmemtop, err)
	}
	// The device that ran out comes first.
	slices.SortStableFunc(said.Devices, func(a, b device) int { return rank(a.OOM) - rank(b.OOM) })
	return said, nil
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read what a case says: %w", err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
