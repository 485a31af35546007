package runs

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// Each rank is read once, summarised in some hundred KiB, and released, so that a thousand fit in memory.
//
// Outliers are ranks whose peak is off the median by more than 3.5 robust standard deviations (median
// absolute deviation), by 1 % of it and by 64 MiB: ranks of one run do the same thing, so their own spread is
// often zero, and the floors keep noise from standing out. Of two ranks neither is one: both are as far off
// the median, which is their only spread.
//
// The order of allocations shows where an outlier diverges: at the first one whose size or call site is not
// that of most ranks at the same place. Recordings that begin mid-run are compared from the beginning of
// their first iteration.

const (
	siteSignatures = 4096     // allocations kept individually for each rank
	outlierScore   = 3.5      // robust standard deviations
	outlierShare   = 100      // 1/100 of the median
	outlierBytes   = 64 << 20 // bytes
)

// Summarise reduces a rank's timeline to what a run keeps of it: the device with the highest peak. [from, to)
// is the run's clock in absolute nanoseconds, cut into that many equal columns; from == to uses the
// recording's own clock. It returns the context's error when cancelled.
func Summarise(ctx context.Context, t *timeline.Timeline, from, to int64, columns int) (RankSummary, error) {
	p := &t.Trace.Process
	r := RankSummary{Rank: p.Rank, Path: t.Trace.Source.Path, Host: p.Host}
	d := t.Main()
	if d == nil {
		return r, nil
	}
	r.Device, r.Totals = d.Info, d.Totals
	first, last := d.Span()
	epoch := t.Trace.Clock.Epoch
	r.From, r.To = epoch+first, epoch+last
	r.PeakTime = epoch + d.Time(d.Totals.PeakAt)
	if from == to {
		from, to = r.From, r.To
	}
	for _, g := range sites.Breakdown(d, d.Totals.PeakAt, sites.BySite) {
		r.Top = g
		r.Top.Name = cmp.Or(sites.Name(d, g.Stack), g.Name)
		break
	}
	if err := ctx.Err(); err != nil {
		return r, err
	}
	r.Strip = strip(d, from-epoch, to-epoch, columns)
	r.Sites, r.Steps = siteSequence(d)
	return r, nil
}

// strip returns the most bytes allocated in each of n equal stretches of [from, to), 0 outside of the
// recording.
func strip(d *timeline.Device, from, to int64, n int) []int64 {
	if to <= from {
		return nil
	}
	strip := make([]int64, n)
	first, last := d.Span()
	width := float64(to-from) / float64(n)
	for i := range strip {
		lo, hi := from+int64(float64(i)*width), from+int64(float64(i+1)*width)
		if hi <= first || lo >= last {
			continue
		}
		strip[i] = d.Allocated.Range(d.MomentAt(lo-1)+1, d.MomentAt(hi-1)+1).Max
	}
	return strip
}

// siteSequence returns the first allocations from the beginning of the first iteration, or of the recording
// if that begins empty or has no iterations, and the places in them at which iterations begin.
func siteSequence(d *timeline.Device) (seq []SiteSignature, begin []RankStep) {
	first := d.Begun(timeline.Start)
	list := steps.Of(d).List
	if len(list) > 0 && !d.Totals.BeginsEmpty {
		first, _ = d.AllocsIn(list[0].First, list[0].End)
	}
	end := min(first+siteSignatures, timeline.AllocID(d.Allocs.Len()))
	hashes := d.Timeline().Kinds().Hashes(d.Timeline().Places())
	names := map[traces.StackID]string{traces.NoStack: ""}
	for a := first; a < end; a++ {
		st := d.Origin(a)
		name, ok := names[st]
		if !ok {
			name = strings.Clone(sites.Name(d, st))
			names[st] = name
		}
		sig := SiteSignature{Size: d.Allocs.Size[a], Name: name}
		if st >= 0 {
			sig.Hash = hashes[st]
		}
		seq = append(seq, sig)
	}
	for _, x := range list {
		if a, _ := d.AllocsIn(x.First, x.End); a >= first && a < end {
			begin = append(begin, RankStep{int32(a - first), strings.Clone(x.Name)})
		}
	}
	return seq, begin
}

