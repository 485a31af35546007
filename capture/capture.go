// Package capture defines what everything that watches a process shares: what a source reports, what a viewer
// keeps, and what a recorder writes. It knows no mechanism; those are in the packages below it (pytorch,
// usdt, nvml).
//
// # The unit of live data
//
// gmemtop sees every step of a training, and captures a window now and then. A [Step] is a row of totals and
// times; it costs microseconds. A [Window] is one or more steps captured whole, as an ordinary [traces.Trace]
// that never changes, so that every view of a saved trace shows it too. [Join] stitches windows into one
// longer trace; [Recorder] writes that trace to a native file as it grows.
//
// Rejected: one trace that grows event by event for as long as the job runs. Capturing every event of every
// step costs too much to leave on, and a trace that changes under its readers needs a lock in every view.
//
// # Who calls whom
//
// A [Source] runs on a goroutine of its own and sends to a [Sink]; a [History] is the Sink of viewers, a
// [Recorder] that of files, and [Tee] feeds both. A [Controller] asks a source for more.
package capture

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Source is something that can be watched. Run sends to sink from one goroutine until the source ends (nil),
// ctx is done (ctx.Err()) or the source fails.
type Source interface {
	Run(ctx context.Context, sink Sink) error
}

// Sink receives what a source sees, in order. Its methods return quickly, so that no viewer holds up a
// source.
type Sink interface {
	// Begin says which process is watched. It is called again when more is known.
	Begin(Info)
	// Step reports a step that ended.
	Step(Step)
	// Window delivers a stretch that was captured whole.
	Window(Window)
	// Notice tells people what cannot be seen and why, or what state the source is in.
	Notice(Notice)
	// Answer says how far an order has come.
	Answer(Answer)
	// Lose counts n things of one name that were seen but could not be kept.
	Lose(name string, n int64, detail string)
	// Output passes on what the command that the source started wrote, both of its streams in order. p is
	// valid during the call.
	Output(p []byte)
	// End says how it ended; nothing comes after it.
	End(End)
}

// Controller takes orders for a source. Its methods may be called from any goroutine.
type Controller interface {
	// Order gives an order and returns once it is sent. Answers and results come through the Sink. The error
	// wraps ErrNoOrders if the source takes no orders of that kind.
	Order(ctx context.Context, o Order) error
	// Detach stops watching and leaves nothing in the process. It returns once the source has confirmed that.
	Detach(ctx context.Context) error
}

// Info is what is known about a watched process. Texts are empty where unknown.
type Info struct {
	// PID is the process's number as this machine's own tools show it, 0 before there is a process.
	PID int
	// Started is the kernel's start time of the process in clock ticks since boot: together with PID it names
	// one process for good.
	Started int64
	Host    string
	// Remote says that the process is on another machine: PID means nothing here.
	Remote bool
	Argv   []string
	Python string
	Torch  string
	// Device is where the optimizer's parameters live, such as cuda:0 or cpu.
	Device string
	// Rank, LocalRank and WorldSize are known of a process that a launcher started or that has joined others.
	Rank, LocalRank, WorldSize maybe.Int
	// Axes are where it stands in a training that is split over ranks, as its libraries say.
	Axes []traces.Axis
	// Agent is the version of the agent in the process, 0 if there is none.
	Agent        int
	Capabilities []string
	// Depth is how windows are captured now: HowOps, HowHistory or HowProfile; "" if there is no choice.
	Depth string
	// Offloads says that saved tensors wait on the host while no plan is carried out.
	Offloads bool
	// Room is how many bytes of the device the process may have for its tensors, as its first step found it:
	// what its allocator holds and what is free, within the share that the program allows itself.
	Room maybe.Int
	// GPUs are those that the process sees, once it has used one: their numbers in the process, names and
	// memory.
	GPUs []traces.Device
}

// Command returns the command line as one line of text.
func (t Info) Command() string { return strings.Join(t.Argv, " ") }

