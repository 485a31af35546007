// Package live is the view of a running job: its steps as they come, what of it is captured whole, what that
// costs, and the keys that ask for more.
//
// The view knows no mechanism: it looks at a [Feed], which cmd makes from package capture. What is captured
// whole is an ordinary timeline, so that all other views show it as they show a file; the root brings the
// newest to the front while it follows.
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
	// Wait returns when there is something that a Look of that version did not hold, or ctx's error when ctx
	// is done.
	Wait(ctx context.Context, version int64) error
	// Order asks the job for something. It returns when the job has taken the order, not when it is carried
	// out.
	Order(ctx context.Context, o Order) error
}

// State is where a job stands.
type State uint8

// The states of a job.
const (
	// Waiting: nothing was seen yet; Look.Word says what for.
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
	// Word completes the state: what is waited for, how it ended. Failed says that it did not end well.
	Word   string
	Failed bool
	// Title names the job ("train.py"), Facts say the rest about it.
	Title string
	Facts []Fact
	// Row names what a row is where it is no training step: "interval"; "" for a step.
	Row string
	// Figure says what a Step's Bytes are: "peak allocated", "resident memory".
	Figure string
	// Steps are in order; Dropped were lost on the way, between them or before them.
	Steps   []Step
	Dropped int64
	// Report is about Steps, Alerts what is wrong with them, the worst first.
	Report steps.Report
	Alerts []Alert
	// Silence says since when there was no step although there should be one, and why where that is known; ""
	// as long as steps come.
	Silence string
	// Windows are the stretches captured whole, newest last; Forgotten are those given up for want of room.
	Windows   []Window
	Forgotten int
	Capture   Capture
	// Notices say what cannot be seen and why, newest last.
	Notices []string
	// Parts say what the memory consists of, in order; their sum is Whole's bytes.
	Parts []Entry
	Whole Entry
	// Output is the end of what a job that was started here has printed, a line each; nil where it was not
	// started here.
	Output []string
	// Ranks are the processes of a job of several, in the order in which they are shown; nil for a job of
	// one. All of the above but Output is about the one of them whose ID is Chosen. Peers compares them, as
	// indices of Ranks.
	Ranks  []Rank
	Chosen int
	Peers  runs.PeerReport
}

// Rank is a process of a job of several.
type Rank struct {
	// ID tells the processes of a job apart for as long as it is watched.
	ID int
	// Rank is -1 for a process that has none; PID is its number.
	Rank, PID int
	// Title is the script, Device where its parameters are.
	Title, Device string
	State         State
	// Word says how an ended one ended, "" where no more than that is known; Failed that it did not end well.
	Word   string
	Failed bool
	// Step is the newest step, -1 for none; Typical is what a step of the last ones takes.
	Step    int64
	Typical runs.Peer
	// Captured is the number of steps that are there captured whole.
	Captured int
	// Alerts are what is wrong with it.
	Alerts []Alert
}

// Name is what a process of several is called: its rank, else its number.
func (r *Rank) Name() string {
	if r.Rank >= 0 {
		return fmt.Sprintf("rank %d", r.Rank)
	}
	return fmt.Sprintf("process %d", r.PID)
}

// Fact is something known about a job.
type Fact struct{ Name, Value string }

// Step is one training step. Times are nanoseconds.
type Step struct {
	Index                                  int64
	Duration, Forward, Backward, Optimizer maybe.Int
	// Bytes is the figure that Look.Figure names; Held is what was allocated when the step was over.
	Bytes, Held maybe.Int
	// Cost is the time that watching took of the step.
	Cost maybe.Int
	// Retries and OOMs are the allocator's in this step.
	Retries, OOMs int64
	// UnderPlan says that a plan was carried out in the step.
	UnderPlan bool
}

// Window is a stretch captured whole: the steps First to Last.
type Window struct {
	// ID tells windows apart for as long as the job is watched.
	ID          int64
	First, Last int64
	// How says by what means: "op by op", "allocator history".
	How      string
	Timeline *timeline.Timeline
	// Cost is the time that capturing took.
	Cost time.Duration
	// UnderPlan says that a plan was carried out in a step of it.
	UnderPlan bool
}

// Entry is one line of the split of the memory.
type Entry struct {
	Name  string
	Bytes int64
	// Derived says that the figure is what others leave over, or an estimate, and was not read anywhere; it
	// is shown with a ~.
	Derived bool
	// Unexplained says that it is not known what the bytes are; they may be fewer than none where figures of
	// different moments are added up.
	Unexplained bool
}

// Capture is what is being captured and what may be asked for.
type Capture struct {
	// Every is the number of steps of which one is captured whole, 0 for none but by request.
	Every int
	// Pending says that a step is being captured or will be.
	Pending bool
	// All says that everything is captured whole as it comes: there is nothing to ask for.
	All bool
	// Along names the process that watches the job where this viewer is a further one, 0 for none:
	// leaving disturbs neither.
	Along int
	// Lean says what the job trains with to take less memory for as long as it is watched, "" for nothing:
	// letting go of it takes that away.
	Lean string
	// Depths are the means by which it can be captured, where there is a choice, and Depth the one in force.
	Depths []Depth
	Depth  string
	// No says why nothing can be captured whole, "" where it can.
	No string
	// Share is the part of step time that watching takes, as measured; Measured says whether it was.
	Share    float64
	Measured bool
	// Held says that orders reach the job: it is running and connected.
	Connected bool
}

// Depth is a means of capturing a step whole.
type Depth struct {
	// How names it to the source, Name to people: "op by op".
	How, Name string
	// Shows says what it shows; Cost is how much longer a step took by it, as measured, 0 where it was not
	// yet.
	Shows string
	Cost  time.Duration
}

// Order is something that a job is asked for.
type Order struct {
	Kind OrderKind
	// Steps is how many steps to capture, or of how many one.
	Steps int
	// How is the depth that is asked for.
	How string
	// Rank is the ID of the process to show from now on. All other orders go to the one that is shown.
	Rank int
	// All has every process of the job do it.
	All bool
}

// OrderKind tells orders apart.
type OrderKind uint8

// The orders.
const (
	// Describe captures the next Steps steps whole.
	Describe OrderKind = iota
	// Every captures one step in Steps whole, none for 0.
	Every
	// Deepen captures by the means that Order.How names from now on.
	Deepen
	// Detach leaves the job alone, with nothing left behind in it.
	Detach
	// Choose shows another process of a job of several. The looks are about it as soon as there is something
	// to show of it.
	Choose
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

// Await returns the command that waits for something newer than a version and brings it as a LookMsg; nothing
// when ctx is done.
func Await(ctx context.Context, f Feed, version int64) tea.Cmd {
	return func() tea.Msg {
		if f.Wait(ctx, version) != nil {
			return nil
		}
		return LookMsg{f, f.Look()}
	}
}
