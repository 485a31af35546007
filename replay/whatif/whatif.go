package whatif

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/fidelity"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// What would the same run have needed? The requests, frees, streams and pools of the recording are played
// against the emulated allocator again, under other settings and on a device of a given capacity, up to the
// request that failed for good or to the end.
//
// Capacity. The allocator could hold at least as much as it ever did. At an out-of-memory error PyTorch has
// released its cache and records what the driver has left; what it holds then plus what is left is all it
// could have. If the recorded settings would be served with that capacity, the failure had another reason (a
// memory fraction, or a process that was gone a moment later), and the capacity is taken to be the recorded
// peak of reserved bytes: a lower bound, with which "it fits" still holds. Without an out-of-memory error
// nothing limits the device, unless released segments show that the driver refused: then the recorded peak
// does. Limited to its own peak, a run behaves as under any higher limit that it met: what was granted is
// granted again, and what was refused is refused. So the recorded settings reproduce the recorded peak, with
// one exception: the driver chooses the address of a new segment, and that decides between holes of equal
// size. Under other settings that choice is not known. The simulated driver makes it in every play, including
// that of the recorded settings, and a figure is exact only if that play reproduces the recorded peak.
//
// The smallest cap. What an allocator reserves without pressure says little about what it needs, because it
// keeps what it was given. allocator.SmallestCap searches between the peak of allocated bytes and a peak
// under which the run completes; the cap reported is one that was played.
//
// The start. A recording that begins in the middle has a state shaped by the recorded settings. It is used as
// it is, as if the settings changed at that moment. The recording shows what they save from there on, but not
// what they would have saved if the process had begun with them. So a failed request that is not served from
// there might have been served (FromStart). A limit on splitting is left out: PyTorch relies on no larger
// block ever having been split.
//
// Failures that the process survived are requested again, and freed at once if they are served: the recording
// has what the process did instead, not what it would have done.
//
// Left out: garbage_collection_threshold, which applies to a share of what set_per_process_memory_fraction
// allows; a recording does not contain that fraction.
//
// O(n log n) for each play of n steps. The number of plays is bounded, and Options.Work bounds all together.
//
// Rejected: placing the initial blocks afresh under each setting. That leaves no holes under any of them,
// including the recorded one, so part of the saving would come from holes that were forgotten.
//
// Rejected: adding up holes at the failed request, as timeline's levers do for an estimate. Whether whole
// pages become free, and how the run gets there, depends on every earlier decision.

// Options select what to play. The zero value takes everything from the recording.
type Options struct {
	// Candidates are the settings to try; nil for those worth trying.
	Candidates []Candidate
	// Capacity is the most bytes that the allocator may hold; 0 for what the recording shows.
	Capacity int64
	// Work bounds the steps played; 0 for a few seconds' worth.
	Work int64
}

// defaultWork bounds the steps played if Options.Work does not: a few seconds' worth.
const defaultWork = 12_000_000

// Below these bounds the emulation of the recorded settings is too far from the recording to say anything
// about others.
const (
	leastScore   = 0.9
	mostPeakOver = 0.05
)

// errSpent ends a search when its work is spent.
var errSpent = errors.New("the limit on work is reached")

// Outcome is what would happen to the run under some settings. Sizes are in bytes; moments are the
// recording's.
type Outcome struct {
	Candidate
	// Completes says that every request up to the failed one, or the end, was served within the capacity.
	// Otherwise FailsAt is the first that was not.
	Completes bool
	FailsAt   timeline.Moment
	// Served says that the request that failed in the recording would have been served under the capacity.
	Served bool
	// PeakReserved is the peak of reserved bytes within the capacity.
	PeakReserved int64
	// SmallestCap is the smallest memory in which a play completed, including the failed request; 0 if it was
	// not searched for or not found.
	SmallestCap int64
	// DriverCalls counts segments allocated and freed, and pages mapped and unmapped. Retries counts requests
	// that were retried after the cache was released.
	DriverCalls, Retries int64
	Exactness            timeline.Exactness
}

