package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"
)

// clock is the time, which tests can stop.
type clock struct {
	now   func() time.Time
	after func(time.Duration, func(time.Time) tea.Msg) tea.Cmd
}
