package autopsy

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// Headline returns the one sentence on top: when the peak was and what held it, in the words that fit what
// the trace is. Sizes are in units u; ~ stands before what was inferred, ≥ before what is a lower bound.
func Headline(d *timeline.Device, u timeline.Units) string { return wording{d, u}.headline() }

// wording puts what is known about a device into sentences, with sizes in its units.
type wording struct {
	*timeline.Device
	units timeline.Units
}

func (w wording) headline() string {
	t := &w.Totals
	switch {
	case w.Info.Kind == traces.DeviceArena:
		return w.arena()
	case t.PeakAllocated == 0 && w.Allocs.Len() == 0 && w.Timeline().Trace.Cut():
		return "Nothing to show: the file was cut before the first block of " + w.Label() +
			": copy or record it again."
	case w.Len() == 0 && w.Allocs.Len() == 0 && t.EndReserved.Or(0) <= 0:
		return "Nothing to show: the trace has no memory events and no segments for " + w.Label() + "."
	case oomMoment(w.Device) != timeline.Start:
		return w.oom()
	case t.PeakAllocated == 0:
		return fmt.Sprintf("Nothing was allocated on %s while the trace was recorded.", w.Label())
	case !w.HasLifetimes():
		return w.point()
	}
	return w.peak()
}

// bound returns the sign before a figure that may be larger, or that was inferred; "" before an exact one.
func (w wording) bound() string {
	switch w.Totals.Exactness {
	case timeline.LowerBound:
		return "≥ "
	case timeline.Inferred:
		return "~"
	}
	return ""
}

func (w wording) peak() string {
	t := &w.Totals
	of := ""
	if w.Info.Kind != traces.DeviceGPU {
		of = " of " + strings.TrimPrefix(w.Label(), "the ")
		if w.Info.Kind == traces.DeviceCPU {
			of += " memory"
		}
	}
	// what a step needs by a profile of its layers began at no time
	if !t.BeginsEmpty && w.Timeline().Trace.Source.Format != traces.FormatPipeDream {
		of += " since the recording began,"
	}
	s := fmt.Sprintf("Peak %s%s%s %s", w.bound(), w.units.Bytes(t.PeakAllocated), of,
		steps.When(w.Device, t.PeakAt))
	return s + w.holders(t.PeakAt)
}

// holders says what is allocated at a moment: the largest category's share and the largest holder. It ends
// the sentence.
func (w wording) holders(m timeline.Moment) string {
	var s string
	total := int64(0)
	groups := sites.Breakdown(w.Device, m, sites.ByCategory)
	for _, g := range groups {
		total += g.Bytes
	}
	if total == 0 {
		return "."
	}
	if groups[0].Category == timeline.Unknown && groups[0].Largest != timeline.NoAlloc && len(groups) == 1 {
		s = "; the kinds of tensors are not recorded"
	} else {
		s = ": " + share(groups[0], total)
		if groups[0].Category == timeline.Unknown && len(groups) > 1 && groups[1].Bytes*20 >= total {
			s += ", " + share(groups[1], total)
		}
	}
	if h := w.largestHolder(m); h != "" {
		s += ". Largest holder: " + w.logitsFirst(m) + h
	}
	return s + "."
}

// logitsFirst names the logits if they hold more than any call site does, so that this sentence and the
// autopsy's name the same: "the logits, 500 MiB in 4 blocks, then ". Otherwise it is "".
func (w wording) logitsFirst(m timeline.Moment) string {
	set := lossBlocks(w.Device, m)
	groups := sites.Breakdown(w.Device, m, sites.BySite)
	if len(groups) == 0 || set.bytes <= groups[0].Bytes {
		return ""
	}
	return "the logits, " + w.units.Bytes(set.bytes) + blocksWord(set.blocks) + ", then "
}

// share says how much of total a category holds, with ~ where the category was inferred.
func share(g sites.Group, total int64) string {
	sign := ""
	if g.Inferred {
		sign = "~"
	}
	words := g.Category.Words()
	if g.Largest == timeline.NoAlloc {
		words = g.Name
	}
	return fmt.Sprintf("%s%d %% %s", sign, (g.Bytes*100+total/2)/total, words)
}

// largestHolder names the call site that holds most at a moment, else what is known about the bytes without
// one, else the largest block; "" if nothing is allocated.
func (w wording) largestHolder(m timeline.Moment) string {
	groups := sites.Breakdown(w.Device, m, sites.BySite)
	if len(groups) == 0 || groups[0].Bytes == 0 {
		return ""
	}
	switch g := groups[0]; {
	case sites.Name(w.Device, g.Stack) != "":
		return w.holder(&g)
	case len(groups) > 1 && groups[1].Bytes > 0:
		return w.holder(&g) + ", then " + w.holder(&groups[1])
	case g.Largest == timeline.NoAlloc:
		return ""
	default:
		return w.bufferName(g.Largest) + ", " + w.units.Bytes(w.Allocs.Rounded[g.Largest]) +
			w.purpose(g.Largest)
	}
}

// holder names a row of a breakdown by site, its bytes and its blocks.
func (w wording) holder(g *sites.Group) string {
	return g.Words() + ", " + w.units.Bytes(g.Bytes) + blocksWord(g.Blocks) + w.purpose(g.Largest)
}

func blocksWord(n int) string {
	if n <= 1 {
		return ""
	}
	return " in " + timeline.Count(int64(n)) + " blocks"
}

// purpose says why a block is there, where its category tells.
func (w wording) purpose(a timeline.AllocID) string {
	if a != timeline.NoAlloc && w.Allocs.Category[a] == timeline.Activation {
		return " saved for backward"
	}
	return ""
}