// Name names one process of several.
func (t Info) Name() string {
	if t.Rank.IsKnown() {
		return fmt.Sprintf("rank %v", t.Rank)
	}
	return fmt.Sprintf("process %d", t.PID)
}

// IsRank reports whether the process trains with others.
func (t Info) IsRank() bool { return t.Rank.IsKnown() && t.WorldSize.Or(1) > 1 }

// Step is one training step. Times are nanoseconds; sizes are bytes; a figure that the source did not or
// cannot take is unknown.
type Step struct {
	// Index counts from 0, where the source began to watch.
	Index int64
	// Start and End bound the step [Start, End), in nanoseconds of Unix time.
	Start, End int64
	// Backward and Optimizer are the host's time inside backward() and the optimizers' step(); Forward is the
	// rest of the step, including the wait for data. On a GPU the host runs ahead of the device, so these are
	// times of issue.
	Forward, Backward, Optimizer maybe.Int
	// Allocated and Reserved are the device allocator's own figures at the step's end; PeakAllocated and
	// PeakReserved its own peaks since the process began or the program last reset them.
	Allocated, Reserved, PeakAllocated, PeakReserved maybe.Int
	// Requested is the part of Allocated that the tensors asked for; the rest is the allocator's rounding.
	// Active is Allocated plus what was freed while another stream may still use it.
	Requested, Active maybe.Int
	// PoolsFree is what private pools (of CUDA graphs, or made by the program) hold beyond Active, and
	// nothing else can use. It is counted now and then: PoolsAt is when, in nanoseconds of Unix time.
	PoolsFree, PoolsAt maybe.Int
	// RSS is the process's resident memory on the host.
	RSS maybe.Int
	// Parameters, Gradients and OptimizerState are the bytes of the storages that the optimizers hold, as
	// last counted.
	Parameters, Gradients, OptimizerState maybe.Int
	// Retries and OOMs are the device allocator's counts since the process began.
	Retries, OOMs maybe.Int
	// Work is the processor time of the training thread in this step, in nanoseconds: unlike End - Start it
	// does not grow while others have the processor. If it is unknown in the steps right before, it is the
	// mean of those and this one.
	Work maybe.Int
	// Cost is the time that watching took out of this step.
	Cost time.Duration
	// Skipped says that the optimizer did not step because a gradient scaler found an infinity.
	Skipped bool
	// Carried says under which plan the step ran.
	Carried Carried
}

// Carried is what carrying out a plan did in one step.
type Carried struct {
	// Plan is the plan's number: 0 if none was carried out, negative for a trial, which measures what copies
	// and recomputes cost or how large the steps are.
	Plan int64
	// Out and In are the bytes copied to the host and back.
	Out, In int64
	// OutTime and InTime are how long these copies took the training thread, which makes them on a CPU; 0 if
	// copy engines make them.
	OutTime, InTime time.Duration
	// Again is the thread's processor time in ops that ran again.
	Again time.Duration
	// Missed counts the tensors that were meant to leave memory but stayed, because the step differed from
	// the recorded one.
	Missed int64
	// Checked counts the tensors that were compared with what had left memory, which not every step does;
	// Differ counts those that were not identical to the bit.
	Checked, Differ int64
}

// Held returns the step's best figure of the memory that training holds: the allocator's if there is one,
// otherwise the sum of parameters, gradients and optimizer state, which leaves out activations; exact says
// which.
func (s Step) Held() (bytes maybe.Int, exact bool) {
	switch {
	case s.Allocated.IsKnown():
		return s.Allocated, true
	case s.Parameters.IsKnown():
		return maybe.Sum(s.Parameters, s.Gradients, s.OptimizerState), false
	}
	return maybe.Int{}, false
}

// CapabilityPlans among a process's capabilities says that the process can carry out plans: the action
// [Carry].
const CapabilityPlans = "plans"

