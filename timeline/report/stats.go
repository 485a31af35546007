package report

import (
	"context"
	"slices"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Stats is the report of one trace. Every figure is in bytes or nanoseconds; nil if the trace does not show
// it.
type Stats struct {
	SchemaVersion int           `json:"schema_version"`
	Headline      string        `json:"headline"`
	Source        Source        `json:"source"`
	Kind          string        `json:"kind"`
	Missing       string        `json:"missing,omitempty"`
	NoLines       string        `json:"no_lines,omitempty"` // why no line of code is named
	Complete      bool          `json:"complete"`
	Losses        []Loss        `json:"losses"`
	Devices       []DeviceStats `json:"devices"`
}

// Source is the file that a report is about.
type Source struct {
	Format string    `json:"format"`
	Path   string    `json:"path"`
	Bytes  int64     `json:"bytes"`
	Tool   string    `json:"tool,omitempty"`
	Rank   maybe.Int `json:"rank"`
}

// Loss is something that the trace lacks, counted.
type Loss struct {
	Name     string `json:"name"`
	Severity string `json:"severity"`
	Count    int64  `json:"count"`
	Detail   string `json:"detail"`
}

// DeviceStats are the figures of one device. Allocated, active and reserved bytes are rounded, as in
// PyTorch's memory_stats. The first two come with the requested bytes, nil if the source does not record
// them. Each peak is the maximum of its own series.
type DeviceStats struct {
	Device     int    `json:"device"`
	DeviceKind string `json:"device_kind"`
	Name       string `json:"name,omitempty"`
	TotalBytes *int64 `json:"total_bytes"`
	Headline   string `json:"headline"`
	oneMoment  bool   // the recording has no events in which anything changes

	Events      int `json:"events"`
	Allocations int `json:"allocations"`
	OOMs        int `json:"ooms"`
	Streams     int `json:"streams"`
	Segments    int `json:"segments"`

	StartAllocated          *int64 `json:"start_allocated_bytes"`
	StartAllocatedRequested *int64 `json:"start_allocated_requested_bytes"`
	StartActive             *int64 `json:"start_active_bytes"`
	StartActiveRequested    *int64 `json:"start_active_requested_bytes"`
	StartReserved           *int64 `json:"start_reserved_bytes"`

	EndAllocated          *int64 `json:"end_allocated_bytes"`
	EndAllocatedRequested *int64 `json:"end_allocated_requested_bytes"`
	EndActive             *int64 `json:"end_active_bytes"`
	EndActiveRequested    *int64 `json:"end_active_requested_bytes"`
	EndReserved           *int64 `json:"end_reserved_bytes"`

	PeakAllocated          *int64 `json:"peak_allocated_bytes"`
	PeakAllocatedRequested *int64 `json:"peak_allocated_requested_bytes"`
	PeakActive             *int64 `json:"peak_active_bytes"`
	PeakActiveRequested    *int64 `json:"peak_active_requested_bytes"`
	PeakReserved           *int64 `json:"peak_reserved_bytes"`

	PeakTime          *int64 `json:"peak_time_ns"`
	PeakEvent         *int64 `json:"peak_event"`
	PeakActiveEvent   *int64 `json:"peak_active_event"`
	PeakReservedEvent *int64 `json:"peak_reserved_event"`

	Window          *Window        `json:"window"`
	FinalKnown      bool           `json:"final_state_known"`
	Law             LawDifference  `json:"law_difference"`
	Exactness       string         `json:"exactness"`
	ExactnessReason string         `json:"exactness_reason"`
	Fragmentation   *Fragmentation `json:"fragmentation"`
	AtEnd           *Fragmentation `json:"fragmentation_at_end"`
	Peak            Breakdown      `json:"peak"`
	Iterations      []Iteration    `json:"iterations"`
	Trend           *Trend         `json:"trend"`
}

// Window is the stretch of events chosen by --from and --to; without these a report has none.
type Window struct {
	FirstEvent int64 `json:"first_event"`
	EndEvent   int64 `json:"end_event"`
}

// LawDifference is start + sum of events - final state, in bytes: 0 if the recording accounts for everything.
type LawDifference struct {
	Allocated          int64 `json:"allocated_bytes"`
	AllocatedRequested int64 `json:"allocated_requested_bytes"`
	Active             int64 `json:"active_bytes"`
	ActiveRequested    int64 `json:"active_requested_bytes"`
	Reserved           int64 `json:"reserved_bytes"`
}

// Fragmentation says where the reserved bytes that no tensor uses are, at one moment: active_requested +
// internal + stranded + cached = reserved.
type Fragmentation struct {
	At              string `json:"at"`
	ActiveRequested int64  `json:"active_requested_bytes"`
	Internal        int64  `json:"internal_bytes"`
	Stranded        int64  `json:"stranded_bytes"`
	Cached          int64  `json:"cached_bytes"`
	PendingFree     int64  `json:"pending_free_bytes"`
	LargestFree     int64  `json:"largest_free_bytes"`
	Reserved        int64  `json:"reserved_bytes"`
	Exactness       string `json:"exactness"`
	ExactnessReason string `json:"exactness_reason"`
}

// Iteration is one training step, Index counted from 0 (text and screens call it by the number at the end of
// Name); times count from the trace's first event and are nil if the trace has no clock.
type Iteration struct {
	Index                  int    `json:"index"`
	Name                   string `json:"name"`
	Start                  *int64 `json:"start_ns"`
	End                    *int64 `json:"end_ns"`
	FirstEvent             int64  `json:"first_event"`
	EndEvent               int64  `json:"end_event"`
	PeakAllocated          int64  `json:"peak_allocated_bytes"`
	PeakAllocatedRequested *int64 `json:"peak_allocated_requested_bytes"`
	Churn                  int64  `json:"churn_bytes"`
	Growth                 int64  `json:"growth_bytes"`
	Blocks                 int    `json:"blocks"`
	Odd                    bool   `json:"odd"`
	Why                    string `json:"why"`
	Source                 string `json:"source"`
	How                    string `json:"-"` // the same in words, to follow "3 iterations"
}

// Trend is the growth of allocated bytes from iteration to iteration, with its 95 % interval.
type Trend struct {
	Slope   float64 `json:"slope_bytes"`
	Low     float64 `json:"low_bytes"`
	High    float64 `json:"high_bytes"`
	Points  int     `json:"points"`
	Leaking bool    `json:"leaking"`
	// Unseen says that blocks that outlive a recorded step are not followed, so that a leak would not show.
	Unseen bool `json:"unseen"`
}

// defaultTopJSON is how many rows each breakdown holds if Options.Top is 0.
const defaultTopJSON = 20

// NewStats computes the report of t. It fails if no device is selected or a bound is not in the trace, or
// with ctx's error.
func NewStats(ctx context.Context, t *timeline.Timeline, o Options) (*Stats, error) {
	tr := t.Trace
	s := &Stats{
		SchemaVersion: SchemaVersion, Source: newSource(tr), Kind: tr.Kind().String(), Missing: tr.Missing(),
		Complete: true, Losses: newLosses(t), Devices: []DeviceStats{},
	}
	devices, err := o.Devices.Of(t)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ds, err := newDeviceStats(ctx, d, o)
		if err != nil {
			return nil, err
		}
		s.Devices = append(s.Devices, ds)
		s.Complete = s.Complete && d.Totals.Complete
		if d.Allocs.Len() > 0 {
			s.NoLines = noLines(tr)
		}
	}
	switch m := t.Main(); {
	case len(devices) == 0:
		s.Headline, s.Complete = "This trace has no memory data for any device.", false
	case m != nil && slices.Contains(devices, m):
		s.Headline = s.Devices[slices.Index(devices, m)].Headline
	default:
		s.Headline = s.Devices[0].Headline
	}
	return s, nil
}