func (w wording) point() string {
	t := &w.Totals
	at := timeline.Moment(w.Len() - 1)
	if looksFull(w.Device) {
		return w.full() + w.largestAt(at)
	}
	s := fmt.Sprintf("One moment, no events: %s allocated", w.units.Bytes(t.EndAllocated))
	if reserved := t.EndReserved.Or(0); reserved > 0 {
		s += fmt.Sprintf(" of %s reserved", w.units.Bytes(reserved))
	}
	return s + " on " + w.Label() + w.holders(at)
}

// largestAt names the largest holder in a sentence of its own.
func (w wording) largestAt(m timeline.Moment) string {
	if h := w.largestHolder(m); h != "" {
		return " Largest holder: " + h + "."
	}
	return ""
}

func (w wording) oom() string {
	at := oomMoment(w.Device)
	asked := w.Event(at).Size
	s := fmt.Sprintf("Out of memory %s: asked for %s with %s allocated", steps.When(w.Device, at),
		w.units.Bytes(asked),
		w.units.Bytes(w.Allocated.At(at)))
	return s + w.holders(at)
}

// arena is the sentence of a storage-allocation problem: what any packing needs.
func (w wording) arena() string {
	t := &w.Totals
	if w.Allocs.Len() == 0 {
		return "Nothing to pack: the problem has no buffers."
	}
	largest := timeline.AllocID(0)
	for a := range w.Allocs.Size {
		if w.Allocs.Rounded[a] > w.Allocs.Rounded[largest] {
			largest = timeline.AllocID(a)
		}
	}
	s := fmt.Sprintf("%s buffers to pack: no packing needs less than %s, what is live at time %d",
		timeline.Count(int64(w.Allocs.Len())),
		w.units.Bytes(t.PeakAllocated), w.Time(t.PeakAt))
	if c := w.Info.TotalBytes; c > 0 {
		s += fmt.Sprintf(" (%d %% of the capacity of %s)", (t.PeakAllocated*100+c/2)/c, w.units.Bytes(c))
	}
	return s + fmt.Sprintf(". Largest buffer: %s, %s.", w.bufferName(largest),
		w.units.Bytes(w.Allocs.Rounded[largest]))
}

// bufferName returns what says where a buffer comes from, its block name where nothing does.
func (w wording) bufferName(a timeline.AllocID) string {
	if name := sites.Name(w.Device, w.Origin(a)); name != "" {
		return name
	}
	return w.BlockName(a)
}

// oomMoment returns the failed allocation without recovery, Start if there is none.
func oomMoment(d *timeline.Device) timeline.Moment {
	if d.Totals.OOMs == 0 {
		return timeline.Start
	}
	e := &d.Timeline().Trace.Events
	first, end := d.Timeline().Trace.DeviceEvents(d.ID)
	at, largest := timeline.Start, int64(0)
	for i := end - 1; i >= first; i-- {
		switch e.Action[i] {
		case traces.OOM:
			if at != timeline.Start && largest >= e.Size[i] {
				return at // something as large went through in between: this failure was survived
			}
			at, largest = timeline.Moment(i-first), 0
		case traces.Alloc:
			if at != timeline.Start {
				largest = max(largest, e.Size[i])
			}
		}
	}
	return at
}

// looksFull reports whether nearly all reserved bytes are active at the end, that is also the highest point,
// and the source does not say more about how it came about.
func looksFull(d *timeline.Device) bool {
	t := &d.Totals
	reserved := t.EndReserved.Or(0)
	if d.Info.Kind != traces.DeviceGPU || !t.FinalKnown || reserved == 0 || t.OOMs > 0 {
		return false
	}
	if float64(t.EndActive) < fullShare*float64(reserved) {
		return false
	}
	if c := d.Info.TotalBytes; c > 0 && float64(reserved) < 0.8*float64(c) {
		return false
	}
	if !d.HasLifetimes() {
		return reserved >= fullBytes
	}
	return d.Info.TotalBytes > 0 && float64(t.EndAllocated) >= 0.99*float64(t.PeakAllocated)
}

// fullShare is the share of reserved bytes that must be active at the end for the state to look like one
// after an out-of-memory.
const fullShare = 0.98

// full is the sentence about such a state. It names the kind of memory that takes nearly all, if one does.
func (w wording) full() string {
	reserved := w.Totals.EndReserved.Or(0)
	if g, ok := w.fills(); ok {
		sign := ""
		if g.Inferred {
			sign = "~"
		}
		return fmt.Sprintf("%s is full of %s: %s%s of the %s reserved. This looks like a snapshot taken "+
			"after running out of memory.", w.Label(), g.Category.Words(), sign, w.units.Bytes(g.Bytes),
			w.units.Bytes(reserved))
	}
	return fmt.Sprintf("All but %s of the %s reserved on %s are in use: this looks like a snapshot taken "+
		"after running out of memory.", w.units.Bytes(reserved-w.Totals.EndActive), w.units.Bytes(reserved),
		w.Label())
}

// fills returns the category that takes up nearly all allocated memory at the end.
func (w wording) fills() (sites.Group, bool) {
	groups := sites.Breakdown(w.Device, timeline.Moment(w.Len()-1), sites.ByCategory)
	if len(groups) == 0 || groups[0].Category == timeline.Unknown ||
		float64(groups[0].Bytes) < fullShare*float64(w.Totals.EndAllocated) {
		return sites.Group{}, false
	}
	return groups[0], true
}

// fullBytes is the reserved size below which a state without events says nothing: a small model fills its few
// segments, too.
const fullBytes = 1 << 30

// smallestGPU is less than what the smallest GPU leaves for a process: cards of 2 GiB exist, and a context
// and a desktop take up to 0.75 GiB of one. If a process has less, something else holds the rest. Look-alike:
// a virtual GPU of 1 GiB.
const smallestGPU = 5 << 28
