// Package whatif estimates what a recorded run would have needed under other settings of PyTorch's caching
// allocator.
//
// [Allocator] takes what the process did from a recording ([fidelity.Record]) and plays all of it against the
// emulated allocator under other settings: how much it would hold, the smallest memory in which it completes,
// and whether a request that failed would have been served. To show how far these figures can be trusted, it
// also plays the recorded settings and compares the result with the recording. It refuses a recording that
// cannot be replayed, or whose replay diverges.
//
// [Explain] also plays a report's advice about the training itself, through the rest of the step and the
// steps after it.
//
// The package knows no manager, and answers in figures; callers put them into words.
package whatif
