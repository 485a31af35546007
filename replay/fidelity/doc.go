// Package fidelity proves the emulated caching allocator against recordings of the real one.
//
// A PyTorch snapshot says what the program asked for (alloc, free_requested, free_completed, each with its
// stream) and what the allocator made of it (addresses, segment_alloc, segment_free, segment_map,
// segment_unmap). [Replay] gives the requests to [allocator.Caching], with the recorded settings and from the
// recorded state at the start, and compares every decision: where each block was put, which segments were
// asked from the driver and given back. The share that is the same is the report's score, and what the
// emulation says of settings that were never recorded is to be believed as far as that score goes.
//
// What Replay cannot simulate it refuses with a [*Refusal], which says why.
package fidelity