// noLines says why no block has a line of code and what would record them, "" if some have, or if nothing
// could.
func noLines(tr *traces.Trace) string {
	if slices.ContainsFunc(tr.Frames, func(f traces.Frame) bool { return f.Line > 0 }) {
		return ""
	}
	switch {
	case tr.Source.Format == traces.FormatCapture && tr.Kind() == traces.Dataflow:
		return say.NoLines.Text()
	case tr.Source.Format == snapshotFormat:
		return "no lines of code: the snapshot has no stacks; record it with " +
			"torch.cuda.memory._record_memory_history(), whose defaults keep them"
	}
	return ""
}

// snapshotFormat is the format of PyTorch's own snapshots, which can hold lines of code.
const snapshotFormat = "torch_snapshot"

func newSource(tr *traces.Trace) Source {
	return Source{Format: tr.Source.Format, Path: tr.Source.Path, Bytes: tr.Source.Bytes,
		Tool: tr.Source.Tool,
		Rank: tr.Process.Rank}
}

// newLosses returns the losses that the reader found, then those found when matching allocations with frees.
func newLosses(t *timeline.Timeline) []Loss {
	out := []Loss{}
	for _, list := range [][]traces.Loss{t.Trace.Losses, t.Losses} {
		for _, l := range list {
			out = append(out, Loss{l.Name, l.Severity.String(), l.Count, l.Detail})
		}
	}
	return out
}