// fits reports whether everything was served within the capacity, including the failed request if there is
// one.
func (o *Outcome) fits(failed bool) bool { return o.Completes && (o.Served || !failed) }

// Result is the answer for one device.
type Result struct {
	// Fidelity compares the emulation of the recorded settings with the recording.
	Fidelity *fidelity.Report
	// Capacity is what the allocator may hold, 0 for no limit. CapacityAtLeast says that it may have been
	// more.
	Capacity        int64
	CapacityAtLeast bool
	// Failed is the request that failed for good, timeline.Start if none did or if its failure cannot be
	// reproduced.
	Failed timeline.Moment
	// FromStart says that the recording begins empty, so that the settings apply from the first allocation
	// on.
	FromStart bool
	// Recorded is the outcome of the recorded settings, Outcomes those of the candidates in their order.
	Recorded Outcome
	Outcomes []Outcome
	// Notes say what limits the answer, in one clause each.
	Notes []string

	program *fidelity.Program
	held    []timeline.AllocID // of the blocks at the start of program
	from    timeline.Moment    // before its first step
	period  int                // see period.go; 0 if the process was not seen at the failed request before
}

// Spare returns how much of the capacity the smallest cap leaves free, negative if that much is missing; ok
// is false if either is unknown.
func (r *Result) Spare(o *Outcome) (bytes int64, ok bool) {
	return r.Capacity - o.SmallestCap, r.Capacity > 0 && o.SmallestCap > 0
}

// ErrUnproven is wrapped by Allocator's error if the emulation of the recorded settings is too far from the
// recording.
var ErrUnproven = errors.New("the emulation of the recorded settings is too far from the recording")

// ErrPrivatePool says that the failed request was for a private pool. For such requests PyTorch does not give
// its cache back to the driver (captures_underway in DeviceCachingAllocator::malloc), and the emulation does.
var ErrPrivatePool = errors.New("the request was for a private pool (CUDA graphs, user pools), and what " +
	"PyTorch gives back for those is not emulated")

// inPrivatePool reports whether an event is recorded as one of a private pool.
func inPrivatePool(d *timeline.Device, m timeline.Moment) bool {
	first, _ := d.Timeline().Trace.DeviceEvents(d.ID)
	x := d.Timeline().Trace.DetailOf(first + int(m))
	return x.HasPool && x.Pool != traces.Pool{}
}

// ErrTooLong is wrapped by Allocator's error if the recording has more steps than may be played.
var ErrTooLong = errors.New("the recording is too long to be played under other settings")

// Allocator plays a device's recording under other allocator settings. failed is the oom event from which the
// process did not recover, timeline.Start if there is none. The error is a *fidelity.Refusal if the recording
// cannot be replayed. It wraps ErrUnproven or ErrTooLong if that would prove nothing or take too long.
// Otherwise it is the context's.
func Allocator(ctx context.Context, d *timeline.Device, failed timeline.Moment, o Options) (*Result, error) {
	if failed != timeline.Start && (failed < 0 || int(failed) >= d.Len() ||
		d.Event(failed).Action != traces.OOM) {
		return nil, fmt.Errorf("what if: event %d is not an out-of-memory", failed)
	}
	if failed != timeline.Start && inPrivatePool(d, failed) {
		return nil, ErrPrivatePool
	}
	program, report, err := fidelity.Record(ctx, d)
	if err != nil {
		return nil, err
	}
	if report.Score() < leastScore || report.PeakError() > mostPeakOver ||
		report.PeakError() < -mostPeakOver {
		return nil, fmt.Errorf("%w: %s", ErrUnproven, report.Sentence(timeline.IEC))
	}
	if o.Work <= 0 {
		o.Work = defaultWork
	}
	if o.Candidates == nil {
		o.Candidates = candidates(d, report.Settings, program)
	}
	requests := 0
	if failed != timeline.Start {
		requests = period(d, failed)
	}
	end := tailOf(d, program, failed, requests)
	if end == nil && int64(len(program.Steps))*4 > o.Work {
		return nil, fmt.Errorf("%w: %d steps", ErrTooLong, len(program.Steps))
	}
	w := &whatIf{
		player: player{program: program, total: d.Info.TotalBytes, failed: failed}, d: d, work: o.Work,
		result: &Result{Fidelity: report, Failed: failed, FromStart: program.Start == nil, program: program,
			held: startOf(d, program), period: requests},
	}
	w.tail = end
	if err := w.reproduce(ctx); err != nil {
		return nil, err
	}
	if err := w.shorten(); err != nil {
		return nil, err
	}
	if err := w.limit(ctx, o.Capacity); err != nil {
		return nil, err
	}
	if err := w.outcomes(ctx, o.Candidates); err != nil {
		return nil, err
	}
	return w.result, nil
}

