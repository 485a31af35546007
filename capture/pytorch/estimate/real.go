package estimate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
)

// The real allocator
//
// The goal is to say exactly how much memory a training takes on a card that is not present: with the caching
// allocator's rounding, its segments and holes, the workspaces that libraries ask it for, and its
// out-of-memory errors. So we run PyTorch's own CUDA code on a stand-in for NVIDIA's runtime (package
// standin), with kernels that compute nothing and memory that nobody touches. The comment at the top of
// real.py describes what runs in the process.
//
// Rejected: emulating the allocator on a description of ops. [Run] does that if torch has no CUDA build, but
// it knows no workspaces.

// hollow is the size above which copies and fills move nothing. Smaller ones do, since programs read back
// the indices, masks and random states that they copied.
const hollow = "1MiB"

// RealOptions say what to run with PyTorch's own allocator, and on what.
type RealOptions struct {
	Options // its Device is only used for the times of described ops
	// Card is the model of the stand-in GPU, such as "h100", which is also the default.
	Card string
	// Memory is the card's memory in bytes, and Outside is how much of it a process takes outside PyTorch's
	// allocator. 0 stands for the card's own figures.
	Memory, Outside int64
	// AllocConf is put into PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF; "" leaves both as they are.
	AllocConf string
	// Describe makes each process train two more steps and describe them op by op on Device: see
	// Process.Described.
	Describe bool
	// Snapshots keeps PyTorch's own snapshot of each process: see Process.Snapshot.
	Snapshots bool
	// PeaksOnly leaves the allocator's history out, which takes time to record and to read: Process.Trace is
	// nil. Describe and Snapshots need the history.
	PeaksOnly bool
	// Building, unless nil, is called if the stand-in has to be compiled first, which takes a minute.
	Building func()
}

// Peaks are the figures of one process's caching allocator for one device, in bytes.
type Peaks struct {
	Device int `json:"device"`
	// Allocated is the peak of allocated bytes, as PyTorch rounds them, and Requested that of the bytes asked
	// for.
	Allocated int64 `json:"allocated"`
	Requested int64 `json:"requested"`
	// Reserved is the peak of what the allocator held from the device.
	Reserved int64 `json:"reserved"`
	// Retries is how often it returned its cache to meet a request.
	Retries int64 `json:"retries"`
}

// OutOfMemory is a request that the device could not meet.
type OutOfMemory struct {
	Device  int    `json:"device"`
	Request int64  `json:"request"`
	Line    string `json:"line"` // file:line of the script
	Step    int    `json:"step"` // counted from 1
}

// RealAnswer is a read of values that got a made-up answer, and the line that read them.
type RealAnswer struct {
	Op     string `json:"op"`
	Line   string `json:"line"`
	Count  int64  `json:"count"`
	Answer string `json:"answer"`
	// Sized says that the values decide how many elements the result has.
	Sized bool `json:"sized,omitempty"`
	// Doubt says how the answer may make the estimate wrong.
	Doubt Doubt `json:"doubt,omitempty"`
}

// Doubt is what may be wrong with an estimate.
type Doubt string

// The doubts.
const (
	NoDoubt Doubt = ""
	TooHigh Doubt = "too high"
	TooLow  Doubt = "too low"
)

// Process is one process that trained.
type Process struct {
	Torch string
	Rank  int
	// Steps is the number of steps trained; fewer than asked for if the script ended earlier.
	Steps int
	// Whole says that the script trains nothing, such as one that generates text. Unless it died, it ran to
	// its end.
	Whole bool
	// Books are by device, and PeakStep is the step in which the fullest device's peak was reached, counted
	// from 1; 0 if it came after the last step.
	Books    []Peaks
	PeakStep int
	// OutOfMemory are the requests that failed, in order. Died says that one of them ended the process; a
	// script may also catch them and go on.
	OutOfMemory []OutOfMemory
	Died        bool
	Answers     []RealAnswer
	Notes       []string
	// Oldest is the lowest compute capability that Torch has kernels for, zero if unknown.
	Oldest [2]int
	// Trace holds everything from the device's first use to the last step, or to the out-of-memory error that
	// ended the process. Trace, Described and Snapshot are nil in all processes but the one that Fullest
	// returns.
	Trace *traces.Trace
	// Described holds two more steps, op by op, which every manager can plan for; their times are computed.
	// If it is nil although it was asked for, Undescribed says why.
	Described   *traces.Trace
	Undescribed string
	// Snapshot is what torch.cuda.memory._snapshot() returned, pickled; nil unless asked for.
	Snapshot []byte

	left      string // the path of the process's files, without their endings
	described bool   // one of the files holds the described steps
}