// figure returns a pointer to a figure, nil if it is unknown or negative.
func figure(f maybe.Int) *int64 { return known(f.Or(-1)) }

// known returns a pointer to n, nil where n is negative: a series that losses made negative has no figure.
func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

func newDeviceStats(ctx context.Context, d *timeline.Device, o Options) (DeviceStats, error) {
	span, err := Resolve(d, o.From, o.To)
	if err != nil {
		return DeviceStats{}, err
	}
	ds := DeviceStats{
		Device: d.Info.Ordinal, DeviceKind: d.Info.Kind.String(), Name: d.Info.Name,
		Headline: autopsy.Headline(d, o.Units), oneMoment: d.Timeline().Trace.OneMoment(),
		Law: LawDifference{d.Totals.LawAllocated, d.Totals.LawAllocatedRequested, d.Totals.LawActive,
			d.Totals.LawActiveRequested,
			d.Totals.LawReserved},
		FinalKnown: d.Totals.FinalKnown,
		Exactness:  d.Totals.Exactness.String(), ExactnessReason: d.Totals.Reason,
	}
	if d.Info.TotalBytes > 0 {
		ds.TotalBytes = known(d.Info.TotalBytes)
	}
	fill := ds.within
	if span.Whole {
		fill = ds.whole
	}
	at := fill(d, span)
	ds.Peak = BreakdownAt(d, at, o.top(defaultTopJSON))
	if err := ds.fragment(ctx, d, at, span); err != nil {
		return DeviceStats{}, err
	}
	ds.iterate(d, span, o.Units)
	return ds, ctx.Err()
}

// whole fills in the figures of the whole recording and returns the moment of the peak.
func (ds *DeviceStats) whole(d *timeline.Device, _ Span) timeline.Moment {
	t := &d.Totals
	ds.Events, ds.Allocations, ds.OOMs, ds.Streams, ds.Segments = t.Events, t.Allocations, t.OOMs, t.Streams,
		t.Segments
	ds.StartAllocated = known(t.StartAllocated)
	ds.StartAllocatedRequested = figure(t.StartAllocatedRequested)
	ds.StartActive, ds.StartActiveRequested = known(t.StartActive), figure(t.StartActiveRequested)
	ds.EndAllocated = known(t.EndAllocated)
	ds.EndAllocatedRequested = figure(t.EndAllocatedRequested)
	ds.EndActive, ds.EndActiveRequested = known(t.EndActive), figure(t.EndActiveRequested)
	if t.PeakReserved.IsKnown() {
		ds.StartReserved, ds.EndReserved = figure(t.StartReserved), figure(t.EndReserved)
		ds.PeakReserved = figure(t.PeakReserved)
	}
	ds.PeakAllocated = known(t.PeakAllocated)
	ds.PeakAllocatedRequested = figure(t.PeakAllocatedRequested)
	ds.PeakActive, ds.PeakActiveRequested = known(t.PeakActive), figure(t.PeakActiveRequested)
	ds.PeakEvent, ds.PeakTime = eventOf(t.PeakAt), timeOf(d, t.PeakAt)
	ds.PeakActiveEvent, ds.PeakReservedEvent = eventOf(t.PeakActiveAt), eventOf(t.PeakReservedAt)
	return t.PeakAt
}

