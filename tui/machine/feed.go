// Package machine is the view of the machine's GPUs and the processes that can be watched, to choose one
// from.
//
// It knows neither NVML nor /proc: it looks at a [Feed], which cmd makes from both. On a machine without a
// GPU it lists the processes that use torch on the CPU, which can be watched too.
package machine

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Feed is the machine as the screen sees it. Its methods are safe for concurrent use.
type Feed interface {
	// Look returns what is known now. It is cheap; its slices are shared and must not be changed.
	Look() Look
	// Wait returns when there is something newer than a Look of that version, or ctx's error when ctx is
	// done.
	Wait(ctx context.Context, version int64) error
}

// Look is what is known of the machine at one moment.
type Look struct {
	// Version grows with every change.
	Version int64
	Host    string
	Driver  string
	Devices []Device
	// NoDevices says why there is none, and how to fix that.
	NoDevices string
	Processes []Process
}

// Device is one GPU. Figures that the driver does not give are unknown, and never drawn as zero.
type Device struct {
	Index          int
	Name           string
	Used, Total    maybe.Int // bytes
	Reserved       maybe.Int // bytes reserved by the driver
	Busy           maybe.Int // percent of the time
	Celsius        maybe.Int
	Watts, Limit   maybe.Int
	Received, Sent maybe.Int // bytes a second over PCIe
	// Clock and MemoryClock are MHz of the processors and the memory; Slowed says what slows them down, ""
	// for nothing.
	Clock, MemoryClock maybe.Int
	Slowed             string
	// LinkReceived and LinkSent are bytes a second over NVLink, all links together.
	LinkReceived, LinkSent maybe.Int
	// ECC is 1 if memory is checked and 0 if not; Corrected counts errors repaired since the driver was
	// loaded.
	ECC, Corrected maybe.Int
	// MIG means that the device is divided; Instances are its parts.
	MIG       bool
	Instances []Instance
	// Alarm is what is wrong with it: uncorrected errors, rows waiting to be remapped; "" for nothing.
	Alarm string
	// History is Used at equal intervals, the newest last.
	History []maybe.Int
	Every   time.Duration
}

// share returns how much of the device is used, 0 to 1; negative if the driver does not say.
func (d *Device) share() float64 {
	return float64(d.Used.Or(-1)) / float64(max(d.Total.Or(0), 1))
}

// Instance is a part of a divided device.
type Instance struct {
	Name        string
	Used, Total maybe.Int
}

// Process is a process that holds GPU memory or has torch loaded.
type Process struct {
	PID     int
	User    string
	Command string
	// Devices are the indices of its GPUs, nil for none.
	Devices []int
	// Bytes is its GPU memory, Host its resident host memory.
	Bytes, Host maybe.Int
	Busy        maybe.Int     // percent of the time
	Age         time.Duration // 0 where unknown
	// Torch means that torch is loaded; No says why gmemtop cannot attach to it, "" if it can.
	Torch bool
	No    string
	// History is Bytes at equal intervals, the newest last, or Host where Bytes are unknown.
	History []maybe.Int
	Every   time.Duration
}

// Messages of the machine.
type (
	// LookMsg brings the newest look.
	LookMsg struct{ Look Look }
	// AttachMsg asks the root to watch a process.
	AttachMsg struct{ Process Process }
)

// Await returns the command that waits for something newer than a version and returns it as a LookMsg; nil
// when ctx is done.
func Await(ctx context.Context, f Feed, version int64) tea.Cmd {
	return func() tea.Msg {
		if f.Wait(ctx, version) != nil {
			return nil
		}
		return LookMsg{f.Look()}
	}
}
