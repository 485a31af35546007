package tui

import "github.com/gmemtop/gmemtop/tui/dialog"

// The messages of the root itself; those of a component stand beside it.

// runMsg runs an action of the key map: the message of a clickable hint.
type runMsg struct{ action string }

// openMsg opens a dialog.
type openMsg struct{ dialog dialog.Dialog }
