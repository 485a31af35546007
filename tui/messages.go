package tui

import (
	"time"

	"github.com/gmemtop/gmemtop/timeline"
)

// loadedMsg ends a load, with what was sound and what went wrong.
type loadedMsg struct {
	load   int
	loaded Loaded
	err    error
}

// empty reports whether nothing that was loaded can be shown.
func (m loadedMsg) empty() bool {
	return m.err != nil && len(m.loaded.Timelines) == 0 && m.loaded.Run == nil
}

// analysedMsg says that a device's iterations, phases and headline are computed, or that computing them
// failed by a fault of ours.
type analysedMsg struct {
	device   *timeline.Device
	headline string
	fault    any
	stack    []byte
}

// foundMsg brings the blocks that a filter selects, for n and N.
type foundMsg struct {
	text   string
	device *timeline.Device
	blocks []timeline.AllocID
	err    error
}

// toastEndMsg takes a toast down unless a newer one stands there.
type toastEndMsg struct{ number int }

// followedMsg ends a visit to the editor.
type followedMsg struct{ err error }

// exportedMsg ends an export.
type exportedMsg struct {
	path  string
	bytes int64
	err   error
}

// existsMsg says that the file to export to is there already, and what would overwrite it.
type existsMsg struct{ job exportJob }

// saveMsg starts an export.
type saveMsg struct{ job exportJob }

// runMsg runs an action of the key map: the message of a clickable hint of the root's own.
type runMsg struct{ action string }

// themeMsg takes a theme by its name.
type themeMsg struct{ name string }

// tickMsg redraws the loading screen until the load ends.
type tickMsg struct {
	load int
	at   time.Time
}
