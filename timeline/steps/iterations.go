package steps

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// Of returns the training steps of the recording: from the source's marks, else from the optimizer's work,
// else from what repeats exactly; an empty list if none of these shows any. It is computed once; callers must
// not modify the result.
func Of(d *timeline.Device) *Iterations { return iterations.Of(d) }

var iterations = timeline.NewMemo(findIterations)

func findIterations(d *timeline.Device) *Iterations {
	it := &Iterations{Differs: -1}
	if d.Len() == 0 || d.Info.Kind == traces.DeviceArena {
		return it
	}
	f := stepFinder{d}
	found := f.fromMarks()
	it.Source = FromAnnotations
	if len(found) == 0 {
		found, it.Source = f.fromOptimizer(), FromOptimizer
	}
	if len(found) == 0 {
		found, it.Source = f.fromPeriodicity(), FromPeriodicity
	}
	if len(found) == 0 {
		it.Source = NoIterations
		return it
	}
	c := stepComparison{d, it}
	c.measure(found)
	c.compare(found)
	c.trend()
	return it
}

// stepFinder finds the training steps of a device, without computing their figures.
type stepFinder struct{ *timeline.Device }

// fromPeriodicity returns the steps that the detector of this package finds, nil for none.
func (f stepFinder) fromPeriodicity() []stretch {
	lo := f.Begun(timeline.Start)
	at := f.Allocs.Start[lo:]
	s := &allocSequence{
		sizes: f.Allocs.Size[lo:], stacks: f.Allocs.Stack[lo:], kinds: f.Timeline().Kinds(),
		table: &f.Timeline().Trace.Stacks,
		level: func(i int) int64 { return f.Allocated.At(at[i] - 1) },
	}
	p, ok := findPeriod(s)
	if !ok {
		return nil
	}
	starts := s.periodStarts(p)
	last := starts[len(starts)-1]
	if end := min(last+p.length, len(at)); 2*(end-starts[0]) < len(at) {
		return nil
	}
	moment := func(i int) timeline.Moment {
		if i < len(at) {
			return at[i]
		}
		return timeline.Moment(f.Len())
	}
	out := make([]stretch, 0, len(starts))
	for k, i := range starts {
		end, cut := last+p.length, false
		if k+1 < len(starts) {
			end = starts[k+1]
		} else {
			cut = end > len(at)
		}
		out = append(out, f.stretchOf(moment(i), moment(end), cut))
	}
	return out
}

// IterationNumber returns the number at the end of an iteration's name, which sentences and tables use: 12 of
// "iteration 12" and of "ProfilerStep#12".
func IterationNumber(name string) string {
	return name[len(strings.TrimRight(name, "0123456789")):]
}

// Find returns the index of the iteration with the number that sentences and tables use; one more than the
// last number is the end. The error lists the iterations.
func (it *Iterations) Find(number string) (int, error) {
	n := len(it.List)
	if n == 0 {
		return 0, errors.New("no iteration was found in this trace")
	}
	for i := range it.List {
		if IterationNumber(it.List[i].Name) == number {
			return i, nil
		}
	}
	first, last := IterationNumber(it.List[0].Name), IterationNumber(it.List[n-1].Name)
	if v, err := strconv.Atoi(last); err == nil && strconv.Itoa(v+1) == number {
		return n, nil
	}
	if n == 1 {
		return 0, fmt.Errorf("the one iteration of this trace is %s", first)
	}
	return 0, fmt.Errorf("the %d iterations of this trace are %s to %s", n, first, last)
}

// stepComparison computes the figures of the steps found, and how they differ.
type stepComparison struct {
	*timeline.Device
	it *Iterations
}

