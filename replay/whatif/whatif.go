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

// What would the same run have needed? The requests, frees, streams and pools of the recording are given to
// the emulated allocator again, under other settings and on a device of a given capacity, up to the request
// that failed for good or to the end.
//
// Capacity. The allocator could have at least as much as it ever held. At an out-of-memory PyTorch has given
// its cache back and records what the driver has left; what it holds then and what is left is all that it
// could have. Where the recorded settings would be served under that, the failure had another reason (a
// memory fraction, a process that was gone a moment later), and the capacity is taken to be the recorded peak
// of reserved bytes: a lower bound, under which "it fits" still holds. Without an out-of-memory nothing
// limits the device, unless segments given back show that the driver refused: then the recorded peak does.
// Under its own peak a run behaves as it did under any limit above it that it met: what was granted is
// granted again, and what was refused is refused. So the recorded settings reproduce the recorded peak, but
// for one thing: which address a new segment gets is the driver's choice, and decides between holes of equal
// size. Under other settings that choice is not known. It is the simulated driver's in every play, that of
// the recorded settings included, and only where that reproduces the recorded peak is a figure exact.
//
// The smallest cap. What an allocator reserves under no pressure says little about what it needs, for it
// keeps what it was given. allocator.SmallestCap searches between the peak of allocated bytes and a peak
// under which the run completes; the cap reported is one that was played.
//
// The start. A recording that begins in the middle has a state shaped by the recorded settings. It is taken
// as it is, which is what changing the settings at that moment would do. What they save from there is shown
// by the recording; what they would have saved had the process begun with them is not, so that a failed
// request that is not served from there may have been served (FromStart). A limit on splitting is left out:
// PyTorch relies on no larger block ever having been divided.
//
// Failures that the process survived are asked for again and freed at once where they are served: what it did
// instead is recorded, what it would have done is not.
//
// Left out: garbage_collection_threshold, which acts only on a share of what set_per_process_memory_fraction
// allows; a recording does not tell that share.
//
// O(n log n) for each play of n steps; plays are bounded in number, and all together by Options.Work.
//
// Rejected: to lay the blocks of the start afresh under each setting. It makes them lie without holes under
// all of them, the recorded ones included, so that what it saves is due to what it forgot.
//
// Rejected: to add up holes at the failed request. It is what timeline's levers estimate; whether whole pages
// come free, and how the run gets there, depends on every decision before.

// Options say what to play. The zero value takes everything from the recording.
type Options struct {
	// Candidates are the settings to try; nil for those that are worth it.
	Candidates []Candidate
	// Capacity is the most bytes that the allocator may hold; 0 for what the recording shows.
	Capacity int64
	// Work bounds the steps played, 0 for some seconds' worth.
	Work int64
}

// defaultWork bounds the steps played if Options.Work does not: some seconds.
const defaultWork = 12_000_000

// Bounds below which the emulation of the recorded settings is too far from the recording to say anything of
// others.
const (
	leastScore   = 0.9
	mostPeakOver = 0.05
)

// errSpent ends a search for which no work is left.
var errSpent = errors.New("the work is spent")

// Outcome is what would become of the run under some settings. Bytes; moments are the recording's.
type Outcome struct {
	Candidate
	// Completes says that every request up to the failed one, or the end, was served under the capacity; else
	// FailsAt is the first that was not.
	Completes bool
	FailsAt   timeline.Moment
	// Served says that the request that failed in the recording would have been served under the capacity.
	Served bool
	// PeakReserved is the most that was held under the capacity.
	PeakReserved int64
	// SmallestCap is the smallest memory that the run was seen to complete in, the failed request included; 0
	// where it was not looked for or not found.
	SmallestCap int64
	// DriverCalls counts segments obtained and given back, and pages mapped and unmapped; Retries requests
	// that were tried again after the cache was given back.
	DriverCalls, Retries int64
	Exactness            timeline.Exactness
}

// fits reports whether everything was served under the capacity, the failed request included where there is
// one.
func (o *Outcome) fits(failed bool) bool { return o.Completes && (o.Served || !failed) }

