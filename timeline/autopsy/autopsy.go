package autopsy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Which moment to explain, and from what.
//
// The moment is that of the failed allocation from which the program did not recover. Of several oom events
// it is the first after the last success: a failure was survived if an allocation at least as large succeeded
// after it. Without an oom event, a recording that ends with nearly everything reserved in use looks like one
// taken after a failure, and is marked inferred. Otherwise the moment is the peak.
//
// Every figure comes from the recording: the driver's free bytes from the oom event, holes from the
// allocator's state at that moment, the device's capacity if known. What these do not show is said in words,
// and its figure is unknown rather than estimated.

// Of explains the out-of-memory error of the recording, or its peak if there was none, with sizes in units u.
// It returns the context's error when cancelled.
func Of(ctx context.Context, d *timeline.Device, u timeline.Units) (*Result, error) {
	a := &Result{At: At(d)}
	if oomMoment(d) != timeline.Start {
		e := d.Event(a.At)
		a.OOM, a.Asked = true, maybe.Known(e.Size)
		if d.Info.Kind == traces.DeviceGPU {
			a.Tried = maybe.Known(driverBytes(e.Size))
		}
		a.Free = e.DeviceFree()
	} else {
		a.Inferred = looksFull(d)
	}
	state, err := timeline.StateAt(ctx, d, a.At)
	if err != nil {
		return nil, err
	}
	a.State = state
	for _, g := range sites.Breakdown(d, a.At, sites.BySite) {
		if g.Bytes > 0 {
			a.Holders = append(a.Holders, g)
		}
	}
	f := factsOf(d, a, u)
	found := faults(d, a, u)
	if d.Info.Kind == traces.DeviceGPU && d.Timeline().Trace.OfPyTorch() {
		a.Causes = f.judged(found, func() bool { return newHeight(evidenceOf(d, a, u)) },
			func() Cause { return f.otherCause(wording{d, u}, a.At) })
	}
	if a.Levers, err = levers(ctx, d, a, f, found); err != nil {
		return nil, err
	}
	a.Sentence, a.Advice = wording{d, u}.autopsy(a, f)
	a.Sentence += a.Advice
	if len(found) > 0 {
		a.Advice, a.Named, a.Savings = "", nil, nil
		if name := found[0].lever.name; name != "" {
			a.Named = []string{name}
		}
		a.Sentence = found[0].said + " " + found[0].advice() + f.asking(d.Allocated.At(a.At))
		a.Levers = slices.DeleteFunc(a.Levers, func(l Lever) bool { return found[0].outgrows(l.Name) })
	} else if slices.ContainsFunc(a.Causes, isLimit) {
		a.Advice, a.Named, a.Savings = "", []string{raiseLimit}, nil
		a.Sentence = f.limitSentence() + f.asking(d.Allocated.At(a.At))
	}
	return a, nil
}

// At returns the moment that [Of] explains: the failed request, the end of a recording that looks as if it
// was taken after one, or else the peak.
func At(d *timeline.Device) timeline.Moment {
	if at := oomMoment(d); at != timeline.Start {
		return at
	}
	if looksFull(d) || !d.HasLifetimes() {
		return timeline.Moment(d.Len() - 1)
	}
	return d.Totals.PeakAt
}

// RanOut reports whether the recording ends with an out-of-memory, or looks like one taken after it.
func RanOut(d *timeline.Device) bool { return oomMoment(d) != timeline.Start || looksFull(d) }

