// Package leaf is the contract between the root model and its views: what they share and how they draw and
// communicate.
//
// There is one tea.Model, in package tui. A view is a plain value that knows timeline and this package, and
// no other view. It draws into a canvas, asks for slow things by returning a tea.Cmd, and changes what is
// shared (cursor, selection, window, filter, view) only by sending one of the messages below, which the root
// applies for all views at once.
package leaf

import (
	"context"
	"io"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// ID names a view and is its key: '1'..'9', '0', 'm', 'L', 'P'.
type ID rune

// The views.
const (
	Overview    ID = '1'
	Timeline    ID = '2'
	Peak        ID = '3'
	Segments    ID = '4'
	Iterations  ID = '5'
	Allocations ID = '6'
	Ranks       ID = '7'
	OOM         ID = '8'
	Diff        ID = '9'
	Trace       ID = '0'
	Managers    ID = 'm'
	Live        ID = 'L' // only if a job is watched
	Machine     ID = 'P' // only if the machine is watched
)

// Place is where all views look.
type Place struct {
	Cursor   timeline.Moment
	Mark     timeline.Moment // the moment that Peak compares with, valid when HasMark
	HasMark  bool
	Selected timeline.AllocID
	Window   timeline.Window // what the charts show
}

// Filter selects the blocks of interest in all views.
type Filter struct {
	Query     sites.Query
	QueryText string
}

// Open is what is open and which part of it is in view.
type Open struct {
	Timelines []*timeline.Timeline // one, or two when a diff was asked for
	Timeline  *timeline.Timeline   // the one in view
	Device    *timeline.Device     // the device in view, nil if the trace has none
	Run       *runs.Run            // nil unless a folder was opened
	Group     *runs.Group          // the ranks of a training that runs, nil for none
	Analysed  bool                 // asking for the device's iterations, phases and parts costs nothing
	Headline  string               // the device's one-sentence answer, "" until Analysed
	RanOut    bool                 // the device ran out of memory; false until Analysed
	NoLines   bool                 // the capture holds no line of code; false until Analysed
	// UnderPlan means that the step in view, of a running job, ran under a plan. Basis is then the newest
	// captured step that did not, nil for none, and BasisName its name: plans must be made for what the
	// training does without one.
	UnderPlan bool
	Basis     *timeline.Timeline
	BasisName string
	// Step is the name of the step in view, of a running job, "" for a recording. Before is the step captured
	// before it, nil for none, and BeforeName its name.
	Step string
	// StepTime is how long the job's steps take as they are, without a capture or a plan, in nanoseconds; 0
	// if unknown.
	StepTime   int64
	Before     *timeline.Timeline
	BeforeName string
}

// Display is how figures are written and what colours mean.
type Display struct {
	Units timeline.Units
	Theme *theme.Theme
	// Links makes source lines links, which a click opens in terminals that have them.
	Links bool
}

// State is what all views share. Views only read it; the root changes it when a message asks for that, and
// bumps Version.
type State struct {
	Open
	Place
	Filter
	Display
	Version int // grows with every change of the above: views key their caches by it
	// Width and Height are the size of the view in front, known before its first Draw. Slow questions take
	// their resolution from them.
	Width, Height int
}

// View is one screen.
type View interface {
	ID() ID
	// Name is the view's name in the tab bar and the palette.
	Name() string
	// Available says whether the view has something to show; if not, why says how to get it.
	Available(s *State) (ok bool, why string)
	// Update handles a message: keys and mouse (with coordinates relative to the view) when the view is in
	// front, results of its own commands always. It starts slow work by returning a command; s is current.
	Update(s *State, msg tea.Msg) tea.Cmd
	// Draw draws the view into c, using all of it. It must not compute anything that grows with the trace.
	Draw(s *State, c *canvas.Canvas)
	// Bindings are the keys that do something now, most useful first.
	Bindings(s *State) []key.Binding
	// Status describes in one line what is under the cursor.
	Status(s *State) string
}

// Copier is a View that decides what y copies; otherwise the root copies the selected block's name and stack.
type Copier interface {
	Copy(s *State) (text, what string)
}

// Sourcer is a View that knows the source line under its cursor, for o; file is "" for none. Otherwise the
// root takes the selected block's.
type Sourcer interface {
	Source(s *State) (file string, line int)
}

// Lacking is a View that says why a key of its own, which is not among its Bindings now, does nothing: "" for
// all other keys.
type Lacking interface {
	Lacks(msg tea.KeyPressMsg) string
}

// Timeless is a View that does not use the recording's clock: the bottom line leaves out keys that move in
// time.
type Timeless interface {
	Timeless() bool
}

// Choice is one row of a PickMsg.
type Choice struct {
	Title, Detail string
	// Off rows are shown and cannot be chosen: Detail says why.
	Off bool
	Msg tea.Msg
}

// Messages that views send and the root applies. ChangedMsg tells a view that it came to the front or that
// State changed.
type (
	// CursorMsg moves the time cursor of all views.
	CursorMsg struct{ To timeline.Moment }
	// SelectMsg selects a block in all views; NoAlloc selects none.
	SelectMsg struct{ Alloc timeline.AllocID }
	// WindowMsg changes what the charts show.
	WindowMsg struct{ Window timeline.Window }
	// QueryMsg changes the filter.
	QueryMsg struct{ Text string }
	// ShowMsg brings a view to the front.
	ShowMsg struct{ View ID }
	// MarkMsg marks the cursor's moment for comparison.
	MarkMsg struct{ At timeline.Moment }
	// UnmarkMsg forgets the mark: nothing is compared any more.
	UnmarkMsg struct{}
	// DeviceMsg changes the device in view.
	DeviceMsg struct{ Device *timeline.Device }
	// TimelineMsg changes the timeline in view (two files, or a rank).
	TimelineMsg struct{ Timeline *timeline.Timeline }
	// OpenRankMsg asks the root to load and show one rank of the run.
	OpenRankMsg struct{ Path string }
	// ShowRankMsg shows another rank of the running training in all views, and CaptureRanksMsg captures the
	// same step of some; both name them by their IDs.
	ShowRankMsg     struct{ ID int }
	CaptureRanksMsg struct{ IDs []int }
	// FollowMsg opens a source line in the user's editor.
	FollowMsg struct {
		File string
		Line int
	}
	// KeyMsg does what pressing a key does: the message of clickable hints, by the key's name ("ctrl+p",
	// "enter").
	KeyMsg struct{ Key string }
	// ToastMsg shows a message for a few seconds.
	ToastMsg struct {
		Text  string
		Error bool
	}
	// CopyMsg copies text to the clipboard (OSC 52).
	CopyMsg struct{ Text, What string }
	// PickMsg lets the user choose one of several things; the choice's message is sent.
	PickMsg struct {
		Title, Footer string
		Choices       []Choice
	}
	// AskMsg lets the user type one line, which begins as Text. Answer turns it into the message to send; its
	// error is shown beside the line and keeps it open.
	AskMsg struct {
		Title, Text, Hint string
		Answer            func(text string) (tea.Msg, error)
	}
	// SaveMsg asks for a file name, by default the recording's name with Suffix, and writes the file as
	// exports are: never over another without asking, never partially.
	SaveMsg struct {
		What, Suffix string
		Write        func(ctx context.Context, w io.Writer) error
	}
	// ChangedMsg tells the view in front that it was shown or that the State changed, so that it can start
	// what it needs to draw.
	ChangedMsg struct{}
	// LeftMsg tells a view that another came to the front, so that it can give up work that only it shows.
	// ChangedMsg says that it is back.
	LeftMsg struct{}
)

// Send wraps a message in a command.
func Send(msg tea.Msg) tea.Cmd { return func() tea.Msg { return msg } }