// within fills in the figures of a stretch of events and returns the moment of its peak.
func (ds *DeviceStats) within(d *timeline.Device, s Span) timeline.Moment {
	ds.Window = &Window{int64(s.First), int64(s.End)}
	streams := map[traces.StreamID]bool{}
	for m := s.First; m < s.End; m++ {
		e := d.Event(m)
		streams[e.Stream] = true
		ds.Events++
		switch e.Action {
		case traces.Alloc:
			ds.Allocations++
		case traces.OOM:
			ds.OOMs++
		}
	}
	ds.Streams, ds.Segments = len(streams), d.Totals.Segments
	peak := func(s0 *timeline.Series, to *timeline.Moment) *int64 {
		c := s0.Range(s.First, s.End)
		*to = c.MaxAt
		return known(c.Max)
	}
	before, last := s.First-1, s.End-1
	var at, activeAt, reservedAt timeline.Moment
	ds.StartAllocated, ds.StartActive = known(d.Allocated.At(before)), known(d.Active.At(before))
	ds.EndAllocated, ds.EndActive = known(d.Allocated.At(last)), known(d.Active.At(last))
	ds.PeakAllocated, ds.PeakActive = peak(d.Allocated, &at), peak(d.Active, &activeAt)
	if d.RequestedKnown() {
		allocated, active := d.RequestedSeries(), d.RequestedActiveSeries()
		var own timeline.Moment // each series has its own peak
		ds.StartAllocatedRequested, ds.StartActiveRequested = known(allocated.At(before)),
			known(active.At(before))
		ds.EndAllocatedRequested, ds.EndActiveRequested = known(allocated.At(last)), known(active.At(last))
		ds.PeakAllocatedRequested, ds.PeakActiveRequested = peak(allocated, &own), peak(active, &own)
	}
	if d.Totals.PeakReserved.IsKnown() {
		ds.StartReserved, ds.EndReserved = known(d.Reserved.At(before)), known(d.Reserved.At(last))
		ds.PeakReserved = peak(d.Reserved, &reservedAt)
		ds.PeakReservedEvent = eventOf(reservedAt)
	}
	ds.PeakEvent, ds.PeakTime, ds.PeakActiveEvent = eventOf(at), timeOf(d, at), eventOf(activeAt)
	ds.FinalKnown = false
	return at
}

func eventOf(m timeline.Moment) *int64 {
	if m < 0 {
		return nil
	}
	return known(int64(m))
}

// timeOf returns the time of m since the trace's first event; nil before the first event and if the trace has
// no clock.
func timeOf(d *timeline.Device, m timeline.Moment) *int64 {
	if m < 0 || !d.Timeline().Trace.Clock.HasTime {
		return nil
	}
	t := d.Time(m) - d.Timeline().Zero()
	return &t
}

func (ds *DeviceStats) fragment(ctx context.Context, d *timeline.Device, at timeline.Moment, s Span) error {
	var err error
	if ds.Fragmentation, err = fragmentationAt(ctx, d, at, "peak"); err != nil {
		return err
	}
	if ds.AtEnd, err = fragmentationAt(ctx, d, s.End-1, "end"); err != nil {
		return err
	}
	if ds.Fragmentation == nil {
		ds.Fragmentation = ds.AtEnd
	}
	return nil
}

func fragmentationAt(ctx context.Context, d *timeline.Device, at timeline.Moment,
	name string) (*Fragmentation, error) {
	st, err := timeline.StateAt(ctx, d, at)
	if err != nil || st == nil || !st.Known {
		return nil, err
	}
	return newFragmentation(st, name), nil
}

func newFragmentation(st *timeline.AllocatorState, name string) *Fragmentation {
	return &Fragmentation{
		At: name, ActiveRequested: st.ActiveRequested, Internal: st.Internal, Stranded: st.Stranded,
		Cached:      st.Cached,
		PendingFree: st.PendingFree, LargestFree: st.LargestFree, Reserved: st.Reserved,
		Exactness: st.Exactness.String(), ExactnessReason: st.Reason,
	}
}

func (ds *DeviceStats) iterate(d *timeline.Device, s Span, u timeline.Units) {
	ds.Iterations = []Iteration{}
	its := steps.Of(d)
	if its == nil {
		return
	}
	origin := d.Timeline().Zero()
	for i := range its.List {
		it := &its.List[i]
		if it.End <= s.First || it.First >= s.End {
			continue
		}
		row := Iteration{
			Index: it.Index, Name: it.Name, FirstEvent: int64(it.First), EndEvent: int64(it.End),
			PeakAllocated: it.PeakAllocated,
			Churn:         it.Churn, Growth: it.Growth, Blocks: it.Blocks, Odd: it.Odd, Why: it.Why(u),
			Source: its.Source.String(), How: its.Source.Words(),
		}
		if d.RequestedKnown() {
			row.PeakAllocatedRequested = known(d.RequestedSeries().Range(it.First, it.End).Max)
		}
		if d.Timeline().Trace.Clock.HasTime {
			start, end := it.Start-origin, it.Finish-origin
			row.Start, row.End = &start, &end
		}
		ds.Iterations = append(ds.Iterations, row)
	}
	if t := its.Trend; t.Points > 1 && s.Whole && finite(t.Slope, t.Low, t.High) {
		ds.Trend = &Trend{t.Slope, t.Low, t.High, t.Points, t.Leaking, t.Unseen}
	}
}
