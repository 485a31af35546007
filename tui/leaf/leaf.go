// Package leaf is the contract between the root model and its views: what they share, how they draw, how they
// speak.
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
	Live        ID = 'L' // only where a job is watched
	Machine     ID = 'P' // only where the machine is looked at
)

// Place is where all views look.
type Place struct {
	Cursor   timeline.Moment
	Mark     timeline.Moment // the moment that Peak compares with, valid when HasMark
	HasMark  bool
	Selected timeline.AllocID
	Window   timeline.Window // what the charts show
}

// Filter is which blocks are of interest in all views.
type Filter struct {
	Query     sites.Query
	QueryText string
}

// Open is what is open and what of it is in view.
type Open struct {
	Timelines []*timeline.Timeline // one, or two when a diff was asked for
	Timeline  *timeline.Timeline   // the one in view
	Device    *timeline.Device     // the device in view, nil where the trace has none
	Run       *runs.Run            // nil unless a folder was opened
	Analysed  bool                 // asking for the device's iterations, phases and parts costs nothing
	Headline  string               // the device's one-sentence answer, "" until Analysed
	// UnderPlan says that the step in view, of a running job, ran under a plan. Basis is then the newest
	// captured one that did not, nil for none, and BasisName its name: what a plan is made for has to be what
	// the training does by itself.
	UnderPlan bool
	Basis     *timeline.Timeline
	BasisName string
}

// Display is how figures are written and what colours mean.
type Display struct {
	Units timeline.Units
	Theme *theme.Theme
}

// State is what all views share. Views read it and never write it; the root changes it when a message says
// so, and bumps Version.
type State struct {
	Open
	Place
	Filter
	Display
	Version int // grows with every change of the above: views key their caches by it
	// Width and Height are the room of the view in front, known before its first Draw: what a slow question's
	// resolution is made from.
	Width, Height int
}

// View is one screen.
type View interface {
	ID() ID
	// Name is the view's word in the tab bar and the palette.
	Name() string
	// Available says whether the view has something to show; if not, why says what would make it.
	Available(s *State) (ok bool, why string)
	// Update handles a message: keys and mouse (with coordinates relative to the view) when it is in front,
	// results of its own commands always. It starts slow work by returning a command; s is current.
	Update(s *State, msg tea.Msg) tea.Cmd
	// Draw draws the view into c, whose size is all the room it has. It must not compute anything that grows
	// with the trace.
	Draw(s *State, c *canvas.Canvas)
	// Bindings are the keys that do something now, most useful first.
	Bindings(s *State) []key.Binding
	// Status says in one line what is under the cursor.
	Status(s *State) string
}

// Copier is a View that knows what y copies there; the root copies the selected block's name and stack
// otherwise.
type Copier interface {
	Copy(s *State) (text, what string)
}

// Sourcer is a View that knows the source line under its cursor, for o; file is "" for none. The root takes
// the selected block's otherwise.
type Sourcer interface {
	Source(s *State) (file string, line int)
}

// Timeless is a View in which the recording's clock plays no part: the bottom line leaves out how to move in
// time there.
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

// Messages that views send and the root applies. Shown() tells a view that it came to the front or that State
// changed.
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
	// FollowMsg opens a source line in the user's editor.
	FollowMsg struct {
		File string
		Line int
	}
	// KeyMsg does what pressing a key does: the message of clickable hints, by the key's name ("ctrl+p",
	// "enter").
	KeyMsg struct{ Key string }
	// ToastMsg says something for a few seconds.
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
	// error is shown beside the line while one types, and keeps it open.
	AskMsg struct {
		Title, Text, Hint string
		Answer            func(text string) (tea.Msg, error)
	}
	// SaveMsg asks for the name of a file, the recording's name and Suffix by default, and writes it as
	// exports are: not over another without asking, and not in halves.
	SaveMsg struct {
		What, Suffix string
		Write        func(ctx context.Context, w io.Writer) error
	}
	// ChangedMsg tells the view in front that it was shown or that the State changed, so that it can start
	// what it needs to draw.
	ChangedMsg struct{}
	// LeftMsg tells a view that another is in front now, so that it can give up work whose answer only it
	// shows. ChangedMsg says that it is back.
	LeftMsg struct{}
)

// Send wraps a message in a command.
func Send(msg tea.Msg) tea.Cmd { return func() tea.Msg { return msg } }
