package runs

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// The difference of two recordings at their peaks. Call sites are the same if the functions and files of
// their stacks are (see siteHashes): a line added above, another folder or another build of PyTorch do not
// make a site new. A site's blocks show the cause of its difference: none before, none after, as many but
// larger, more of the same size, or both.

// Compare returns the differences between recordings a and b: at each one's peak by category and by call
// site, and in the metrics that --fail-if can check. If one peaks in a warm-up step and the other in a steady
// one, the rows are those of the highest steady step of each. It returns the context's error when cancelled.
func Compare(ctx context.Context, a, b *timeline.Device) (*Diff, error) {
	x := &Diff{A: a, B: b, SideA: sideAt(a, a.Totals.PeakAt), SideB: sideAt(b, b.Totals.PeakAt)}
	if unlike(x.SideA, x.SideB) {
		x.SideA, x.SideB = steadySide(a), steadySide(b)
	}
	return x, x.compare(ctx)
}

// CompareSides compares two moments that the user chose, as [StepSide] returns them.
func CompareSides(ctx context.Context, a, b *timeline.Device, sideA, sideB Side) (*Diff, error) {
	x := &Diff{A: a, B: b, SideA: sideA, SideB: sideB, chosen: true}
	return x, x.compare(ctx)
}

// compare fills the rows and the metrics.
func (x *Diff) compare(ctx context.Context) error {
	x.Categories, x.Sites = x.categoryRows(), x.siteRows()
	if x.SitesApart() {
		x.Sites = parted(x.Sites)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return x.measure(ctx)
}

func (x *Diff) categoryRows() []DiffRow {
	rows := make([]DiffRow, timeline.NumCategories)
	for c := range rows {
		rows[c] = DiffRow{Name: timeline.Category(c).String(), StackA: traces.NoStack, StackB: traces.NoStack}
	}
	for _, g := range sites.Breakdown(x.A, x.SideA.At, sites.ByCategory) {
		rows[g.Category].merge(&DiffRow{Inferred: g.Inferred, A: g.Bytes, BlocksA: g.Blocks,
			StackA: traces.NoStack, StackB: traces.NoStack})
	}
	for _, g := range sites.Breakdown(x.B, x.SideB.At, sites.ByCategory) {
		rows[g.Category].merge(&DiffRow{Inferred: g.Inferred, B: g.Bytes, BlocksB: g.Blocks,
			StackA: traces.NoStack, StackB: traces.NoStack})
	}
	rows = slices.DeleteFunc(rows, func(r DiffRow) bool { return r.A == 0 && r.B == 0 })
	return finishRows(rows)
}

// siteRows joins the two peaks by stack, and then the stacks that share a site into one row. A row's stacks
// are those with the most bytes on each side. Its name is B's, so a site found only in A is listed under the
// name that its code has in B.
func (x *Diff) siteRows() []DiffRow {
	j := siteJoin{index: map[siteKey]int{}}
	j.add(x.A, x.SideA.At, 0)
	j.add(x.B, x.SideB.At, 1)
	inB := map[string]string{} // the sites of a by their names in b
	for _, y := range j.rows {
		if _, known := inB[y[0].name]; !known && y[0].name != "" && y[1].name != "" {
			inB[y[0].name] = y[1].name
		}
	}
	at := map[string]int{}
	var rows []DiffRow
	for _, y := range j.rows {
		r := DiffRow{
			Name: cmp.Or(y[1].name, cmp.Or(inB[y[0].name], y[0].name)), A: y[0].bytes, B: y[1].bytes,
			BlocksA: y[0].blocks, BlocksB: y[1].blocks, StackA: y[0].stack, StackB: y[1].stack,
		}
		if k, ok := at[r.Name]; ok {
			rows[k].merge(&r)
			continue
		}
		at[r.Name] = len(rows)
		rows = append(rows, r)
	}
	return finishRows(rows)
}

// merge adds a row of the same site that comes later in the order of the breakdowns.
func (r *DiffRow) merge(o *DiffRow) {
	r.A, r.B, r.BlocksA, r.BlocksB = r.A+o.A, r.B+o.B, r.BlocksA+o.BlocksA, r.BlocksB+o.BlocksB
	r.Inferred = r.Inferred || o.Inferred
	if r.StackA == traces.NoStack {
		r.StackA = o.StackA
	}
	if r.StackB == traces.NoStack {
		r.StackB = o.StackB
	}
}

// siteKey identifies a stack across recordings: its hash or, without a stack, the name of the row.
type siteKey struct {
	hash uint64
	name string
}

// siteJoin collects what two recordings hold by key: [0] for the first, [1] for the second.
type siteJoin struct {
	index map[siteKey]int
	rows  [][2]siteSide
}

// siteSide is what one recording holds at a site; name is "" if it holds nothing there.
type siteSide struct {
	name   string
	bytes  int64
	blocks int
	stack  traces.StackID
}

// add adds the breakdown by stack at a moment of a device to one side.
func (j *siteJoin) add(d *timeline.Device, m timeline.Moment, side int) {
	hashes := d.Timeline().Kinds().Hashes(d.Timeline().Places())
	for _, g := range sites.Breakdown(d, m, sites.ByStack) {
		key := siteKey{name: g.Name}
		if g.Stack != traces.NoStack {
			key = siteKey{hash: hashes[g.Stack]}
		}
		i, ok := j.index[key]
		if !ok {
			i = len(j.rows)
			j.index[key] = i
			none := siteSide{stack: traces.NoStack}
			j.rows = append(j.rows, [2]siteSide{none, none})
		}
		x := &j.rows[i][side]
		x.bytes += g.Bytes
		x.blocks += g.Blocks
		if x.name == "" {
			x.name, x.stack = g.Name, g.Stack
		}
	}
}

// finishRows names the causes and sorts by the size of the difference.
func finishRows(rows []DiffRow) []DiffRow {
	for i := range rows {
		rows[i].Cause = causeOf(&rows[i])
	}
	slices.SortStableFunc(rows, func(x, y DiffRow) int {
		return cmp.Or(cmp.Compare(abs(y.B-y.A), abs(x.B-x.A)), cmp.Compare(y.B, x.B),
			cmp.Compare(x.Name, y.Name))
	})
	return rows
}

func abs(n int64) int64 { return max(n, -n) }

// causeOf finds the cause of a row's difference in its blocks; "" if nothing differs.
func causeOf(r *DiffRow) string {
	switch {
	case r.A == r.B && r.BlocksA == r.BlocksB:
		return ""
	case r.A == 0 && r.BlocksA == 0:
		return "new"
	case r.B == 0 && r.BlocksB == 0:
		return "gone"
	case r.BlocksA == 0 || r.BlocksB == 0 || r.A == 0 || r.B == 0:
		return "not recorded block by block"
	}
	size := resized(float64(r.B) / float64(r.BlocksB) / (float64(r.A) / float64(r.BlocksA)))
	n, word := r.BlocksB-r.BlocksA, "more"
	if n < 0 {
		n, word = -n, "fewer"
	}
	switch {
	case n == 0 && size == "":
		return "sizes differ slightly"
	case n == 0 && r.BlocksB == 1:
		return "block " + size
	case n == 0:
		return "blocks " + size
	case size == "":
		return timeline.Counted(n, word+" block")
	}
	return fmt.Sprintf("%s %s, each %s", timeline.Count(int64(n)), word, size)
}

// resized says how much larger blocks are than before, on average, as people say it: in per cent up to twice
// or half the size, then in multiples. It is "" for less than half a per cent.
func resized(factor float64) string {
	switch {
	case math.Abs(factor-1) < 0.005:
		return ""
	case factor >= 2:
		return fmt.Sprintf("%.3g× larger", factor)
	case factor <= 0.5:
		return fmt.Sprintf("%.3g× smaller", 1/factor)
	case factor > 1:
		return fmt.Sprintf("%.0f %% larger", 100*(factor-1))
	}
	return fmt.Sprintf("%.0f %% smaller", 100*(1-factor))
}

// measure fills the metrics. A metric that one side lacks (no iterations, no segments) is left out.
func (x *Diff) measure(ctx context.Context) error {
	add := func(name, unit string, a, b int64) {
		x.Metrics = append(x.Metrics, Metric{Name: name, Unit: unit, A: a, B: b})
	}
	a, b := &x.A.Totals, &x.B.Totals
	add("peak", "bytes", a.PeakAllocated, b.PeakAllocated)
	if ra, rb := a.PeakReserved.Or(0), b.PeakReserved.Or(0); ra > 0 && rb > 0 {
		add("peak_reserved", "bytes", ra, rb)
	}
	add("end", "bytes", x.A.Allocated.Last(), x.B.Allocated.Last())
	if x.A.HasLifetimes() && x.B.HasLifetimes() {
		add(churnMetric, "bytes", churn(x.A), churn(x.B))
		add("blocks", "count", int64(a.Allocations), int64(b.Allocations))
	}
	fa, oka, err := fragmentation(ctx, x.A)
	if err != nil {
		return err
	}
	fb, okb, err := fragmentation(ctx, x.B)
	if err != nil {
		return err
	}
	if oka && okb {
		add("fragmentation", "bytes", fa, fb)
	}
	pa, ta := usualStep(x.A)
	pb, tb := usualStep(x.B)
	if pa > 0 && pb > 0 {
		add("iteration_peak", "bytes", pa, pb)
		if ta > 0 && tb > 0 {
			add(stepMetric, "ns", ta, tb)
		}
	}
	return nil
}

// stepMetric is the name of the time that a step takes, churnMetric that of all bytes that were allocated.
// People read and type allocsMetric for it.
const (
	stepMetric   = "step"
	churnMetric  = "churn"
	allocsMetric = "allocs"
)

// MetricNamed returns the name of the metric for which people type a word.
func MetricNamed(word string) string {
	if word == allocsMetric {
		return churnMetric
	}
	return word
}

// MetricTyped returns the word that people type for a metric.
func MetricTyped(name string) string {
	if name == churnMetric {
		return allocsMetric
	}
	return name
}

// MetricWords names a metric for people. The figures of steps are medians of the steady ones, and may differ
// from those of the steps that are compared.
func MetricWords(name string) string {
	switch name {
	case "iteration_peak":
		return "median step peak"
	case stepMetric:
		return "median step"
	case churnMetric:
		return allocsMetric
	}
	return strings.ReplaceAll(name, "_", " ")
}

// churn returns the bytes allocated within the recording.
func churn(d *timeline.Device) int64 {
	sum := int64(0)
	for _, n := range d.Allocs.Rounded[d.Begun(timeline.Start):] {
		sum += n
	}
	return sum
}

// fragmentation returns the stranded and cached bytes at the peak of allocated.
func fragmentation(ctx context.Context, d *timeline.Device) (int64, bool, error) {
	s, err := timeline.StateAt(ctx, d, d.Totals.PeakAt)
	if err != nil || s == nil || !s.Known {
		return 0, false, err
	}
	return s.Stranded + s.Cached, true, nil
}

// usualStep returns the median peak and time of the steady iterations, or of all whole ones if none is
// steady; 0 for none.
func usualStep(d *timeline.Device) (peak, ns int64) {
	it := steps.Of(d)
	at := it.SteadyEnds()
	if len(at) == 0 {
		all := *it
		all.Steady = 0
		at = all.SteadyEnds()
	}
	var peaks, times []int64
	for _, i := range at {
		peaks = append(peaks, it.List[i].PeakAllocated)
		if d.Timeline().Trace.Clock.HasTime {
			times = append(times, it.List[i].Finish-it.List[i].Start)
		}
	}
	return stats.Median(peaks), stats.Median(times)
}

// Sentence says how the peaks differ and what causes most of the difference, with sizes in units u.
func (x *Diff) Sentence(u timeline.Units) string {
	a, b := x.A.Allocated.At(x.SideA.At), x.B.Allocated.At(x.SideB.At)
	both, subject := "Both peak at ", "The peak"
	switch {
	case x.partial() && x.chosen:
		both, subject = "Both steps peak at ", "The peak of the step"
	case x.partial():
		both, subject = "The highest steady steps both peak at ", "The highest steady step"
	}
	if x.same() {
		return fmt.Sprintf("%s%s, with the same bytes at every call site.", both, u.Bytes(a))
	}
	s := both + u.Bytes(a)
	switch {
	case a == b:
	case u.Bytes(a) == u.Bytes(b):
		s += ", " + u.Bytes(max(a-b, b-a)) + " apart"
	default:
		s = fmt.Sprintf("%s goes from %s to %s (%s", subject, u.Bytes(a), u.Bytes(b), u.Delta(b-a))
		if a > 0 {
			s += fmt.Sprintf(", %+.1f %%", 100*float64(b-a)/float64(a))
		}
		s += ")"
	}
	if len(x.Categories) > 0 && x.Categories[0].A != x.Categories[0].B &&
		x.Categories[0].Name != timeline.Unknown.String() {
		r := x.Categories[0]
		c, _ := timeline.ParseCategory(r.Name)
		sign := ""
		if r.Inferred {
			sign = "~"
		}
		s += fmt.Sprintf(": %s %s%s", c.Words(), sign, u.Delta(r.B-r.A))
	}
	if len(x.Sites) > 0 && x.Sites[0].A != x.Sites[0].B && !x.SitesApart() {
		r := x.Sites[0]
		s += fmt.Sprintf(". Largest difference: %s, %s, %s", r.Name, u.Delta(r.B-r.A), r.Cause)
	}
	return s + "."
}

// same reports whether the sides hold the same bytes at every call site.
func (x *Diff) same() bool {
	return x.A.Allocated.At(x.SideA.At) == x.B.Allocated.At(x.SideB.At) && len(x.Sites) > 0 &&
		x.Sites[0].A == x.Sites[0].B
}

// partial reports whether the compared moments are not both the highest of their recordings.
func (x *Diff) partial() bool {
	return x.SideA.At != x.A.Totals.PeakAt || x.SideB.At != x.B.Totals.PeakAt
}

// Diff is the difference of two recordings at their peaks, or at those of two steps.
type Diff struct {
	A, B         *timeline.Device
	SideA, SideB Side // the moments that the rows compare
	chosen       bool // the user chose the sides
	Categories   []DiffRow
	Sites        []DiffRow // stacks normalised against line shifts; descending |B-A|
	Metrics      []Metric
}

// DiffRow is one call site, category or module in two recordings.
type DiffRow struct {
	Name             string
	A, B             int64 // bytes on each side
	BlocksA, BlocksB int
	Cause            string // new, gone, blocks 25 % larger, 2 more blocks, ...
	StackA, StackB   traces.StackID
	Inferred         bool // for a category: some of its blocks were assigned by a rule
}

// Metric is one figure of two recordings; Name is the word that --fail-if takes.
type Metric struct {
	Name string // peak, peak_reserved, churn, blocks, fragmentation, iteration_peak, step
	Unit string // bytes, ns, count
	A, B int64
}
