// Package whatif says what a recorded run would have needed under other settings of PyTorch's caching
// allocator.
//
// [Allocator] takes from a recording what the process did ([fidelity.Record]) and plays all of it against the
// emulated allocator under other settings: how much it would hold, the smallest memory that it would do with,
// and whether a request that failed would have been served. How far that is to be trusted is measured on the
// same recording, by what the emulation makes of the recorded settings; a recording that cannot be replayed,
// or whose replay goes astray, is refused.
//
// [Explain] also plays what a report advises about the training itself, through the rest of the step and the
// steps after it.
//
// The package knows no manager, and answers in figures: callers find the words.
package whatif
