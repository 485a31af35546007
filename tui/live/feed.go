// Package live is the view of a running job: its steps as they come, what is captured whole, what that costs,
// and the keys that ask for more.
//
// The view knows no mechanism: it reads a [Feed], which cmd makes from package capture. A whole capture is an
// ordinary timeline, which all other views show like a file's; while following, the root brings the newest to
// the front.
package live

import (
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Feed is a running job as the screen sees it. Its methods are safe for concurrent use.
type Feed interface {
	// Look returns what is known now. It is cheap; its slices are shared and must not be changed.
	Look() Look
	// Wait returns when there is something newer than a Look of that version, or ctx's error when ctx is
	// done.
	Wait(ctx context.Context, version int64) error
	// Order asks the job for something. It returns when the job has accepted the order, before it is carried
	// out.
	Order(ctx context.Context, o Order) error
}

// State is the state of a job.
type State uint8

// The states of a job.
const (
	// Waiting: nothing was seen yet; Look.Word says what it waits for.
	Waiting State = iota
	// Running: steps come.
	Running
	// Ended: nothing more will come; Look.Word says how it ended.
	Ended
)

// Look is what is known of a job at one moment.
type Look struct {
	// Version grows with every change.
	Version int64
	State   State
	// Word completes the state: what it waits for, or how it ended. Failed means that it did not end well.
	Word   string
	Failed bool
	// Detached means that no more steps come to this viewer although the job goes on: it has Ended, or it is
	// a command whose output still comes.
	Detached bool
	// Since completes a step's number where steps are not counted from the job's beginning: "since attach".
	Since string
	// Title names the job ("train.py"), Facts are further facts about it.
	Title string
	Facts []Fact
	// Row names what a row is if it is not a training step: "interval"; "" for a step.
	Row string
	// Figure names what a Step's Bytes are: "peak allocated", "resident memory".
	Figure string
	// Steps are in order; Dropped steps were lost on the way, between them or before them. Rolled sums up the
	// steps before them, in order.
	Steps   []Step
	Rolled  []Span
	Dropped int64
	// Report is about Steps; Alerts are what is wrong with them, worst first.
	Report steps.Report
	Alerts []Alert
	// Silence says how long there has been no step although one was due, and why if known; "" as long as
	// steps come.
	Silence string
	// Windows are the stretches captured whole, newest last; Forgotten is how many were dropped to save
	// memory.
	Windows   []Window
	Forgotten int
	Capture   Capture
	// Notices say what cannot be seen and why, newest last.
	Notices []string
	// Parts are what the memory consists of, in order; they add up to Whole's bytes.
	Parts []Entry
	Whole Entry
	// Output is the last lines that the job has printed, nil if none came here. Prints means that the job was
	// started here, so that what it prints will come.
	Output []string
	Prints bool
	// Ranks are the processes of a job of several, in display order; nil for a job of one. Everything above
	// except Output and Prints is about the process whose ID is Chosen. Peers compares them, as indices of
	// Ranks.
	Ranks  []Rank
	Chosen int
	Peers  runs.PeerReport
	// World is how many ranks train together, as they say themselves: some may not have been seen yet, and a
	// rank that restarted appears twice among Ranks.
	World maybe.Int
	// Group is the same processes compared, a little older; nil for a job of one.
	Group *runs.Group
	// Together is the newest capture of the same step of several processes.
	Together Together

	// unsettled means that whether memory grows changed within the last steps; see verdict.
	unsettled bool
}

// Together is a capture of the same step of some processes.
type Together struct {
	// ID grows with each capture, 0 for none. Word says how far it is, and Done that it has ended.
	ID   int64
	Word string
	Done bool
	// Windows are what was captured, with the process of each. Failed says why others were not, "" for none.
	Windows []Window
	Ranks   []Rank
	Failed  string
}

// Rank is a process of a job of several.
type Rank struct {
	// ID identifies a process of the job for as long as it is watched.
	ID int
	// Rank is unknown of a process that has none; PID is its number on Host.
	Rank maybe.Int
	PID  int
	Host string
	// Silent says why nothing comes from the process although it has not ended, "" while steps come.
	Silent string
	// Title is the script, Device the device of its parameters.
	Title, Device string
	State         State
	// Word says how a process ended, "" if unknown; Failed means that it did not end well.
	Word   string
	Failed bool
	// Step is the newest step, unknown before the first; Typical is how long recent steps usually take.
	Step    maybe.Int
	Typical runs.Peer
	// Captured is the number of steps captured whole, Lost of those that never arrived.
	Captured int
	Lost     int64
	// Alerts are what is wrong with it.
	Alerts []Alert
}

// Name is the process's name among several: its rank, else its number.
func (r *Rank) Name() string {
	if r.Rank.IsKnown() {
		return fmt.Sprintf("rank %v", r.Rank)
	}
	return fmt.Sprintf("process %d", r.PID)
}

// Fact is something known about a job: a text, or a size.
type Fact struct {
	Name, Value string
	Bytes       maybe.Int
}

// Step is one training step. Times are nanoseconds.
type Step struct {
	Index                                  int64
	Duration, Forward, Backward, Optimizer maybe.Int
	// Bytes is the figure that Look.Figure names; Held is what was allocated at the step's end.
	Bytes, Held maybe.Int
	// Tensors is the part of Bytes that tensors are known to hold, if the figure is resident memory. Reserved
	// is what the device's allocator took for Bytes, if the figure is allocated memory.
	Tensors, Reserved maybe.Int
	// Cost is how much of the step's time watching took.
	Cost maybe.Int
	// Retries and OOMs are the allocator's in this step.
	Retries, OOMs int64
	// UnderPlan means that a plan was carried out in the step. Trial means that one was only tried, to learn
	// what a plan would cost.
	UnderPlan, Trial bool
	// Plan is the number of that plan, 0 for none.
	Plan int64
}

// Span sums up steps that are not kept one by one any more.
type Span struct {
	// First is the index of the first step, and Steps how many there are.
	First, Steps int64
	// Bytes and Tensors are the most of any of the steps.
	Bytes, Tensors maybe.Int
}

// Window is a stretch captured whole: the steps First to Last.
type Window struct {
	// ID identifies a window for as long as the job is watched.
	ID          int64
	First, Last int64
	// How is the means of capture: "op by op", "allocator history".
	How      string
	Timeline *timeline.Timeline
	// Cost is the time that capturing took.
	Cost time.Duration
	// UnderPlan means that a plan was carried out in one of its steps.
	UnderPlan bool
}

// Entry is one line of the split of the memory.
type Entry struct {
	Name  string
	Bytes int64
	// Derived means that the figure is a remainder or an estimate and was not read anywhere; it is shown with
	// a ~.
	Derived bool
	// Unexplained means that nobody knows what the bytes are; they may be negative if figures of different
	// moments are added up.
	Unexplained bool
	// Tensors reports whether tensors hold all of it.
	Tensors bool
}

// Capture is what is being captured and what the user may ask for.
type Capture struct {
	// Every is how often a step is captured whole, one in this many, 0 for only on request.
	Every int
	// Pending means that a step is being captured or will be.
	Pending bool
	// All means that everything is captured whole as it comes: there is nothing to ask for.
	All bool
	// Along names the process that already watches the job, if this viewer joined later, 0 for none: leaving
	// disturbs neither.
	Along int
	// Lean says how the job saves memory while it is watched, "" for nothing: detaching ends that.
	Lean string
	// Depths are the ways to capture it, if there is a choice, and Depth the current one.
	Depths []Depth
	Depth  string
	// No says why nothing can be captured whole, "" if it can.
	No string
	// Share is the measured share of step time that watching takes; Measured reports whether it was measured.
	Share    float64
	Measured bool
	// Connected means that orders reach the job: it is running and connected.
	Connected bool
	// Single means that a step can be captured, although no other orders reach the job.
	Single bool
}

// Depth is a way to capture a step whole.
type Depth struct {
	// How is its name for the source, Name the one for people: "op by op".
	How, Name string
	// Shows says what it shows; Cost is how much longer a step took by it, as measured, 0 if not measured
	// yet.
	Shows string
	Cost  time.Duration
}

// Order is a request to a job.
type Order struct {
	Kind OrderKind
	// Steps is how many steps to capture, or the interval at which to capture one.
	Steps int
	// How is the requested depth.
	How string
	// Rank is the ID of the process to show from now on. All other orders go to the process that is shown.
	Rank int
	// All sends the order to every process of the job.
	All bool
	// IDs are the processes whose common step Same captures.
	IDs []int
}

// OrderKind is the kind of an order.
type OrderKind uint8

// The orders.
const (
	// Describe captures the next Steps steps whole.
	Describe OrderKind = iota
	// Every captures one step in Steps whole, none for 0.
	Every
	// Deepen captures the way that Order.How names from now on.
	Deepen
	// Detach detaches from the job, leaving nothing behind in it.
	Detach
	// Choose shows another process of a job of several. Looks are about it as soon as there is something to
	// show.
	Choose
	// Same captures the same Steps steps of several processes. What becomes of it is in the looks' Together.
	Same
)

// Messages of a feed.
type (
	// LookMsg brings the newest look at a feed.
	LookMsg struct {
		Feed Feed
		Look Look
	}
	// OpenMsg asks the root to show a window in all views, and to hold it there.
	OpenMsg struct{ Window Window }
	// FollowMsg asks the root to show the newest window from now on.
	FollowMsg struct{}
	// orderedMsg says what became of an order.
	orderedMsg struct {
		said string
		err  error
	}
)

// Await returns the command that waits for something newer than a version and returns it as a LookMsg; nil
// when ctx is done.
func Await(ctx context.Context, f Feed, version int64) tea.Cmd {
	return func() tea.Msg {
		if f.Wait(ctx, version) != nil {
			return nil
		}
		return LookMsg{f, f.Look()}
	}
}