// autopsy is the answer in one or two sentences: the main cause with the figures that show it, and what
// follows it, of the first lever that helps.
func (w wording) autopsy(a *Result, f *facts) (s, advice string) {
	peak := ""
	none, cut := "No out-of-memory here.", w.Timeline().Trace.Cut()
	switch {
	case w.Timeline().Trace.DiedOutOfMemory():
		none = "The process ran out of memory and died, and the allocation that failed is not in this " +
			"recording."
	case cut:
		none = "The file is cut off, and what there is shows no out-of-memory."
	}
	switch {
	case a.OOM:
		s = f.oomSentence(a)
		if n := w.Totals.OOMs - 1; n > 0 {
			s += fmt.Sprintf(" (%s more requests failed in this recording.)", count(n))
		}
	case a.Inferred:
		if g, ok := w.fills(); ok && g.Category == timeline.Parameter { // the table shows what holds them
			a.Named = []string{"smaller_weights", "weights_on_host", "shard_parameters"}
			return w.full(), " Load the weights in a smaller type, keep part of them on the host, or " +
				"shard them over several GPUs."
		}
		s = w.full() + w.largestAt(a.At)
	case cut && w.Totals.PeakAllocated == 0 && w.Totals.EndAllocated == 0:
		return "The file is cut off before the first allocation.", ""
	case w.Totals.PeakAllocated == 0 && w.Totals.EndAllocated == 0:
		return "Nothing was allocated, so nothing can be saved.", ""
	case w.Info.Kind == traces.DeviceArena:
		return w.headline(), ""
	default:
		if c := w.loss(a); c != "" {
			a.Named = []string{a.Levers[0].Name}
			if w.Timeline().Trace.DiedOutOfMemory() {
				c = none + " " + c
			}
			return c + w.growth(), ""
		}
		// What would help comes before what is on every other screen too.
		s, peak = none+w.growth(), " "+w.headline()
	}
	for _, l := range a.Levers {
		if a.OOM && l.Fits == Fits && !l.Unsure && !f.served() {
			a.Named = []string{l.Name}
			return s, " " + l.fitText(w.units)
		}
	}
	a.Savings = w.savings(a)
	if len(a.Savings) > 0 {
		a.Named = []string{a.Savings[0].Lever}
		return s, a.Savings[0].Text + peak
	}
	return s + peak, ""
}

// savings returns what may be called the biggest saving, in the order of the levers.
func (w wording) savings(a *Result) (list []Saving) {
	most := " Biggest saving: "
	for _, l := range a.Levers {
		switch {
		case l.Saves.Or(0) <= 0, l.Unsure, a.OOM && l.ofReserved():
			// no saving, or not for the request that failed
		case l.needsRanks() && w.Timeline().Trace.Process.WorldSize.Or(1) < 2:
			// The table begins with what takes more of them.
			most = " Biggest saving on one GPU: "
			if w.Info.Kind == traces.DeviceCPU {
				most = " Biggest saving with one process: "
			}
		default:
			head := most
			smaller := func(x Lever) bool { return x.Name == microBatch && x.Saves.Or(0) > l.Saves.Or(0) }
			if slices.ContainsFunc(a.Levers, smaller) {
				head = " Biggest saving without a smaller batch: "
			}
			list = append(list, Saving{Lever: l.Name, Bytes: l.Saves.Or(0),
				Text: head + l.gerund() + ", " + l.savesText(w.units) + "."})
		}
	}
	return list
}

// oomSentence says what was requested, what was free, and which cause alone would have been enough.
func (f *facts) oomSentence(a *Result) string {
	s := "OOM: asked for " + f.units.Bytes(a.Asked.Or(0))
	if !f.known {
		if free, ok := a.Free.Value(); ok {
			s += "; the driver had " + f.units.Bytes(free) + " free"
		}
		return s + "; the trace has no segments, so it does not show the cause inside the allocator."
	}
	s += fmt.Sprintf("; %s are free", f.units.Bytes(f.free()))
	if f.largestPiece() < f.free() {
		s += ", the largest hole is " + f.units.Bytes(f.largestPiece())
	}
	var main, explained []string
	for _, c := range a.Causes {
		switch word := causeWords[c.Kind]; {
		case !c.Main:
		case c.Kind == "unknown" || c.Kind == "other_process": // which mean little without their text
			explained = append(explained, strings.ToUpper(word[:1])+word[1:]+": "+c.Text+".")
		default:
			main = append(main, word)
		}
	}
	switch {
	case len(main) > 0:
		s += ": " + strings.Join(main, ", and ")
	case len(explained) == 0:
		s += "; no single cause explains it"
	}
	s = strings.Join(append([]string{s + "."}, explained...), " ")
	if len(a.Causes) > 0 && a.Causes[0].Main && a.Causes[0].Kind == "too_large" && len(a.Holders) > 0 {
		g := &a.Holders[0]
		s += fmt.Sprintf(" Largest holder: %s, %s%s.", named(g.Words()), f.units.Bytes(g.Bytes),
			blocksWord(g.Blocks))
	}
	return s
}

// loss is the sentence for a peak that consists of the logits, "" otherwise.
func (w wording) loss(a *Result) string {
	if len(a.Levers) == 0 || a.Levers[0].Name != "chunked_loss" || a.Levers[0].Saves.Or(0) <= 0 {
		return ""
	}
	set := lossBlocks(w.Device, a.At)
	return fmt.Sprintf("Your peak of %s is the logits: %s of it, for %s. Computing the loss in chunks "+
		"takes %s off it.",
		w.units.Bytes(w.Totals.PeakAllocated), w.units.Bytes(set.bytes), timeline.Duration(set.duration),
		w.units.Bytes(a.Levers[0].Saves.Or(0)))
}
