package timeline

import "github.com/gmemtop/gmemtop/traces"

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

// Iteration is one training step: events [First, End).
type Iteration struct {
	Index         int
	Name          string
	Start, Finish int64 // nanoseconds
	First, End    Moment
	PeakAllocated int64
	PeakAt        Moment
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
	Steady  int // index of the first steady iteration, len(List) where none is
	Differs int // index of the first iteration after Steady that differs from the steady ones, -1 for none
	Trend   Trend
}

// Trend is the growth of allocated bytes an iteration at the same place of the steady iterations, with its 95
// % interval.
type Trend struct {
	Slope, Low, High float64 // bytes an iteration
	Points           int
	Leaking          bool // Low is above zero and the growth is above noise
}

// Leak is a call site whose live bytes grow with the iterations; Stack is one of its stacks.
type Leak struct {
	Stack            traces.StackID
	Slope, Low, High float64 // bytes an iteration
	Bytes            int64   // its bytes at the end that were allocated in the iterations seen
	Blocks           int
}

// PhaseSpan is a forward, backward or optimizer stretch.
type PhaseSpan struct {
	Phase      traces.Phase
	Start, End int64 // nanoseconds
	First      Moment
	Last       Moment // exclusive
	Inferred   bool
}

// Cause is one part of the explanation of an out-of-memory, or of a high peak. Bytes is -1 where the trace
// cannot show it.
type Cause struct {
	Kind  string // capacity, fragmentation, stranded_pool, pending_frees, outside_pytorch, rounding
	Bytes int64
	Text  string
	// Main marks the cause that alone would have been enough.
	Main bool
}

// Lever is something that the user can do about the peak.
type Lever struct {
	Name    string // expandable_segments, chunked_loss, micro_batch, checkpoint, shard_optimizer, release_cache, set_to_none...
	Text    string // what to do, one sentence
	Command string // the exact setting or line of code, "" for none
	// Saves is what it takes off this peak (or off reserved), bytes; -1 where the trace cannot show it.
	Saves     int64
	Exactness Exactness
	// Fits says, of an out-of-memory, that the failed request would have been served: 1 yes, 0 no, -1 not
	// shown.
	Fits int
}

// Autopsy is why it ran out of memory, or, where it did not, what the peak is made of.
type Autopsy struct {
	OOM      bool // an oom event is in the trace
	Inferred bool // no event, but the state looks like one (taken after it, or full)
	At       Moment
	Asked    int64 // rounded bytes of the failed request, -1 unknown
	Tried    int64 // what the allocator then asked the driver for, -1 unknown
	Free     int64 // bytes the driver had free, -1 unknown
	State    *AllocatorState
	Sentence string
	Causes   []Cause
	Holders  []Group // by stack, descending
	Levers   []Lever // what helps most first
}

// DiffRow is one call site, category or module in two recordings.
type DiffRow struct {
	Name             string
	A, B             int64 // bytes at each peak
	BlocksA, BlocksB int
	Cause            string // new, gone, larger blocks, more blocks, ...
	StackA, StackB   traces.StackID
	Inferred         bool // of a category: that some of the blocks are of it rests on a rule
}

// Diff is the difference of two recordings at their peaks.
type Diff struct {
	A, B       *Device
	Categories []DiffRow
	Sites      []DiffRow // stacks normalised against line shifts; descending |B-A|
	Metrics    []Metric
}

// Metric is one figure of two recordings; Name is the word that --fail-if takes.
type Metric struct {
	Name string // peak, peak_reserved, churn, blocks, fragmentation, iteration_peak, step
	Unit string // bytes, ns, count
	A, B int64
}

// RankSummary is what a run keeps of one rank, so that a thousand ranks fit in memory.
type RankSummary struct {
	Rank     int
	Path     string
	Host     string
	Err      error // why the rank could not be read; the rest is zero then
	Device   traces.Device
	Totals   Totals
	PeakTime int64
	Top      Group   // largest holder at the peak
	Strip    []int64 // max allocated bytes in each of len(Strip) equal stretches of the run's clock
	From, To int64   // absolute nanoseconds (Clock.Epoch + time)
	Sites    []SiteSignature
	Steps    []RankStep // the iterations that begin within Sites, in order
}

// RankStep is an iteration of a rank: the place in Sites at which it begins, and its name.
type RankStep struct {
	First int32
	Name  string
}

// SiteSignature is one allocation of the sequence that ranks are compared by: size and a stack hash that
// ignores line numbers.
type SiteSignature struct {
	Hash uint64
	Size int64
	Name string
}

// Run is many ranks on one clock.
type Run struct {
	Ranks      []RankSummary // outliers first, then by rank
	Apart      bool          // the ranks have no time in common: each is on a clock that begins with it
	Outliers   int           // how many of Ranks are outliers
	Median     int64         // median peak
	Divergence *Divergence   // nil where all agree
}

// Divergence is the first allocation at which a rank leaves the others.
type Divergence struct {
	Rank, Index int
	Site        string // "" for a call site without a stack
	Size        int64
	Usual       SiteSignature // what most ranks allocate there
	Elsewhere   bool          // the others do so from another call site
	Iteration   string        // the name of the one in which it lies, "" before the first
	InIteration int           // its index within the iteration
}
