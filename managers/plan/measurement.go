package plan

import "time"

// LiveTarget is the name of a running training as a target, in Measurement.Target.
const LiveTarget = "live"

// Measurement is the cost of carrying a plan out. The simulator, the device and the live process fill the
// same struct, so that the three can be compared and the simulator's error is a number.
type Measurement struct {
	// Target is sim, cuda:0, [LiveTarget]...
	Target string
	// Plan is the plan that was carried out if the target asked for another one, nil if it is the given one.
	Plan *Plan
	// Footprint is the peak of what the manager holds from the driver, in bytes, including rounding to the
	// granularity. For an online allocator that frees its cache under pressure it is the smallest cap under
	// which the iteration completes, if the target searched for it.
	Footprint int64
	// Allocated says that Footprint is not an arena's or driver's figure but the peak of a training's
	// allocations: what PeakLive predicts.
	Allocated bool
	// Reserved is, for an online allocator, what it holds without pressure, in bytes.
	Reserved int64
	// Process is what the driver, or on a CPU the kernel, counts for the process while the plan is carried
	// out, ProcessBefore the count without it; 0 if not measured.
	Process, ProcessBefore int64
	// PeakLive is the most bytes of live instances at one moment.
	PeakLive int64
	// StepTime is the median time of an iteration in nanoseconds, StepP95 its 95th percentile; a simulator,
	// which has no spread, gives the same twice.
	StepTime, StepP95 int64
	// Makespan is the time of all iterations that the problem holds, in nanoseconds: the end of Usage and
	// Spans.
	Makespan int64
	// Stall is the time during which the first compute stream waited for a copy, in nanoseconds.
	Stall int64
	// SwappedOut and SwappedIn are the bytes copied each way, RecomputeTime the time of rerun ops.
	SwappedOut, SwappedIn int64
	RecomputeTime         int64
	// CopyTime is the time that copies take on the first compute stream if there are no engines for them, in
	// nanoseconds.
	CopyTime int64
	// Work is the processor time of the training thread in a step, WorkBefore and WorkAfter that of keeping
	// everything just before and just after, in nanoseconds. Unlike StepTime it does not grow while others
	// use the processor. 0 if not measured.
	Work, WorkBefore, WorkAfter int64
	// OutRate and InRate are the rates of the copies each way, in bytes per second, 0 if nothing was copied
	// or the target does not measure it.
	OutRate, InRate float64
	// PinnedPeak is the most pinned host memory held.
	PinnedPeak int64
	// DriverCalls counts allocations, frees and mappings requested from the driver in the iteration. Retries
	// counts how often an allocator had to release its cache and wait for the device.
	DriverCalls, Retries int64
	// Dry counts the ops of an iteration, out of Launches, whose queue was empty when they were launched;
	// both are 0 if not measured. Many mean that the host sets the pace.
	Dry, Launches int64
	// KeepAllBefore and KeepAllAfter are step times of keeping everything on the same target, measured just
	// before and just after StepTime, in nanoseconds; 0 if the target's speed does not change, as in a
	// simulator, or if they could not be measured.
	KeepAllBefore, KeepAllAfter int64
	// Verified says that the target itself checked that every byte was where it had to be.
	Verified bool
	// Usage is memory held over time, for charts; Spans are what each queue did. Both only on request.
	Usage []Sample
	Spans []Span
	// Elapsed is how long measuring took.
	Elapsed time.Duration
	// Notes are what a reader should know about this measurement.
	Notes []string
}

// KeepAll returns the step time of keeping everything with which to compare StepTime, the mean of before and
// after, in nanoseconds; 0 if none was measured.
func (m *Measurement) KeepAll() int64 {
	if m.KeepAllBefore == 0 || m.KeepAllAfter == 0 {
		return max(m.KeepAllBefore, m.KeepAllAfter)
	}
	return m.KeepAllBefore + (m.KeepAllAfter-m.KeepAllBefore)/2
}

// Added returns the processor time that the plan adds to a step, in nanoseconds; ok is false if that was not
// measured.
func (m *Measurement) Added() (time int64, ok bool) {
	if m.Work == 0 || m.WorkBefore == 0 || m.WorkAfter == 0 {
		return 0, false
	}
	return m.Work - (m.WorkBefore + (m.WorkAfter-m.WorkBefore)/2), true
}

// RunOptions say how a target carries a plan out.
type RunOptions struct {
	// Cap is the most that the plan may take, in bytes, 0 for any amount. An online allocator holds no more,
	// and a running training takes up no plan that is predicted to need more.
	Cap int64
	// Progress, if not nil, is told in a word or two what the target is doing now: verify, time. It is called
	// from the goroutine that runs.
	Progress func(doing string)
}

// Sample is memory in use from a moment on.
type Sample struct {
	Time  int64 // nanoseconds from the iteration's start
	Bytes int64
}

// Span is one thing that a queue did or waited for.
type Span struct {
	Start, End int64 // nanoseconds from the iteration's start
	// Step is the step of the program; for a stall, the step that was held up.
	Step  int32
	Queue int16
	// Stall says that the queue was idle, waiting for a copy.
	Stall bool
}