// Build puts the ranks on one clock: outliers first, then by rank; the median peak; and where the first
// outlier diverges from the others. The slice is reordered in place and kept.
func Build(ranks []RankSummary) *Run {
	r := &Run{Ranks: ranks}
	var peaks []int64
	for i := range ranks {
		if ranks[i].Err == nil {
			peaks = append(peaks, ranks[i].Totals.PeakAllocated)
		}
	}
	r.Median = stats.Median(peaks)
	limit := max(outlierScore*steps.Spread(peaks), float64(r.Median)/outlierShare, outlierBytes)
	off := func(s *RankSummary) float64 {
		if s.Err != nil {
			return 0
		}
		if n := math.Abs(float64(s.Totals.PeakAllocated - r.Median)); n > limit {
			return n
		}
		return 0
	}
	slices.SortStableFunc(ranks, func(a, b RankSummary) int {
		if x, y := off(&a), off(&b); x != y {
			if x > y {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Rank.Or(math.MaxInt64), b.Rank.Or(math.MaxInt64))
	})
	for r.Outliers < len(ranks) && off(&ranks[r.Outliers]) > 0 {
		r.Outliers++
	}
	r.Divergence = r.divergence()
	return r
}

// divergence returns the first place at which a rank's allocation is not that of most ranks: for the first
// outlier that diverges or, if no outlier recorded allocations, for the rank that diverges first.
func (r *Run) divergence() *Divergence {
	var able []*RankSummary
	outliers := 0 // of able, which begins with them
	for i := range r.Ranks {
		if s := &r.Ranks[i]; s.Err == nil && len(s.Sites) > 0 {
			able = append(able, s)
			if i < r.Outliers {
				outliers++
			}
		}
	}
	if len(able) < 3 {
		return nil
	}
	usual := majority(able)
	if outliers > 0 {
		for _, s := range able[:outliers] {
			if i := s.departs(usual); i < len(usual) {
				return diverge(s, i, usual[i])
			}
		}
		return nil
	}
	var first *RankSummary
	at := len(usual)
	for _, s := range able {
		if i := s.departs(usual); i < at {
			first, at = s, i
		}
	}
	if first == nil {
		return nil
	}
	return diverge(first, at, usual[at])
}

// departs returns the first place at which a rank's allocation is not the usual one; len(usual) if there is
// none, also because its recording is shorter.
func (s *RankSummary) departs(usual []SiteSignature) int {
	for i := range min(len(usual), len(s.Sites)) {
		if !s.Sites[i].same(&usual[i]) {
			return i
		}
	}
	return len(usual)
}

// same reports whether two ranks make the same allocation at one place.
func (s *SiteSignature) same(o *SiteSignature) bool { return s.Hash == o.Hash && s.Size == o.Size }

// majority returns the allocation that more than half of the ranks share at each place, up to the first place
// without one. In a healthy run that is the sequence of nearly any rank: the last one's is counted first, all
// places in one pass, and the rest is voted on, place by place.
func majority(ranks []*RankSummary) []SiteSignature {
	lead := ranks[len(ranks)-1].Sites
	others := make([]int, len(lead))  // the ranks that make another allocation at a place
	ended := make([]int, len(lead)+1) // the ranks whose recordings end at a place
	for _, s := range ranks {
		n := min(len(lead), len(s.Sites))
		ended[n]++
		usual := lead[:n]
		for i := range s.Sites[:n] { // nearly all are the same, so this only reads
			if !usual[i].same(&s.Sites[i]) {
				others[i]++
			}
		}
	}
	shared, left := 0, len(ranks)-ended[0]
	for shared < len(lead) && 2*(left-others[shared]) > len(ranks) {
		shared++
		left -= ended[shared]
	}
	return voted(ranks, lead[:shared:shared])
}

// voted appends the majority of each place from len(out) on. It is found by the vote of Boyer and Moore and
// checked by a count.
func voted(ranks []*RankSummary, out []SiteSignature) []SiteSignature {
	for i := len(out); ; i++ {
		var lead SiteSignature
		votes := 0
		for _, s := range ranks {
			switch {
			case i >= len(s.Sites):
			case votes == 0:
				lead, votes = s.Sites[i], 1
			case lead.same(&s.Sites[i]):
				votes++
			default:
				votes--
			}
		}
		n := 0
		for _, s := range ranks {
			if i < len(s.Sites) && lead.same(&s.Sites[i]) {
				n++
			}
		}
		if 2*n <= len(ranks) {
			return out
		}
		out = append(out, lead)
	}
}

// diverge locates the allocation at which a rank diverges from the others.
func diverge(s *RankSummary, i int, want SiteSignature) *Divergence {
	got := &s.Sites[i]
	d := &Divergence{
		Of: s, Index: i, Site: got.Name, Size: got.Size, Usual: want,
		Elsewhere: got.Hash != want.Hash, InIteration: i,
	}
	for _, step := range s.Steps {
		if int(step.First) <= i {
			d.Iteration, d.InIteration = step.Name, i-int(step.First)
		}
	}
	return d
}

// text says where the rank diverges and what the others allocate instead, with sizes in units u.
func (d *Divergence) text(u timeline.Units) string {
	at := fmt.Sprintf("allocation %d", d.InIteration+1)
	if d.Iteration != "" {
		at = d.Iteration + ", " + at
	}
	site := cmp.Or(d.Site, "a call site without a stack")
	s := fmt.Sprintf("%s, %s: %s where the others allocate %s", at, site, u.Bytes(d.Size),
		u.Bytes(d.Usual.Size))
	if d.Elsewhere && d.Usual.Name != "" {
		s += " in " + d.Usual.Name
	}
	return s
}

// Sentence says what most ranks peak at, which one stands out, and where it diverges, with sizes in units u.
func (r *Run) Sentence(u timeline.Units) string {
	good, bad := 0, 0
	for i := range r.Ranks {
		if r.Ranks[i].Err != nil {
			bad++
		} else {
			good++
		}
	}
	what := "rank"
	if !r.Numbered() && good > 0 {
		what = "recording"
	}
	switch {
	case good == 0 && bad == 1:
		return "The only " + what + " could not be read."
	case good == 0:
		return fmt.Sprintf("None of the %s could be read.", timeline.Counted(bad, what))
	}
	var s string
	switch {
	case good == 1:
		for i := range r.Ranks {
			if x := &r.Ranks[i]; x.Err == nil {
				s = fmt.Sprintf("One %s, peak %s.", what, u.Bytes(x.Totals.PeakAllocated))
			}
		}
	case r.Outliers == 0:
		s = fmt.Sprintf("%s peak at %s, none stands out.", timeline.Counted(good, what), u.Bytes(r.Median))
		if low, high := r.extremes(); high.Totals.PeakAllocated-low.Totals.PeakAllocated > r.Median/2 {
			s = fmt.Sprintf("%s peak between %s and %s: %s is the highest.", timeline.Counted(good, what),
				u.Bytes(low.Totals.PeakAllocated), u.Bytes(high.Totals.PeakAllocated), high.Name())
		}
	default:
		top := &r.Ranks[0]
		s = fmt.Sprintf("%s peak at %s, %s at %s", timeline.Counted(good-r.Outliers, what),
			u.Bytes(r.Median), top.Name(), u.Bytes(top.Totals.PeakAllocated))
		switch more := r.Outliers - 1; {
		case more == 1:
			s += "; 1 more stands out"
		case more > 1:
			s += fmt.Sprintf("; %d more stand out", more)
		}
		s += "."
	}
	if d := r.Divergence; d != nil {
		rank := ""
		if r.Outliers == 0 || d.Of != &r.Ranks[0] {
			rank = " of " + d.Of.Name()
		}
		s += fmt.Sprintf(" First allocation%s that differs: %s.", rank, d.text(u))
	}
	if bad > 0 {
		s += fmt.Sprintf(" %d could not be read.", bad)
	}
	return s
}

// Numbered reports whether all recordings that could be read know their ranks. Otherwise their files tell
// them apart.
func (r *Run) Numbered() bool {
	known := false
	for i := range r.Ranks {
		s := &r.Ranks[i]
		if !s.Rank.IsKnown() && s.Err == nil {
			return false
		}
		known = known || s.Rank.IsKnown()
	}
	return known
}

// extremes returns the ranks with the lowest and the highest peak; at least one can be read.
func (r *Run) extremes() (low, high *RankSummary) {
	for i := range r.Ranks {
		s := &r.Ranks[i]
		if s.Err != nil {
			continue
		}
		if low == nil || s.Totals.PeakAllocated < low.Totals.PeakAllocated {
			low = s
		}
		if high == nil || s.Totals.PeakAllocated > high.Totals.PeakAllocated {
			high = s
		}
	}
	return low, high
}

// Run is many ranks on one clock.
type Run struct {
	Ranks      []RankSummary // outliers first, then by rank
	Apart      bool          // the ranks have no time in common: each is on a clock that begins with it
	Outliers   int           // how many of Ranks are outliers
	Median     int64         // median peak
	Divergence *Divergence   // nil if all agree
}

// RankSummary is what a run keeps of one rank, so that a thousand ranks fit in memory.
type RankSummary struct {
	Rank     maybe.Int
	Path     string
	Host     string
	Err      error // why the rank could not be read; the rest is zero then
	Device   traces.Device
	Totals   timeline.Totals
	PeakTime int64
	Top      sites.Group // largest holder at the peak
	Strip    []int64     // max allocated bytes in each of len(Strip) equal stretches of the run's clock
	From, To int64       // absolute nanoseconds (Clock.Epoch + time)
	Sites    []SiteSignature
	Steps    []RankStep // the iterations that begin within Sites, in order
}

// Name names the rank in a sentence: by its number or, if that is unknown, by its file.
func (s *RankSummary) Name() string {
	if s.Rank.IsKnown() {
		return "rank " + s.Rank.String()
	}
	return filepath.Base(s.Path)
}

// RankStep is an iteration of a rank: the place in Sites at which it begins, and its name.
type RankStep struct {
	First int32
	Name  string
}

// SiteSignature is one allocation in the sequence by which ranks are compared: its size and a stack hash that
// ignores line numbers.
type SiteSignature struct {
	Hash uint64
	Size int64
	Name string
}

// Divergence is the first allocation at which a rank diverges from the others.
type Divergence struct {
	Of          *RankSummary // the rank
	Index       int
	Site        string // "" for a call site without a stack
	Size        int64
	Usual       SiteSignature // what most ranks allocate there
	Elsewhere   bool          // the others allocate it at another call site
	Iteration   string        // the name of its iteration, "" before the first
	InIteration int           // its index within the iteration
}