// measure computes the figures of each iteration.
func (c stepComparison) measure(found []stretch) {
	sites := sites.Of(c.Timeline())
	seen := make([]bool, len(sites.Names))
	for i, s := range found {
		x := Iteration{Index: i, Name: s.name, Start: s.start, Finish: s.finish, First: s.first, End: s.end}
		if x.Name == "" {
			x.Name = "iteration"
		}
		if IterationNumber(x.Name) == "" { // all of them have the same name
			x.Name += fmt.Sprintf(" %d", i+1)
		}
		r := c.Allocated.Range(s.first, s.end)
		x.PeakAllocated, x.PeakAt = r.Max, r.MaxAt
		x.Growth = c.Allocated.At(max(s.end, s.first)-1) - c.Allocated.At(s.first-1)
		first, end := c.AllocsIn(s.first, s.end)
		x.Blocks = int(end - first)
		for a := first; a < end; a++ {
			x.Churn += c.Allocs.Rounded[a]
			if site := sites.Number(c.Origin(a)); site >= 0 && !seen[site] {
				seen[site] = true
				x.NewSites++
			}
		}
		c.it.List = append(c.it.List, x)
	}
}

// usual holds the figures that steady iterations share; a figure differs if it is off by more than its
// tolerance.
type usual struct {
	rise, churn, blocks, time    float64
	riseTol, churnTol, blocksTol float64
	sites                        []bool // by number: those that the steady ones allocate from
	timed                        bool
}

// rise is how many bytes an iteration climbs above its starting level, which earlier leaks do not change.
func (c stepComparison) rise(x *Iteration) int64 { return x.PeakAllocated - c.Allocated.At(x.First-1) }

// The least tolerance in bytes (never more than 5 % of the figure), and the factor of the usual time from
// which a step is slow.
const (
	byteFloor  = 1 << 20
	slowFactor = 2
)

// figures returns the figures in which iterations are compared.
func (c stepComparison) figures(x *Iteration) [4]float64 {
	return [4]float64{float64(c.rise(x)), float64(x.Churn), float64(x.Blocks), float64(x.Finish - x.Start)}
}

// manyIterations is the number from which the middle of the later half represents the usual iteration; below
// it, each is compared with each.
const manyIterations = 64

// usualOf returns the figures that most whole iterations share, the later ones if two sets are equally large.
// If no two are alike, or there are very many, it returns the middle values of the later half, when warm-up
// is over.
func (c stepComparison) usualOf(whole []int) usual {
	late := whole[len(whole)/2:]
	var columns [4][]float64
	for _, i := range late {
		for k, v := range c.figures(&c.it.List[i]) {
			columns[k] = append(columns[k], v)
		}
	}
	var u usual
	var middle [4]float64
	for i := range middle {
		middle[i] = stats.Median(columns[i])
	}
	u.set(middle)
	if len(whole) <= manyIterations {
		support := 1
		for _, i := range whole {
			if n, v := c.support(whole, i); n > 1 && n >= support {
				support, u = n, v
			}
		}
		if 2*support <= len(whole) && len(whole) >= 5 {
			u.widen(c, whole) // no two alike: their sizes change from step to step
		}
	}
	if len(late) >= 5 {
		u.widen(c, late)
	}
	u.timed = c.Timeline().Trace.Clock.HasTime
	u.time = stats.Median(columns[3])
	return u
}

// support counts the iterations that are like iteration i, including itself.
func (c stepComparison) support(whole []int, i int) (int, usual) {
	var u usual
	u.set(c.figures(&c.it.List[i]))
	n := 0
	for _, j := range whole {
		if u.matches(c.figures(&c.it.List[j])) {
			n++
		}
	}
	return n, u
}

// widen raises the tolerances to four standard deviations of the iterations' own spread.
func (u *usual) widen(c stepComparison, among []int) {
	var columns [3][]float64
	for _, i := range among {
		f := c.figures(&c.it.List[i])
		for k := range columns {
			columns[k] = append(columns[k], f[k])
		}
	}
	u.riseTol = max(u.riseTol, 4*Spread(columns[0]))
	u.churnTol = max(u.churnTol, 4*Spread(columns[1]))
	u.blocksTol = max(u.blocksTol, 4*Spread(columns[2]))
}

// set makes one iteration's figures the usual ones: more than 1 % off, and at least the floors, counts as a
// difference.
func (u *usual) set(v [4]float64) {
	u.rise, u.churn, u.blocks, u.time = v[0], v[1], v[2], v[3]
	u.riseTol = max(0.01*u.rise, min(byteFloor, 0.05*u.rise))
	u.churnTol = max(0.01*u.churn, min(byteFloor, 0.05*u.churn))
	u.blocksTol = max(0.01*u.blocks, 0.5)
}