type whatIf struct {
	player
	d      *timeline.Device
	work   int64 // steps left
	exact  bool  // the play of the recorded settings reproduces the recorded peak
	result *Result
}

// proven reports whether the emulation matched PyTorch in every respect.
func proven(r *fidelity.Report) bool {
	return r.Score() == 1 && r.SegmentScore() == 1 && r.FinalScore() == 1 && r.PeakError() == 0
}

// reproduce plays the recorded settings with the recorded peak as the limit. Unlike the replay, it does not
// take segment addresses from the recording; if that changes the peak, no figure is exact.
func (w *whatIf) reproduce(ctx context.Context) error {
	r, t := w.result, &w.d.Totals
	peak, limit := t.PeakReserved.Or(0), int64(0)
	if w.failed != timeline.Start || r.Fidelity.Refusals > 0 {
		limit = peak
	}
	p, err := w.count(ctx, r.Fidelity.Settings, limit)
	if err != nil {
		return fmt.Errorf("replay the run unchanged: %w", err)
	}
	want := peak
	if w.failed != timeline.Start {
		want = w.d.Reserved.Range(0, w.failed+1).Max
	}
	w.exact = proven(r.Fidelity) && p.completes && p.stats.PeakReserved == want &&
		t.RequestedExactness == timeline.Exact
	if p.stats.PeakReserved != want {
		r.Notes = append(r.Notes, fmt.Sprintf("with segments at other addresses the recorded settings "+
			"would hold %d bytes, %+d",
			p.stats.PeakReserved, p.stats.PeakReserved-want))
	}
	return nil
}

// shorten reduces a long recording to its end.
func (w *whatIf) shorten() error {
	t, r := w.tail, w.result
	w.tail = nil
	switch {
	case t == nil:
		return nil
	case t.program == nil && int64(len(w.program.Steps))*4 > w.work:
		return fmt.Errorf("%w: %d steps", ErrTooLong, len(w.program.Steps))
	case t.program == nil: // the play of the recorded settings did not get this far
		return nil
	}
	w.program, w.blocks, w.events = t.program, nil, nil
	r.program, r.held, r.from, r.FromStart = t.program, t.held, t.moment, false
	note := fmt.Sprintf("the recording is long: changes are tried from event %d on", t.moment)
	r.Notes = append(r.Notes, note)
	return nil
}

// limit finds the capacity and plays the recorded settings within it.
func (w *whatIf) limit(ctx context.Context, capacity int64) error {
	r, peak := w.result, w.d.Totals.PeakReserved.Or(0)
	recorded := Candidate{Name: Recorded, Settings: r.Fidelity.Settings}
	try := func(capacity int64, atLeast bool) (err error) {
		r.Capacity, r.CapacityAtLeast = capacity, atLeast
		r.Recorded, err = w.outcome(ctx, recorded)
		return err
	}
	reproduced := func() bool { return r.Recorded.Completes && !r.Recorded.Served }
	switch {
	case capacity > 0:
		return try(capacity, false)
	case r.Failed != timeline.Start:
		free := w.d.Event(r.Failed).DeviceFree().Or(0)
		if err := try(max(w.d.Reserved.At(r.Failed)+free, peak), false); err != nil || reproduced() {
			return err
		}
		if err := try(peak, true); err != nil || reproduced() {
			return err
		}
		r.Notes = append(r.Notes, "the failed request cannot be reproduced under any limit that the "+
			"recording shows: what follows leaves it out")
		r.Failed, w.failed = timeline.Start, timeline.Start
		return try(0, false)
	case r.Fidelity.Refusals > 0:
		return try(peak, true)
	}
	return try(0, false)
}

