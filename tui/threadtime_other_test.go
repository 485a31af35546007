//go:build !linux

package tui

import "time"

// threadTime is unknown here.
func threadTime() time.Duration { return 0 }
