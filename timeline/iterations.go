package timeline

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/gmemtop/gmemtop/traces"
)

// lazyAnalysis holds what is computed on the first question and kept: each is computed once, by whoever asks first.
type lazyAnalysis struct {
	classesOnce    sync.Once
	classes        stackClasses
	iterationsOnce sync.Once
	iterations     *Iterations
	phasesOnce     sync.Once
	phases         []PhaseSpan
	leaksOnce      sync.Once
	leaks          []Leak
}

// classes returns the traits of the trace's stacks.
func (d *Device) classes() stackClasses {
	d.analysis.classesOnce.Do(func() { d.analysis.classes = classify(d.tl.places) })
	return d.analysis.classes
}

// firstRecorded returns the first allocation whose alloc event is in the recording.
func (d *Device) firstRecorded() AllocID {
	return AllocID(sort.Search(d.Allocs.Len(), func(i int) bool { return d.Allocs.Start[i] >= 0 }))
}

// allocsIn returns the allocations [first, end) made in the events [from, to).
func (d *Device) allocsIn(from, to Moment) (first, end AllocID) {
	n := d.Allocs.Len()
	first = AllocID(sort.Search(n, func(i int) bool { return d.Allocs.Start[i] >= max(from, 0) }))
	end = AllocID(sort.Search(n, func(i int) bool { return d.Allocs.Start[i] >= to }))
	return first, max(first, end)
}

// Iterations returns the training steps of the recording: as the source marks them, else by the optimizer's work, else by what
// repeats exactly; an empty list where none of these shows any. It is computed once; the result must not be written to.
func (d *Device) Iterations() *Iterations {
	d.analysis.iterationsOnce.Do(func() { d.analysis.iterations = d.findIterations() })
	return d.analysis.iterations
}

func (d *Device) findIterations() *Iterations {
	it := &Iterations{Differs: -1}
	if d.n == 0 || d.Info.Kind == traces.DeviceArena {
		return it
	}
	found := d.iterationsFromMarks()
	it.Source = FromAnnotations
	if len(found) == 0 {
		found, it.Source = d.iterationsFromOptimizer(), FromOptimizer
	}
	if len(found) == 0 {
		found, it.Source = d.iterationsFromPeriodicity(), FromPeriodicity
	}
	if len(found) == 0 {
		it.Source = NoIterations
		return it
	}
	d.measure(it, found)
	d.compareIterations(it, found)
	d.trend(it)
	return it
}

