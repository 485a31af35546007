// Package timeline answers questions about a trace: lifetimes, usage over time, high-water mark, categories,
// the allocator's state. Four packages build on it: sites groups live allocations by origin, steps finds
// iterations and phases, autopsy explains a peak, and runs compares recordings.
//
// [Build] turns a frozen traces.Trace into a Timeline: columnar, pointer-free, immutable, shared between
// goroutines without locks. It does no I/O and knows no terminal. Everything that takes longer than a few
// milliseconds on ten million events takes a context.
//
// Positions are [Moment]s: a device's state just after one of its events. Allocated, active and reserved
// bytes are rounded bytes, as PyTorch reports them; figures in requested bytes are called requested.
package timeline
