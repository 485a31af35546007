// Package fidelity proves the emulated caching allocator against recordings of the real one.
//
// A PyTorch snapshot records the program's requests (alloc, free_requested, free_completed, each with its
// stream) and the allocator's decisions (addresses, segment_alloc, segment_free, segment_map, segment_unmap).
// [Replay] gives the requests to [allocator.Caching], with the recorded settings and from the recorded state
// at the start, and compares every decision: where each block was put, and which segments were obtained from
// the driver and returned. The share of equal decisions is the report's score, and shows how far to trust the
// emulation under settings that were never recorded.
//
// Replay refuses recordings that it cannot simulate with a [*Refusal], which says why.
package fidelity