func (u *usual) matches(v [4]float64) bool {
	return math.Abs(v[0]-u.rise) <= u.riseTol && math.Abs(v[1]-u.churn) <= u.churnTol &&
		math.Abs(v[2]-u.blocks) <= u.blocksTol
}

// compare finds where the steady iterations begin, which ones differ from them, and why.
//
// Steady is the first whole iteration that has the usual figures and is followed by another such one.
func (c stepComparison) compare(found []stretch) {
	c.it.Steady = len(c.it.List)
	var whole []int
	for i := range c.it.List {
		if found[i].cut {
			c.it.List[i].differs.cut = true
		} else {
			whole = append(whole, i)
		}
	}
	if len(whole) < 2 {
		return
	}
	u := c.usualOf(whole)
	same := func(i int) bool { return u.matches(c.figures(&c.it.List[i])) }
	for k := 0; k+1 < len(whole); k++ {
		if same(whole[k]) && same(whole[k+1]) {
			c.it.Steady = whole[k]
			break
		}
	}
	if c.it.Steady == len(c.it.List) {
		return
	}
	u.sites = c.usualSites(whole, same)
	for _, i := range whole {
		x := &c.it.List[i]
		x.differs = c.difference(x, &u, i < c.it.Steady)
		x.Odd = x.differs.some()
		if x.Odd && i > c.it.Steady && c.it.Differs < 0 {
			c.it.Differs = i
		}
	}
}

// usualSites marks the call sites that the steady iterations allocate from.
func (c stepComparison) usualSites(whole []int, same func(int) bool) []bool {
	f := sites.Of(c.Timeline())
	sites := make([]bool, len(f.Names))
	for _, i := range whole {
		if i < c.it.Steady || !same(i) {
			continue
		}
		first, end := c.AllocsIn(c.it.List[i].First, c.it.List[i].End)
		for a := first; a < end; a++ {
			if site := f.Number(c.Origin(a)); site >= 0 {
				sites[site] = true
			}
		}
	}
	return sites
}

// difference is how an iteration differs from the steady ones; figures that do not differ are zero.
type difference struct {
	cut         bool // the recording ends within it
	warmup      bool // it comes before the steady ones
	peak, churn int64
	blocks      int
	sites       int    // call sites that no steady iteration has
	site        string // the one with the most bytes among them
	slower      float64
}

// some reports whether anything differs.
func (x *difference) some() bool {
	return x.peak != 0 || x.churn != 0 || x.blocks != 0 || x.sites != 0 || x.slower != 0
}

// difference compares an iteration with the usual one.
func (c stepComparison) difference(x *Iteration, u *usual, warmup bool) difference {
	v := difference{warmup: warmup}
	if diff := float64(c.rise(x)) - u.rise; math.Abs(diff) > u.riseTol {
		v.peak = int64(diff)
	}
	if diff := float64(x.Churn) - u.churn; math.Abs(diff) > u.churnTol {
		v.churn = int64(diff)
	}
	if diff := float64(x.Blocks) - u.blocks; math.Abs(diff) > u.blocksTol {
		v.blocks = int(diff)
	}
	v.sites, v.site = c.unusualSites(x, u)
	if took := float64(x.Finish - x.Start); u.timed && u.time > 0 && took > slowFactor*u.time && !warmup {
		v.slower = took / u.time
	}
	return v
}

// Why says how the iteration differs from the steady ones, one clause for each difference, with sizes in
// units u; "" if it does not.
func (x *Iteration) Why(u timeline.Units) string {
	v := &x.differs
	if v.cut {
		return "cut: the recording ends within it"
	}
	var says []string
	if v.peak != 0 {
		name := "peak "
		if v.warmup { // it begins with less, so its peak may be lower although it rises further
			name = "rise "
		}
		says = append(says, name+u.Delta(v.peak))
	}
	if v.churn != 0 {
		says = append(says, "allocs "+u.Delta(v.churn))
	}
	if v.blocks != 0 {
		says = append(says, fmt.Sprintf("%+d allocations", v.blocks))
	}
	if v.sites != 0 {
		says = append(says, timeline.Counted(v.sites, "new call site")+": "+v.site)
	}
	if v.slower != 0 {
		says = append(says, fmt.Sprintf("takes %.1fx", v.slower))
	}
	s := strings.Join(says, ", ")
	if v.warmup && s != "" {
		s = "warm-up: " + s
	}
	return s
}

