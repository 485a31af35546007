//go:build !linux

package tui

import "time"

// threadTime is not known here.
func threadTime() time.Duration { return 0 }
