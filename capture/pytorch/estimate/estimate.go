// Package estimate runs a training script on tensors that have sizes but no memory, and returns as a trace
// what it would do to a device's memory.
//
// Its duties:
//   - [Run] starts a command whose Python switches to fake tensors as soon as it imports torch, lets it train
//     a few steps, ends it, and reads what it wrote;
//   - it distinguishes a script that failed ([Failed]), one that cannot be estimated ([ErrUnsupported]), and
//     a command that trains nothing.
//
// The comment at the top of estimate.py says what happens in the process.
package estimate

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture/aside"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/described"
)

//go:embed *.py
var files embed.FS

// modules matches the imports between files of this package and from the agent.
var modules = regexp.MustCompile(`(?m)^from (?:agent)?\.(\w+) import (?:\([^)]*\)|[^(\n]*)\n`)

// modelled are the files of an estimate that emulates PyTorch's allocator, after the agent.
var modelled = []string{"left", "world", "trackers", "training", "alive", "threads", "pace", "engine",
	"reduction",
	"product", "convolution", "recurrent", "truths", "believed", "tensors", "followed", "weights", "device",
	"kernels", "again", "pretend", "estimate"}

// program joins files of this package, named without their endings, into the source that runs in a process,
// without the imports between them: they share one namespace, also with the agent.
func program(names ...string) string {
	var parts []string
	for _, name := range names {
		text, err := files.ReadFile(name + ".py")
		if err != nil {
			panic(err) // it is embedded
		}
		parts = append(parts, modules.ReplaceAllString(string(text), ""))
	}
	return strings.Join(parts, "\n\n")
}