// iterationsFromPeriodicity returns the steps that the detector of this package finds, nil for none.
func (d *Device) iterationsFromPeriodicity() []stretch {
	lo := d.firstRecorded()
	at := d.Allocs.Start[lo:]
	s := &allocSequence{
		sizes: d.Allocs.Size[lo:], stacks: d.Allocs.Stack[lo:], classes: d.classes(), table: &d.tl.Trace.Stacks,
		level: func(i int) int64 { return d.Allocated.At(at[i] - 1) },
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
	moment := func(i int) Moment {
		if i < len(at) {
			return at[i]
		}
		return Moment(d.n)
	}
	out := make([]stretch, 0, len(starts))
	for k, i := range starts {
		end, cut := last+p.length, false
		if k+1 < len(starts) {
			end = starts[k+1]
		} else {
			cut = end > len(at)
		}
		out = append(out, d.stretchOf(moment(i), moment(end), cut))
	}
	return out
}

// IterationNumber returns the number at the end of an iteration's name, by which sentences and tables call it: 12 of "iteration 12" and
// of "ProfilerStep#12".
func IterationNumber(name string) string {
	return name[len(strings.TrimRight(name, "0123456789")):]
}

// Find returns the index of the iteration that sentences and tables call by a number; one more than the last number is the end. The
// error says which there are.
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

// measure works out the figures of each iteration.
func (d *Device) measure(it *Iterations, found []stretch) {
	sites := d.tl.named()
	seen := make([]bool, len(sites.siteNames))
	for i, s := range found {
		x := Iteration{Index: i, Name: s.name, Start: s.start, Finish: s.finish, First: s.first, End: s.end}
		if x.Name == "" {
			x.Name = "iteration"
		}
		if IterationNumber(x.Name) == "" { // all of them are called alike
			x.Name += fmt.Sprintf(" %d", i+1)
		}
		c := d.Allocated.Range(s.first, s.end)
		x.PeakAllocated, x.PeakAt = c.Max, c.MaxAt
		x.Growth = d.Allocated.At(max(s.end, s.first)-1) - d.Allocated.At(s.first-1)
		first, end := d.allocsIn(s.first, s.end)
		x.Blocks = int(end - first)
		for a := first; a < end; a++ {
			x.Churn += d.Allocs.Size[a]
			if site := sites.siteOf(d.Origin(a)); site >= 0 && !seen[site] {
				seen[site] = true
				x.NewSites++
			}
		}
		it.List = append(it.List, x)
	}
}

// usual is what the steady iterations have in common; a figure differs when it is off by more than its tolerance.
type usual struct {
	rise, churn, blocks, time    float64
	riseTol, churnTol, blocksTol float64
	sites                        []bool // by number: those that the steady ones allocate from
	timed                        bool
}

// rise is the bytes by which an iteration goes above where it began: what a leak before it does not change.
func (d *Device) rise(x *Iteration) int64 { return x.PeakAllocated - d.Allocated.At(x.First-1) }

// The floor of tolerance, bytes (never more than 5 % of the figure), and the factor of time from which a step is slow.
const (
	byteFloor  = 1 << 20
	slowFactor = 2
)

// figures returns what is compared of an iteration.
func (d *Device) figures(x *Iteration) [4]float64 {
	return [4]float64{float64(d.rise(x)), float64(x.Churn), float64(x.Blocks), float64(x.Finish - x.Start)}
}

// manyIterations is the number from which the middle of the later half stands for the usual iteration; below it, each is compared
// with each.
const manyIterations = 64

// usualOf returns the figures that most whole iterations share, the later ones where two sets are as large; where no two are alike,
// and where there are very many, the middle values of the later half, when warm-up is over.
func (d *Device) usualOf(it *Iterations, whole []int) usual {
	late := whole[len(whole)/2:]
	var columns [4][]float64
	for _, i := range late {
		for c, v := range d.figures(&it.List[i]) {
			columns[c] = append(columns[c], v)
		}
	}
	var u usual
	u.set([4]float64{median(columns[0]), median(columns[1]), median(columns[2]), median(columns[3])})
	if len(whole) <= manyIterations {
		support := 1
		for _, i := range whole {
			if n, v := d.support(it, whole, i); n > 1 && n >= support {
				support, u = n, v
			}
		}
		if 2*support <= len(whole) && len(whole) >= 5 {
			u.widen(d, it, whole) // no two alike: their sizes change from step to step
		}
	}
	if len(late) >= 5 {
		u.widen(d, it, late)
	}
	u.timed = d.tl.Trace.Clock.HasTime
	u.time = median(columns[3])
	return u
}

// support counts the iterations that iteration i is like, itself included.
func (d *Device) support(it *Iterations, whole []int, i int) (int, usual) {
	var u usual
	u.set(d.figures(&it.List[i]))
	n := 0
	for _, j := range whole {
		if u.matches(d.figures(&it.List[j])) {
			n++
		}
	}
	return n, u
}

// widen lets the tolerances be four standard deviations of the iterations' own spread.
func (u *usual) widen(d *Device, it *Iterations, among []int) {
	var columns [3][]float64
	for _, i := range among {
		f := d.figures(&it.List[i])
		for c := range columns {
			columns[c] = append(columns[c], f[c])
		}
	}
	u.riseTol = max(u.riseTol, 4*spread(columns[0]))
	u.churnTol = max(u.churnTol, 4*spread(columns[1]))
	u.blocksTol = max(u.blocksTol, 4*spread(columns[2]))
}

// set takes one iteration's figures for the usual ones: differences of more than 1 %, at least the floors, are differences.
func (u *usual) set(v [4]float64) {
	u.rise, u.churn, u.blocks, u.time = v[0], v[1], v[2], v[3]
	u.riseTol = max(0.01*u.rise, min(byteFloor, 0.05*u.rise))
	u.churnTol = max(0.01*u.churn, min(byteFloor, 0.05*u.churn))
	u.blocksTol = max(0.01*u.blocks, 0.5)
}

func (u *usual) matches(v [4]float64) bool {
	return math.Abs(v[0]-u.rise) <= u.riseTol && math.Abs(v[1]-u.churn) <= u.churnTol && math.Abs(v[2]-u.blocks) <= u.blocksTol
}

// compareIterations finds where the steady ones begin, which ones differ from them, and why.
//
// Steady is the first whole iteration that has the usual figures and is followed by another such one.
func (d *Device) compareIterations(it *Iterations, found []stretch) {
	it.Steady = len(it.List)
	var whole []int
	for i := range it.List {
		if found[i].cut {
			it.List[i].differs.cut = true
		} else {
			whole = append(whole, i)
		}
	}
	if len(whole) < 2 {
		return
	}
	u := d.usualOf(it, whole)
	same := func(i int) bool { return u.matches(d.figures(&it.List[i])) }
	for k := 0; k+1 < len(whole); k++ {
		if same(whole[k]) && same(whole[k+1]) {
			it.Steady = whole[k]
			break
		}
	}
	if it.Steady == len(it.List) {
		return
	}
	u.sites = d.usualSites(it, whole, same)
	for _, i := range whole {
		x := &it.List[i]
		x.differs = d.difference(x, &u, i < it.Steady)
		x.Odd = x.differs.some()
		if x.Odd && i > it.Steady && it.Differs < 0 {
			it.Differs = i
		}
	}
}

// usualSites says of each call site whether the steady iterations allocate from it.
func (d *Device) usualSites(it *Iterations, whole []int, same func(int) bool) []bool {
	f := d.tl.named()
	sites := make([]bool, len(f.siteNames))
	for _, i := range whole {
		if i < it.Steady || !same(i) {
			continue
		}
		first, end := d.allocsIn(it.List[i].First, it.List[i].End)
		for a := first; a < end; a++ {
			if site := f.siteOf(d.Origin(a)); site >= 0 {
				sites[site] = true
			}
		}
	}
	return sites
}

// difference is how an iteration differs from the steady ones; what does not differ is zero.
type difference struct {
	cut         bool // the recording ends within it
	warmup      bool // it comes before the steady ones
	peak, churn int64
	blocks      int
	sites       int    // call sites that no steady iteration has
	site        string // the one of them with the most bytes
	slower      float64
}

// some says whether anything differs.
func (x *difference) some() bool {
	return x.peak != 0 || x.churn != 0 || x.blocks != 0 || x.sites != 0 || x.slower != 0
}

// difference compares an iteration with the usual one.
func (d *Device) difference(x *Iteration, u *usual, warmup bool) difference {
	v := difference{warmup: warmup}
	if diff := float64(d.rise(x)) - u.rise; math.Abs(diff) > u.riseTol {
		v.peak = int64(diff)
	}
	if diff := float64(x.Churn) - u.churn; math.Abs(diff) > u.churnTol {
		v.churn = int64(diff)
	}
	if diff := float64(x.Blocks) - u.blocks; math.Abs(diff) > u.blocksTol {
		v.blocks = int(diff)
	}
	v.sites, v.site = d.unusualSites(x, u)
	if took := float64(x.Finish - x.Start); u.timed && u.time > 0 && took > slowFactor*u.time && !warmup {
		v.slower = took / u.time
	}
	return v
}

// Why says in one clause each how the iteration differs from the steady ones, with sizes in units u; "" where it does not.
func (x *Iteration) Why(u Units) string {
	v := &x.differs
	if v.cut {
		return "cut: the recording ends within it"
	}
	var says []string
	if v.peak != 0 {
		says = append(says, "peak "+u.Delta(v.peak))
	}
	if v.churn != 0 {
		says = append(says, "churn "+u.Delta(v.churn))
	}
	if v.blocks != 0 {
		says = append(says, fmt.Sprintf("%+d allocations", v.blocks))
	}
	if v.sites != 0 {
		says = append(says, plural(v.sites, "new call site")+": "+v.site)
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

// unusualSites counts the call sites of an iteration that no steady one has and names the one with the most bytes.
func (d *Device) unusualSites(x *Iteration, u *usual) (n int, top string) {
	f := d.tl.named()
	bytes := map[int32]int64{}
	first, end := d.allocsIn(x.First, x.End)
	for a := first; a < end; a++ {
		if site := f.siteOf(d.Origin(a)); site >= 0 && !u.sites[site] {
			bytes[site] += d.Allocs.Size[a]
		}
	}
	best := int32(-1)
	for site, b := range bytes {
		if best < 0 || b > bytes[best] || b == bytes[best] && site < best {
			best = site
		}
	}
	if best < 0 {
		return 0, ""
	}
	return len(bytes), f.siteNames[best]
}

// steadyEnds returns the indices of the whole iterations from Steady on: the points of trends and leaks.
func (it *Iterations) steadyEnds() []int {
	var at []int
	for i := it.Steady; i < len(it.List); i++ {
		if it.List[i].End > it.List[i].First && !it.List[i].differs.cut {
			at = append(at, i)
		}
	}
	return at
}

// trend fits allocated bytes at the ends of the steady iterations.
func (d *Device) trend(it *Iterations) {
	var y []float64
	for _, i := range it.steadyEnds() {
		y = append(y, float64(d.Allocated.At(it.List[i].End-1)))
	}
	it.Trend = fitTrend(y)
	it.Trend.Leaking = it.Trend.leaks(y, noiseBytes(len(y), d.Totals.PeakAllocated))
}