// Result is the answer for one device.
type Result struct {
	// Fidelity is what the emulation made of the recorded settings.
	Fidelity *fidelity.Report
	// Capacity is what the allocator may hold, 0 for no limit. CapacityAtLeast says that it may have been
	// more.
	Capacity        int64
	CapacityAtLeast bool
	// Failed is the request that failed for good, timeline.Start where none did or where its failure cannot
	// be reproduced.
	Failed timeline.Moment
	// FromStart says that the recording begins empty, so that the settings are in force from the first
	// allocation on.
	FromStart bool
	// Recorded is the outcome of the recorded settings, Outcomes those of the candidates in their order.
	Recorded Outcome
	Outcomes []Outcome
	// Notes are what limits the answer, a clause each.
	Notes []string

	program *fidelity.Program
	held    []timeline.AllocID // of the blocks that program begins with
	from    timeline.Moment    // before its first step
	period  int                // see there, 0 where the process was not seen at the failed request before
}

// Spare returns how much of the capacity the smallest cap leaves free, negative where that much is missing;
// ok is false where either is not known.
func (r *Result) Spare(o *Outcome) (bytes int64, ok bool) {
	return r.Capacity - o.SmallestCap, r.Capacity > 0 && o.SmallestCap > 0
}

// ErrUnproven is wrapped by Allocator's error where the emulation of the recorded settings is too far from
// the recording.
var ErrUnproven = errors.New("the emulation of the recorded settings is too far from the recording")

// ErrTooLong is wrapped by Allocator's error where the recording has more steps than may be played.
var ErrTooLong = errors.New("the recording is too long to be played under other settings")

// Allocator plays a device's recording under other allocator settings. failed is the oom event that the
// process did not recover from, timeline.Start where there is none. The error is a *fidelity.Refusal where
// the recording cannot be replayed; it wraps ErrUnproven or ErrTooLong where that would prove nothing or take
// too long; or it is the context's.
func Allocator(ctx context.Context, d *timeline.Device, failed timeline.Moment, o Options) (*Result, error) {
	if failed != timeline.Start && (failed < 0 || int(failed) >= d.Len() ||
		d.Event(failed).Action != traces.OOM) {
		return nil, fmt.Errorf("what if: event %d is no out-of-memory", failed)
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
	exact  bool  // the play of the recorded settings has the recorded peak
	result *Result
}

// proven reports whether the emulation did in every way what PyTorch did.
func proven(r *fidelity.Report) bool {
	return r.Score() == 1 && r.SegmentScore() == 1 && r.FinalScore() == 1 && r.PeakError() == 0
}

// reproduce plays the recorded settings under the recorded peak. Other than in the replay, where segments lie
// is not taken from the recording; where that makes a difference to the peak, no figure is exact.
func (w *whatIf) reproduce(ctx context.Context) error {
	r, t := w.result, &w.d.Totals
	peak, limit := t.PeakReserved.Or(0), int64(0)
	if w.failed != timeline.Start || r.Fidelity.Refusals > 0 {
		limit = peak
	}
	p, err := w.count(ctx, r.Fidelity.Settings, limit)
	if err != nil {
		return fmt.Errorf("what if nothing were changed: %w", err)
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

// shorten goes on with the end of a long recording.
func (w *whatIf) shorten() error {
	t, r := w.tail, w.result
	w.tail = nil
	switch {
	case t == nil:
		return nil
	case t.program == nil && int64(len(w.program.Steps))*4 > w.work:
		return fmt.Errorf("%w: %d steps", ErrTooLong, len(w.program.Steps))
	case t.program == nil: // the play of the recorded settings did not come so far
		return nil
	}
	w.program, w.blocks, w.events = t.program, nil, nil
	r.program, r.held, r.from, r.FromStart = t.program, t.held, t.moment, false
	note := fmt.Sprintf("the recording is long: what would help is played from event %d on", t.moment)
	r.Notes = append(r.Notes, note)
	return nil
}

// limit finds the capacity and plays the recorded settings under it.
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
		free := max(w.d.Event(r.Failed).DeviceFree(), 0)
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

// outcomes plays the candidates, and then looks for the smallest caps as far as the work goes.
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

// outcome plays the settings once, under the capacity.
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

// smallestCap looks for the smallest memory that the run completes in.
func (w *whatIf) smallestCap(ctx context.Context, o *Outcome) error {
	if w.work <= 0 {
		return nil
	}
	fits := func(p *played) bool { return p.completes && (p.served || w.failed == timeline.Start) }
	p, err := w.count(ctx, o.Settings, 0)
	if err != nil || !fits(&p) {
		// a device without limit may be larger than the recorded addresses have room for: then none was found
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