// Device is the device that the script is told it has. Zero rates make ops take only their launch.
type Device struct {
	Name           string  `json:"name"`
	MemoryBytes    int64   `json:"memory_bytes"`
	FlopsPerSecond float64 `json:"flops_per_second"`
	// what FlopsPerSecond counts: fp32, or tf32; half precision reaches twice the latter
	FlopsType      string  `json:"flops_type"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	LaunchGap      int64   `json:"launch_ns"`
	Capability     [2]int  `json:"capability"` // compute capability
	Processors     int     `json:"processors"` // streaming multiprocessors
}

// Options say what to run and on what.
type Options struct {
	Argv, Env []string // a nil Env is this process's
	Dir       string
	// Stdin, Stdout and Stderr are the command's. Stderr may be any writer; the command itself gets a pipe if
	// it is no file.
	Stdin, Stdout *os.File
	Stderr        io.Writer
	Device        Device
	// CPU hides CUDA devices from the script, so that it trains on the CPU.
	CPU bool
	// Steps is the number of steps to train, 0 for 3. The first step makes gradients and optimizer states;
	// the second is the first steady one.
	Steps int
	// Processes is the number of processes that the script is told train together, as torchrun would tell it;
	// 0 leaves the environment unchanged.
	Processes int
	// Tell, unless nil, is called every ten seconds with how long the command has run and the progress of its
	// processes.
	Tell func(ran time.Duration, at []Place)
	// Eager skips torch.compile instead of refusing it.
	Eager bool
}

// Answer is a kind of value that the script read and that was made up.
type Answer struct {
	Op    string
	Count int64
}

// Result is what a script would do to memory.
type Result struct {
	// Trace begins empty, with the process, and ends with the last step. Its times are estimated.
	Trace *traces.Trace
	Torch string
	// Steps is the number of steps trained; fewer than asked for if the script ended earlier.
	Steps  int
	MadeUp []Answer
	// Whole says that the script trains nothing, such as one that generates text, and ran to its end.
	Whole bool
	// Emptied says when the allocator's cache was returned to the driver: after how many of the GPU's
	// allocations, in ascending order.
	Emptied []int64
	// Notes say, in sentences, what the script did that an estimate leaves out.
	Notes []string
}

// Asked is the number of values that were made up.
func (r *Result) Asked() int64 {
	var n int64
	for _, a := range r.MadeUp {
		n += a.Count
	}
	return n
}

// ErrUnsupported is wrapped by the error about a script that cannot be estimated; its text names the op or
// the reason.
var ErrUnsupported = errors.New("cannot be estimated")

// Failed is the error about a command that ended with a code other than 0; -1 stands for a signal. The
// command itself has printed why.
type Failed struct{ Code int }

func (e *Failed) Error() string {
	if e.Code < 0 {
		return "the command was ended by a signal"
	}
	return "the command ended with code " + strconv.Itoa(e.Code)
}

// NoKernels is the error about a card for which the command's torch has no kernels, so it could not train
// there. It wraps ErrUnsupported.
type NoKernels struct {
	Torch string
	// Capability is the card's compute capability, and Oldest the lowest that this torch has kernels for.
	Capability, Oldest [2]int
}

func (e *NoKernels) Error() string {
	return fmt.Sprintf("%v: torch %s has no kernels for a card of compute capability %d.%d", ErrUnsupported,
		e.Torch, e.Capability[0], e.Capability[1])
}

func (e *NoKernels) Unwrap() error { return ErrUnsupported }

// ending is how an estimate ended in a process.
type ending struct {
	Torch       string `json:"torch"`
	Error       string `json:"error"`
	Unsupported string `json:"unsupported"`
	// NoKernels is the capability of a card that torch has no kernels for, nil if it has some for the card
	// that it found; Oldest is the lowest capability that it has any for, zero if unknown.
	NoKernels *[2]int `json:"no_kernels"`
	Oldest    [2]int  `json:"oldest"`
}

// err returns why there is no estimate, nil if there is one.
func (e *ending) err() error {
	switch {
	case e.NoKernels != nil:
		return &NoKernels{e.Torch, *e.NoKernels, e.Oldest}
	case e.Unsupported != "":
		return fmt.Errorf("%w: %s", ErrUnsupported, e.Unsupported)
	case e.Error != "":
		return fmt.Errorf("the estimate itself failed in torch %s: %s", e.Torch, e.Error)
	}
	return nil
}

type report struct {
	ending
	Steps  int              `json:"steps"`
	MadeUp map[string]int64 `json:"made_up"`
	Notes  []string         `json:"notes"`
	Lost   int64            `json:"lost"`
	Trains bool             `json:"trains"`
	// Emptied says when the allocator's cache was returned: after how many blocks.
	Emptied []int64 `json:"emptied"`
}

type config struct {
	Steps  int    `json:"steps"`
	Kind   string `json:"kind"`
	Eager  bool   `json:"eager"`
	Device Device `json:"device"`
}

const defaultSteps = 3

// Run runs a command to its end or to the last step asked for. The error is [Failed], [ErrUnsupported], that
// of starting the command, or ctx's.
func Run(ctx context.Context, o Options) (*Result, error) {
	if len(o.Argv) == 0 {
		return nil, errors.New("there is no command to start")
	}
	folder, done, err := workplace()
	if err != nil {
		return nil, err
	}
	defer done()
	if err := prepare(folder, &o); err != nil {
		return nil, fmt.Errorf("preparing the estimate: %w", err)
	}
	code, notes, err := start(ctx, &o, folder, environ(&o, folder))
	if err != nil {
		return nil, err
	}
	r, err := read(ctx, folder, code)
	if err == nil {
		r.Notes = append(r.Notes, notes...)
	}
	return r, err
}

// pipeStays is how long we continue to read the pipe after the command has ended. A process that it left
// behind may hold it open forever.
const pipeStays = time.Second

// start runs a command to its end in an environment. It returns its exit code, and in notes what it was kept
// from and what was removed after it.
func start(ctx context.Context, o *Options, folder string, env []string) (code int, notes []string,
	err error) {
	defer telling(folder, o.Tell)()
	cmd := exec.CommandContext(ctx, o.Argv[0], o.Argv[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = o.Dir, env, pipeStays
	if o.Stdin != nil { // a nil *os.File is not a nil io.Reader
		cmd.Stdin = o.Stdin
	}
	if o.Stdout != nil {
		cmd.Stdout = o.Stdout
	}
	if o.Stderr != nil {
		cmd.Stderr = o.Stderr
	}
	guard, err := aside.Start(cmd, sparing(env, folder))
	if err != nil {
		return 0, nil, cmp.Or(ctx.Err(), err)
	}
	err = cmd.Wait()
	files, folders := guard.End()
	more, moreFolders := sweep(folder)
	if ctx.Err() != nil {
		return 0, nil, ctx.Err()
	}
	if err != nil && !errors.As(err, new(*exec.ExitError)) && !errors.Is(err, exec.ErrWaitDelay) {
		return 0, nil, err
	}
	notes = append(guard.Notes(), removed(files+more, folders+moreFolders)...)
	return cmd.ProcessState.ExitCode(), notes, nil
}

// place writes the files that the command's Python finds in a folder: a program that takes it over, and its
// settings.
func place(folder, source string, settings any) error {
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"sitecustomize.py": program("sitecustomize"),
		"estimate.py": source, "config.json": string(text)} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// prepare writes the files that the command's Python will find.
func prepare(folder string, o *Options) error {
	c := config{Steps: o.Steps, Kind: "cuda", Eager: o.Eager, Device: o.Device}
	if c.Steps <= 0 {
		c.Steps = defaultSteps
	}
	if o.CPU {
		c.Kind = "cpu"
	}
	return place(folder, pytorch.Agent()+"\n\n"+program(modelled...), c)
}

// environment is the command's.
func (o *Options) environment() []string {
	if o.Env == nil {
		return os.Environ()
	}
	return o.Env
}

// environ puts the folder in front of PYTHONPATH, keeps libraries and experiment trackers offline, and sets
// the ranks' variables if there are to be several processes.
func environ(o *Options, folder string) []string {
	env := o.environment()
	set := map[string]string{"PYTHONPATH": folder, "WANDB_MODE": "disabled", "COMET_MODE": "disabled",
		"NEPTUNE_MODE": "offline", "SWANLAB_MODE": "disabled", "CLEARML_OFFLINE_MODE": "1",
		"MLFLOW_TRACKING_URI": "file://" + filepath.Join(folder, "mlruns"), "MLFLOW_ALLOW_FILE_STORE": "true",
		"MLFLOW_DISABLE_TELEMETRY": "true",
		"HF_HUB_OFFLINE":           "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
		"HF_HUB_DISABLE_TELEMETRY": "1"}
	if o.Processes > 0 {
		n := strconv.Itoa(o.Processes)
		maps.Copy(set, map[string]string{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": n,
			"LOCAL_WORLD_SIZE": n, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"})
	}
	out := make([]string, 0, len(env)+len(set))
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if _, ours := set[name]; !ours {
			out = append(out, e)
		} else if name == "PYTHONPATH" && value != "" {
			// an empty one gets no colon: Python would take the empty entry after it for the current folder
			set[name] = folder + string(os.PathListSeparator) + value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, name+"="+set[name])
	}
	return out
}

// read reads the files that the process wrote.
func read(ctx context.Context, folder string, code int) (*Result, error) {
	b, err := os.ReadFile(filepath.Join(folder, "report.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist) && code != 0:
		return nil, &Failed{code}
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: the command did not load torch: name a training script, and leave "+
			"out -I and -E of Python, which hide PYTHONPATH",
			ErrUnsupported)
	case err != nil:
		return nil, err
	}
	var r report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("what the estimate left behind is damaged: %w", err)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	if code != 0 {
		return nil, &Failed{code}
	}
	t, err := readSteps(ctx, filepath.Join(folder, "trace.jsonl"))
	if err != nil {
		return nil, err
	}
	t.Losses = append(t.Losses, traces.Loss{Name: "estimated", Severity: traces.Info, Count: 1,
		Detail: "recorded on tensors without memory: times are computed from a " +
			"device's figures, and memory " +
			"that kernels take inside an op is not in it"})
	out := &Result{Trace: t, Torch: r.Torch, Steps: r.Steps, Notes: r.Notes, Emptied: r.Emptied,
		Whole: !r.Trains}
	if r.Lost > 0 {
		t.Losses = append(t.Losses, traces.Loss{Name: "window_rows", Severity: traces.DataLoss, Count: r.Lost,
			Detail: "there were more ops than are kept: what came later is missing"})
		out.Notes = append(out.Notes, "there were more ops than are kept: the peak may come "+
			"later than what was seen")
	}
	for _, op := range slices.Sorted(maps.Keys(r.MadeUp)) {
		out.MadeUp = append(out.MadeUp, Answer{op, r.MadeUp[op]})
	}
	return out, nil
}

// readSteps reads steps that were described op by op.
func readSteps(ctx context.Context, path string) (*traces.Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := described.ReadWith(ctx, f, described.Options{Sentence: say.Label})
	if err != nil {
		return nil, fmt.Errorf("what the estimate left behind: %w", err)
	}
	return t, nil
}