// The ways to capture a window.
const (
	// HowOps is every op of the framework with what it touches: the kind traces.Dataflow.
	HowOps = "ops"
	// HowHistory is the caching allocator's own record: the kind traces.Lifetimes, with stacks.
	HowHistory = "history"
	// HowProfile is the framework's own profiler with its memory events: the kind traces.Lifetimes, with the
	// ops that allocate.
	HowProfile = "profile"
	// HowEvents is each call of the framework's allocator: the kind traces.Lifetimes, cut exactly where steps
	// end. Addresses are planned from it.
	HowEvents = "events"
	// HowProbes is probes from the outside: the kind traces.Lifetimes.
	HowProbes = "probes"
)

// Window is a stretch of a process captured whole.
type Window struct {
	Trace *traces.Trace
	// First and Last are the indices of the steps inside.
	First, Last int64
	How         string
	// Partial says that the stretch ended before its last step did.
	Partial bool
	// Orders are the orders that asked for it.
	Orders []OrderID
	// Cost is the time that capturing cost the training.
	Cost time.Duration
	// Bytes is the approximate memory that the window takes in this process, for limits.
	Bytes int64
}

// Notice is something that a viewer should show. It replaces the previous one with the same Key; an empty
// Text removes that.
type Notice struct {
	Key, Text string
	// State says that the text is what the source is waiting for or doing now, not something that it cannot
	// see.
	State bool
	// Unmet says that the text is why steps are not captured as requested, or lack figures.
	Unmet bool
}

// The ways a source can end.
const (
	// Exited means that the process ended; Code has its exit code if known.
	Exited = "exited"
	// Detached means that watching was ended on request; the process goes on.
	Detached = "detached"
	// Disarmed means that watching ended after an error of ours; the process goes on.
	Disarmed = "disarmed"
	// Refused means that watching did not begin; Detail says why.
	Refused = "refused"
)

// End says how a source ended.
type End struct {
	Reason string
	// Code is the exit code of a command that the source started: 128 plus the signal's number if a signal
	// ended it.
	Code maybe.Int
	// Detail is the exception or error that caused the end, "" for none.
	Detail string
	// OutOfMemory says that a failed allocation killed the process.
	OutOfMemory bool
	// Recovered is how many of the last steps were read from the memory that a killed process left behind,
	// unknown if it left none.
	Recovered maybe.Int
}

// Size returns the approximate bytes that a trace takes in memory, for limits: its columns, not its strings.
func Size(t *traces.Trace) int64 {
	const event, op, access, frame = 8 + 8 + 8 + 4 + 4 + 2 + 1 + 1, 56, 40, 16
	return int64(t.Events.Len())*event + int64(len(t.Ops))*op + int64(len(t.Accesses))*access +
		int64(len(t.Frames)+len(t.Stacks.IDs))*frame +
		int64(len(t.Final.Blocks))*48 + 4096
}

// Tee returns a Sink that passes everything to each of sinks, in order.
func Tee(sinks ...Sink) Sink { return tee(sinks) }

type tee []Sink

func (t tee) Begin(x Info) {
	for _, s := range t {
		s.Begin(x)
	}
}

func (t tee) Step(x Step) {
	for _, s := range t {
		s.Step(x)
	}
}

func (t tee) Window(x Window) {
	for _, s := range t {
		s.Window(x)
	}
}

func (t tee) Notice(x Notice) {
	for _, s := range t {
		s.Notice(x)
	}
}

func (t tee) Answer(x Answer) {
	for _, s := range t {
		s.Answer(x)
	}
}

func (t tee) Lose(name string, n int64, detail string) {
	for _, s := range t {
		s.Lose(name, n, detail)
	}
}

func (t tee) Output(p []byte) {
	for _, s := range t {
		s.Output(p)
	}
}

func (t tee) End(x End) {
	for _, s := range t {
		s.End(x)
	}
}
