package tui

import (
	"cmp"
	"context"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/charmbracelet/colorprofile"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/live"
	"github.com/gmemtop/gmemtop/tui/machine"
	"github.com/gmemtop/gmemtop/tui/managers"
)

// Loaded is what a Loader read.
type Loaded struct {
	// Timelines holds one timeline, two or more if several files were named (the first two can be compared),
	// or none if only Run is set.
	Timelines []*timeline.Timeline
	// Run is the folder of ranks that was opened, nil for none.
	Run *runs.Run
	// Device is the device of the first timeline that opens, nil for its main one.
	Device *timeline.Device
	// First and End are the stretch of the device's events to open, end excluded. End 0 opens the whole
	// recording.
	First, End timeline.Moment
	// Notice is one sentence that the user should see first, such as that this is the embedded sample; "" for
	// none.
	Notice string
}

// Loader reads what the user asked for. It runs off the event loop with a context that is cancelled when the
// user quits, and reports its progress as often as it likes: stage is what it is doing ("reading
// snapshot.pickle"); done and total share any unit, total is 0 if unknown. With an error it may still return
// the sound part.
type Loader func(ctx context.Context, progress func(stage string, done, total int64)) (Loaded, error)

// Exporter writes what is in view in one format; e offers it.
type Exporter struct {
	// Name is shown to the user: "Perfetto trace".
	Name string
	// Extension is the file name's, with its dot: ".json".
	Extension string
	Write     func(ctx context.Context, w io.Writer, t *timeline.Timeline, d *timeline.Device) error
	// Moment returns what writes the moment of d that the user names, or says why there is none of that name.
	// It is nil for formats without a picture of one moment.
	Moment func(d *timeline.Device, at string) (func(ctx context.Context, w io.Writer) error, error)
}

// Options are what a session starts with. The zero value opens nothing in an automatic theme.
type Options struct {
	Loader Loader
	// Feed is a running job to watch instead of what a Loader reads; nil for none.
	Feed live.Feed
	// Machine is the machine to show first, where the user chooses a process to watch; nil for none. Attach
	// watches it until ctx is done.
	Machine machine.Feed
	Attach  func(ctx context.Context, pid int) (live.Feed, error)
	// Title names what is opened, shown while it loads.
	Title string
	// Theme is a name of theme.Names; "" and "auto" ask the terminal whether it is dark.
	Theme string
	// Color is "auto", "always" or "never"; NO_COLOR counts as never under auto.
	Color string
	ASCII bool
	// NoMouse leaves the mouse to the terminal.
	NoMouse bool
	// Links makes source lines links (OSC 8).
	Links bool
	Units timeline.Units
	// View is the view that opens; 0 opens the overview.
	View leaf.ID
	// Open returns the Loader of one rank of the run or of another file; nil if none can be opened.
	Open func(path string) Loader
	// Exporters are the formats that e offers in addition to the screen as text or picture.
	Exporters []Exporter
	// Planner plans for the Managers view; nil if nothing can be planned.
	Planner managers.Planner
	// Editor is the command that o runs, "" for $VISUAL, then $EDITOR.
	Editor string
	// StateDir is the folder for the crash log, "" for $XDG_STATE_HOME/gmemtop or ~/.local/state/gmemtop.
	StateDir string
	// Input and Output are the terminal, nil for the process's own.
	Input  io.Reader
	Output io.Writer
	// Environ is the environment, nil for the process's own.
	Environ []string
}

// environ is the environment that the program was given.
func (o *Options) environ() []string {
	if o.Environ != nil {
		return o.Environ
	}
	return os.Environ()
}

// env returns a variable of the environment, "" if it is not set.
func (o *Options) env(name string) string {
	for _, e := range slices.Backward(o.environ()) { // the last one counts
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// colors is what the terminal shows where Color asks for colours always: 256 colours at least.
func (o *Options) colors() colorprofile.Profile {
	return max(colorprofile.Env(o.environ()), colorprofile.ANSI256)
}

// editor is the command that o runs, "" if none is set.
func (o *Options) editor() string { return cmp.Or(o.Editor, o.env("VISUAL"), o.env("EDITOR")) }