// unusualSites counts the call sites of an iteration that no steady one has and names the one with the most
// bytes.
func (c stepComparison) unusualSites(x *Iteration, u *usual) (n int, top string) {
	f := sites.Of(c.Timeline())
	bytes := map[int32]int64{}
	first, end := c.AllocsIn(x.First, x.End)
	for a := first; a < end; a++ {
		if site := f.Number(c.Origin(a)); site >= 0 && !u.sites[site] {
			bytes[site] += c.Allocs.Rounded[a]
		}
	}
	best := int32(-1)
	for _, site := range slices.Sorted(maps.Keys(bytes)) { // the first of equals
		if best < 0 || bytes[site] > bytes[best] {
			best = site
		}
	}
	if best < 0 {
		return 0, ""
	}
	return len(bytes), f.Names[best]
}

// SteadyEnds returns the indices of the whole iterations from Steady on: the points of trends and leaks.
func (it *Iterations) SteadyEnds() []int {
	var at []int
	for i := it.Steady; i < len(it.List); i++ {
		if it.List[i].End > it.List[i].First && !it.List[i].differs.cut {
			at = append(at, i)
		}
	}
	return at
}

// trend fits allocated bytes at the ends of the steady iterations.
func (c stepComparison) trend() {
	var y []float64
	for _, i := range c.it.SteadyEnds() {
		y = append(y, float64(c.Allocated.At(c.it.List[i].End-1)))
	}
	c.it.Trend = fitTrend(y)
	c.it.Trend.Leaking = c.it.Trend.leaks(y, noiseBytes(len(y), c.Totals.PeakAllocated))
	c.it.Trend.Unseen = !c.it.Trend.Leaking && forgetful(c.Timeline().Trace)
}

// forgetful reports whether the recording consists of steps that each list only what they used: a block that
// a step leaves and the next one does not use is then taken as freed. The allocator's own history ends with a
// state, which lists every block.
func forgetful(t *traces.Trace) bool {
	return !t.Final.Known && slices.ContainsFunc(t.Losses, func(l traces.Loss) bool {
		return l.Name == traces.LossBetweenWindows
	})
}

// IterationSource says how iterations were found, best first.
type IterationSource uint8

// The sources of iterations.
const (
	NoIterations IterationSource = iota
	FromAnnotations
	FromOptimizer
	FromPeriodicity
)

// String returns the name used in reports.
func (s IterationSource) String() string {
	return [...]string{"none", "annotation", "optimizer", "periodicity"}[min(s, FromPeriodicity)]
}

// Words says how iterations were found, to follow "3 iterations".
func (s IterationSource) Words() string {
	return [...]string{"", " from annotations", ", split at optimizer steps",
		", found by their repeating pattern"}[min(s, FromPeriodicity)]
}

// Iteration is one training step: events [First, End).
type Iteration struct {
	Index         int
	Name          string
	Start, Finish int64 // nanoseconds
	First, End    timeline.Moment
	PeakAllocated int64
	PeakAt        timeline.Moment
	Churn         int64 // bytes allocated within it
	Blocks        int   // allocations within it
	Growth        int64 // allocated bytes at its end minus at its start
	NewSites      int   // call sites that no earlier iteration allocated from
	Odd           bool  // differs from the steady ones

	differs difference
}

// Iterations is the list of training steps and how they compare.
type Iterations struct {
	Source  IterationSource
	List    []Iteration
	Steady  int // index of the first steady iteration, len(List) if none is
	Differs int // index of the first iteration after Steady that differs from the steady ones, -1 for none
	Trend   Trend
}