// Fullest returns the process that stands for all: the first that ran out of memory, otherwise the one that
// reserved most.
func Fullest(all []Process) *Process {
	most := &all[0]
	for i := range all {
		p := &all[i]
		if p.Died && !most.Died || p.Died == most.Died && p.Fullest().Reserved > most.Fullest().Reserved {
			most = p
		}
	}
	return most
}

// Fullest returns the peaks of the device that reserved most.
func (p *Process) Fullest() Peaks {
	return slices.MaxFunc(p.Books, func(a, b Peaks) int { return int(a.Reserved - b.Reserved) })
}

type realReport struct {
	ending
	Python      string        `json:"python"`
	Rank        int           `json:"rank"`
	Steps       [][]Peaks     `json:"steps"`
	Books       []Peaks       `json:"books"`
	Answers     []RealAnswer  `json:"answers"`
	Notes       []string      `json:"notes"`
	OutOfMemory []OutOfMemory `json:"out_of_memory"`
	Died        bool          `json:"died"`
	Described   bool          `json:"described"`
	Undescribed string        `json:"undescribed"`
	Trains      bool          `json:"trains"`
}

// RunReal runs a command on a stand-in GPU, to its end or to the last step asked for, and returns its
// processes that trained, by rank. The error is [Failed], [ErrUnsupported], standin.ErrNoCompiler,
// standin.ErrNoCUDATorch, that of starting the command, or ctx's.
func RunReal(ctx context.Context, o RealOptions) ([]Process, error) {
	if len(o.Argv) == 0 {
		return nil, errors.New("there is no command to start")
	}
	building := o.Building
	if building == nil {
		building = func() {}
	}
	lib, err := o.library(ctx, building)
	if err != nil {
		return nil, err
	}
	all, err := o.on(ctx, lib)
	if other := (*otherTorch)(nil); errors.As(err, &other) {
		if lib, err = standin.BuildTelling(ctx, other.python, building); err != nil {
			return nil, err
		}
		return o.on(ctx, lib)
	}
	return all, err
}

// library makes the stand-in for the torch that the command probably loads. It returns nil if only the
// command knows which that is: the command then reports it, and trains nothing.
func (o *RealOptions) library(ctx context.Context, building func()) (*standin.Library, error) {
	python, certain, err := interpreter(o.Argv)
	if err != nil || python == "" {
		return nil, err
	}
	lib, err := standin.BuildTelling(ctx, python, building)
	if errors.Is(err, standin.ErrNoCUDATorch) && !certain {
		return nil, nil
	}
	return lib, err
}

// otherTorch is the error about a command that loads a torch other than the one that the stand-in was made
// for. That torch could need functions that the stand-in lacks, so the command ended there.
type otherTorch struct{ torch, python string }

func (e *otherTorch) Error() string {
	return fmt.Sprintf("%v: the command loads torch %s of %s: name that interpreter, as in gmemtop estimate "+
		"--allocator real -- %[3]s train.py", ErrUnsupported, e.torch, e.python)
}

func (e *otherTorch) Unwrap() error { return ErrUnsupported }

// on runs the command on a stand-in, nil for none.
func (o *RealOptions) on(ctx context.Context, lib *standin.Library) ([]Process, error) {
	folder, done, err := workplace()
	if err != nil {
		return nil, err
	}
	defer done()
	torch := "none"
	env := environ(&o.Options, folder)
	if lib != nil {
		torch, env = lib.Torch, realEnviron(o, lib, folder)
	}
	if err := prepareReal(folder, o, torch); err != nil {
		return nil, fmt.Errorf("preparing the estimate: %w", err)
	}
	code, notes, err := start(ctx, &o.Options, folder, env)
	if err != nil {
		return nil, err
	}
	all, err := o.read(ctx, folder, code, torch)
	for i := range all {
		all[i].Notes = append(all[i].Notes, notes...)
	}
	return all, err
}

// prepareReal writes the files that the command's Python will find. torch is the version that the stand-in
// was made for, "" for any.
func prepareReal(folder string, o *RealOptions, torch string) error {
	c := struct {
		Torch     string `json:"torch"`
		Steps     int    `json:"steps"`
		Processes int    `json:"processes"`
		Eager     bool   `json:"eager"`
		Describe  bool   `json:"describe"`
		History   bool   `json:"history"`
		Device    Device `json:"device"`
	}{torch, o.Steps, o.Processes, o.Eager, o.Describe, !o.PeaksOnly, o.Device}
	if c.Steps <= 0 {
		c.Steps = defaultSteps
	}
	text := program(rehearsed...)
	if o.Describe {
		text = pytorch.Agent() + "\n\n" + program(describing...) + "\n\n" + text
	}
	return place(folder, text, c)
}

