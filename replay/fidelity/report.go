package fidelity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/timeline"
)

// Report says how well the emulation did. Bytes are int64; shares are between 0 and 1.
type Report struct {
	// Settings are the settings of the replay; SettingsRecorded is false if the recording has none and
	// PyTorch's defaults were used. Settings.Torch is the release whose rules were followed: the recorded one
	// if TorchRecorded, else the one whose rules fit best.
	Settings         allocator.Settings
	SettingsRecorded bool
	TorchRecorded    bool
	// FromEmpty says that the recording, and so the replay, begins empty; else it begins with Restored blocks
	// in segments rebuilt from the final state.
	FromEmpty bool
	Restored  int
	// Rests counts restored blocks whose size beyond the rounded request was inferred, see restore.go.
	Rests int

	// Allocations counts alloc events, SamePlace those that the emulation put at the recorded address.
	Allocations, SamePlace int
	// SegmentEvents counts recorded segment events, SameSegments those that the emulation has in the same
	// order, with the same action, size and address. EmulatedSegmentEvents counts its own.
	SegmentEvents, SameSegments, EmulatedSegmentEvents int
	// FinalBlocks counts the blocks and holes of the final state, SameFinal those that the emulation ends
	// with; 0 of 0 if the recording has no final state.
	FinalBlocks, SameFinal int

	PeakReserved, EmulatedPeakReserved int64

	// EmptiedCaches counts how often the replay assumes that the program emptied the cache, Refusals how
	// often it assumes that the driver refused memory: neither is recorded, both follow from returned
	// segments.
	EmptiedCaches, Refusals int

	// First is the first difference, nil if there is none.
	First *Divergence
	// Caveats limit the proof, one clause each.
	Caveats []string
}

// Divergence is a decision that the emulation took differently.
type Divergence struct {
	At                 timeline.Moment
	Recorded, Emulated string
	// Why is the cause as far as known, one clause.
	Why string
}

// Score returns the share of allocations put in the very same place; 1 if there were none.
func (r *Report) Score() float64 { return share(r.SamePlace, r.Allocations) }

// SegmentScore returns the share of segment events that are the same, counted over the longer of both
// sequences; 1 where neither has any.
func (r *Report) SegmentScore() float64 {
	return share(r.SameSegments, max(r.SegmentEvents, r.EmulatedSegmentEvents))
}

// FinalScore returns the share of the final state's blocks and holes that the emulation ends with; 1 where
// there are none.
func (r *Report) FinalScore() float64 { return share(r.SameFinal, r.FinalBlocks) }

// PeakError returns how far the emulated peak of reserved bytes is from the recorded one, relative to it.
func (r *Report) PeakError() float64 {
	if r.PeakReserved == 0 {
		return 0
	}
	return float64(r.EmulatedPeakReserved-r.PeakReserved) / float64(r.PeakReserved)
}

// exact reports whether everything agrees.
func (r *Report) exact() bool {
	return r.First == nil && r.SamePlace == r.Allocations && r.SegmentScore() == 1 && r.FinalScore() == 1
}

// better reports whether r fits the recording better than o.
func (r *Report) better(o *Report) bool {
	a, b := r.Score()+r.SegmentScore()+r.FinalScore(), o.Score()+o.SegmentScore()+o.FinalScore()
	if r.exact() != o.exact() || a == b {
		return r.exact() && !o.exact()
	}
	return a > b
}

func share(n, of int) float64 {
	if of == 0 {
		return 1
	}
	return float64(n) / float64(of)
}

// percent never rounds up to 100.
func percent(n, of int) string {
	switch p := 100 * share(n, of); {
	case n == of:
		return "100 %"
	case p > 99.9:
		return ">99.9 %"
	default:
		return fmt.Sprintf("%.1f %%", p)
	}
}

// Summary is the proof in half a line, with sizes in units u: "100 % of 6,488 allocations placed as recorded;
// peak reserved 22.2 GiB, as recorded".
func (r *Report) Summary(u timeline.Units) string {
	s := fmt.Sprintf("%s of %s allocations placed as recorded", percent(r.SamePlace, r.Allocations),
		grouped(r.Allocations))
	if n := max(r.SegmentEvents, r.EmulatedSegmentEvents); r.SameSegments < n {
		s += fmt.Sprintf(", %s of %s segment events the same", percent(r.SameSegments, n), grouped(n))
	}
	if r.EmulatedPeakReserved == r.PeakReserved {
		s += fmt.Sprintf("; peak reserved %s, as recorded", u.Bytes(r.PeakReserved))
	} else {
		s += fmt.Sprintf("; peak reserved %s, recorded %s", u.Bytes(r.EmulatedPeakReserved),
			u.Bytes(r.PeakReserved))
	}
	if d := r.First; d != nil {
		s += fmt.Sprintf("; first difference at event %d: %s", d.At, d.Why)
	}
	return s
}

