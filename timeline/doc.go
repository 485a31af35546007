// Package timeline answers the questions to a trace: lifetimes, usage over time, high-water mark, categories,
// the allocator's state. On it stand sites, which groups what is alive by where it comes from, steps, which
// finds iterations and phases, autopsy, which explains a peak, and runs, which compares recordings.
//
// [Build] turns a frozen traces.Trace into a Timeline: columnar, pointer-free, immutable, shared between
// goroutines without locks. It does no IO and knows no terminal. Everything that takes longer than a few
// milliseconds on ten million events takes a context.
//
// Positions are [Moment]s: a device's state just after one of its events. Allocated, active and reserved
// bytes are rounded bytes, as PyTorch reports them; requested bytes are called so.
package timeline