// rehearsed are the files of an estimate by PyTorch's own allocator. If steps are described, the agent and
// the files of describing come before them.
var (
	rehearsed = []string{"left", "world", "trackers", "training", "alive", "threads",
		"truths", "believed", "values",
		"ranks", "flex", "kernels", "real"}
	describing = []string{"pace", "steps"}
)

func realEnviron(o *RealOptions, lib *standin.Library, folder string) []string {
	m := standin.Machine{Model: o.Card, Board: filepath.Join(folder, "board"),
		Hollow: hollow, Order: standin.Once}
	if o.Memory > 0 {
		m.Memory = strconv.FormatInt(o.Memory, 10)
	}
	if o.Outside > 0 {
		m.Context = strconv.FormatInt(o.Outside, 10)
	}
	command := o.Options
	command.Env = lib.EnvironOf(o.environment(), m)
	if o.AllocConf != "" {
		command.Env = append(command.Env, "PYTORCH_CUDA_ALLOC_CONF="+o.AllocConf,
			"PYTORCH_ALLOC_CONF="+o.AllocConf)
	}
	return environ(&command, folder)
}

// read reads the files of the processes: all their reports, but only the history of the process that stands
// for them, since a rank of a large training writes hundreds of megabytes.
func (o *RealOptions) read(ctx context.Context, folder string, code int, torch string) ([]Process, error) {
	reports, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, path := range reports {
		if filepath.Base(path) == "config.json" {
			continue
		}
		p, err := readProcess(path, torch)
		if err != nil {
			return nil, err
		}
		if p != nil {
			all = append(all, *p)
		}
	}
	died := slices.ContainsFunc(all, func(p Process) bool { return p.Died })
	switch {
	case code != 0 && !died:
		return nil, &Failed{code}
	case len(reports) <= 1:
		return nil, fmt.Errorf("%w: the command did not load torch: name a training script, and leave "+
			"out -I and -E of Python, which hide PYTHONPATH",
			ErrUnsupported)
	case len(all) == 0:
		return nil, fmt.Errorf("%w: the script allocated nothing on a GPU", ErrUnsupported)
	}
	slices.SortStableFunc(all, func(a, b Process) int { return a.Rank - b.Rank })
	if o.PeaksOnly {
		return all, nil
	}
	return all, Fullest(all).readHistory(ctx, o.Snapshots)
}

// readProcess reads a process's report, nil if it used no device. torch is the version that it should have
// loaded, "" for any.
func readProcess(path, torch string) (*Process, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r realReport
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("what the estimate left behind is damaged: %w", err)
	}
	if torch != "" && r.Torch != torch {
		return nil, &otherTorch{r.Torch, r.Python}
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	if len(r.Books) == 0 {
		return nil, nil
	}
	p := &Process{Torch: r.Torch, Rank: r.Rank, Steps: len(r.Steps), Books: r.Books,
		OutOfMemory: r.OutOfMemory, Died: r.Died, Answers: r.Answers, Notes: r.Notes, Oldest: r.Oldest,
		Whole: !r.Trains, Undescribed: r.Undescribed, described: r.Described,
		left: strings.TrimSuffix(path, ".json")}
	most := p.Fullest()
	p.PeakStep = 1 + slices.IndexFunc(r.Steps, func(step []Peaks) bool {
		return slices.ContainsFunc(step, func(b Peaks) bool {
			return b.Device == most.Device && b.Allocated == most.Allocated
		})
	})
	if p.PeakStep == 0 && p.Died {
		p.PeakStep = p.Steps + 1
	}
	return p, nil
}

// readHistory reads the allocator's history of a process, and the steps that it described.
func (p *Process) readHistory(ctx context.Context, snapshots bool) error {
	snapshot, err := os.ReadFile(p.left + ".pickle")
	if err != nil {
		return fmt.Errorf("the estimate's snapshot: %w", err)
	}
	if p.Trace, err = torchsnapshot.Read(ctx, bytes.NewReader(snapshot), nil); err != nil {
		return fmt.Errorf("the estimate's snapshot: %w", err)
	}
	if snapshots {
		p.Snapshot = snapshot
	}
	if p.described {
		p.Described, err = readSteps(ctx, p.left+".jsonl")
	}
	return err
}