// grouped prints n with a comma between groups of three digits.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Sentence says how well the emulation did, with sizes in units u.
func (r *Report) Sentence(u timeline.Units) string {
	var b strings.Builder
	if r.SamePlace == r.Allocations {
		fmt.Fprintf(&b, "The emulated allocator put all %d allocations where PyTorch did", r.Allocations)
	} else {
		fmt.Fprintf(&b, "The emulated allocator put %s of %d allocations where PyTorch did",
			percent(r.SamePlace, r.Allocations), r.Allocations)
	}
	switch n := max(r.SegmentEvents, r.EmulatedSegmentEvents); {
	case n == 0:
		b.WriteString(", neither asked the driver for anything")
	case r.SameSegments == n:
		fmt.Fprintf(&b, ", with the same %d segment events", n)
	default:
		fmt.Fprintf(&b, ", with %s of %d segment events the same", percent(r.SameSegments, n), n)
	}
	switch {
	case r.EmulatedPeakReserved == r.PeakReserved:
		fmt.Fprintf(&b, "; reserved peaks at %s in both", u.Bytes(r.PeakReserved))
	default:
		fmt.Fprintf(&b, "; reserved peaks at %s, emulated %s (%+.2f %%)",
			u.Bytes(r.PeakReserved), u.Bytes(r.EmulatedPeakReserved), 100*r.PeakError())
	}
	if !r.FromEmpty {
		fmt.Fprintf(&b, "; it began with %d blocks rebuilt from the final state", r.Restored)
		if r.Rests > 0 {
			fmt.Fprintf(&b, ", %d of them with an inferred size", r.Rests)
		}
	}
	b.WriteByte('.')
	if d := r.First; d != nil {
		fmt.Fprintf(&b, " First difference at event %d: recorded %s, emulated %s: %s.", d.At, d.Recorded,
			d.Emulated, d.Why)
	}
	return b.String()
}

// Reason says why a recording is refused.
type Reason uint8

// The reasons of a Refusal.
const (
	// NotCachingAllocator: the device's memory is not handed out by PyTorch's caching allocator for GPUs.
	NotCachingAllocator Reason = iota
	// NoAllocations: the recording has no alloc event, so there is nothing to replay.
	NoAllocations
	// NoSegments: the recording has neither segment events nor segments, so there is nothing to compare with.
	NoSegments
	// BeginningLost: the recording begins in the middle and has no final state to rebuild its beginning from.
	BeginningLost
	// EventsMissing: events within the recording are missing, so the replay would go wrong through no fault
	// of its own.
	EventsMissing
	// StateUnknown: the state at the start could not be rebuilt.
	StateUnknown
	// SettingsUnknown: the recorded settings cannot be read, or name an allocator that is not emulated.
	SettingsUnknown
)

var reasonNames = [...]string{
	"not_caching_allocator", "no_allocations", "no_segments", "beginning_lost", "events_missing",
	"state_unknown", "settings_unknown",
}

// String returns the reason's name in reports.
func (r Reason) String() string { return reasonNames[r] }

// ErrRefused matches every Refusal.
var ErrRefused = errors.New("this recording cannot be replayed")

// Refusal is the error for a recording that Replay cannot simulate.
type Refusal struct {
	Reason Reason
	// Text says what is missing and what to do, in lower case.
	Text string
	// Err is the underlying error, nil for none.
	Err error
}

// Error returns one sentence.
func (r *Refusal) Error() string {
	s := ErrRefused.Error() + ": " + r.Text
	if r.Err != nil {
		s += ": " + r.Err.Error()
	}
	return s
}

// Unwrap makes errors.Is(err, ErrRefused) hold.
func (r *Refusal) Unwrap() []error {
	if r.Err == nil {
		return []error{ErrRefused}
	}
	return []error{ErrRefused, r.Err}
}

func refuse(reason Reason, err error, format string, args ...any) error {
	return &Refusal{Reason: reason, Text: fmt.Sprintf(format, args...), Err: err}
}