// outcomes plays the candidates, and then searches for the smallest caps as far as its work allows.
func (w *whatIf) outcomes(ctx context.Context, candidates []Candidate) error {
	r := w.result
	var leftOut []string
	for i, c := range candidates {
		if w.work <= 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%d settings are left out: the recording is too long to "+
				"play them all", len(candidates)-i))
			break
		}
		if w.program.Start != nil && c.Settings.MaxSplitSize != r.Fidelity.Settings.MaxSplitSize {
			leftOut = append(leftOut, c.Option)
			continue
		}
		o, err := w.outcome(ctx, c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.Notes = append(r.Notes, err.Error())
			continue
		}
		r.Outcomes = append(r.Outcomes, o)
	}
	if len(leftOut) > 0 {
		r.Notes = append(r.Notes, "the start of the recording has segments divided as these settings would "+
			"not have them, which are left out: "+
			strings.Join(leftOut, ", "))
	}
	if err := w.smallestCap(ctx, &r.Recorded); err != nil {
		return err
	}
	for i := range r.Outcomes {
		if err := w.smallestCap(ctx, &r.Outcomes[i]); err != nil {
			return err
		}
	}
	return nil
}

// outcome plays the settings once, within the capacity.
func (w *whatIf) outcome(ctx context.Context, c Candidate) (Outcome, error) {
	p, err := w.count(ctx, c.Settings, w.result.Capacity)
	if err != nil {
		return Outcome{}, fmt.Errorf("what if %s: %w", c.Option, err)
	}
	s := &p.stats
	o := Outcome{
		Candidate: c, Completes: p.completes, FailsAt: p.failsAt, Served: p.served,
		PeakReserved: s.PeakReserved, Exactness: timeline.Inferred,
		DriverCalls: s.DriverMallocs + s.DriverFrees + s.Maps + s.Unmaps, Retries: s.Retries,
	}
	if w.exact && p.regained == 0 && (w.program.Start == nil || c.Name == Recorded) {
		o.Exactness = timeline.Exact
	}
	return o, nil
}

func (w *whatIf) count(ctx context.Context, s allocator.Settings, limit int64) (played, error) {
	p, err := w.play(ctx, s, limit)
	w.work -= p.steps
	return p, err
}

// smallestCap searches for the smallest memory in which the run completes.
func (w *whatIf) smallestCap(ctx context.Context, o *Outcome) error {
	if w.work <= 0 {
		return nil
	}
	fits := func(p *played) bool { return p.completes && (p.served || w.failed == timeline.Start) }
	p, err := w.count(ctx, o.Settings, 0)
	if err != nil || !fits(&p) {
		// without a limit the device may be larger than the addresses that a recording has room for: then
		// none was found
		return ctx.Err()
	}
	high, low := p.stats.PeakReserved, p.stats.PeakAllocated-1
	if o.fits(w.failed != timeline.Start) {
		high = min(high, o.PeakReserved)
	}
	smallest, err := allocator.SmallestCap(low, high, func(limit int64) (int64, bool, error) {
		if w.work <= 0 {
			return 0, false, errSpent
		}
		p, err := w.count(ctx, o.Settings, limit)
		return p.stats.PeakReserved, err == nil && fits(&p), ctx.Err()
	})
	if err != nil && !errors.Is(err, errSpent) {
		return err
	}
	o.SmallestCap = smallest
	return nil
}
