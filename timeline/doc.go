// Package timeline answers the questions to a trace: lifetimes, usage over time, high-water mark, breakdowns,
// the allocator's state, iterations, leaks. Packages autopsy and runs, which stand on it, explain a peak and
// compare recordings.
//
// [Build] turns a frozen traces.Trace into a Timeline: columnar, pointer-free, immutable, shared between
// goroutines without locks. It does no IO and knows no terminal. Everything that takes longer than a few
// milliseconds on ten million events takes a context.
//
// Positions are [Moment]s: a device's state just after one of its events. Allocated, active and reserved
// bytes are rounded bytes, as PyTorch reports them; requested bytes are called so.
package timeline
