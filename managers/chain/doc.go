// Package chain determines how to recompute a dropped buffer: which ops to rerun, in which order, at which
// moment, and at what cost.
//
// Every manager that recomputes uses it. A manager chooses idle intervals to drop; this package turns them
// into the absences and reruns that [plan.Assemble] carries out and [plan.Validate] accepts, or says in a
// sentence why that is impossible.
//
// # The problem
//
// A value is a buffer's contents between two writes: a buffer that a convolution writes and an activation
// then changes in place holds two values, one after the other. Dropping an idle interval loses one value.
// Bringing it back at position x means rerunning its op, which must find the very values that it read in the
// recording. Some of them are in memory at x. Others have been overwritten, freed or dropped, and must be
// recomputed too, as scratch, and so on backwards.
//
// # The approach
//
// Collect the ops by need, from the wanted values backwards, and run them in issue order. Three facts make
// that correct and simple:
//
//   - Only ops after the op that makes a value need it. So the search moves strictly backwards through the
//     iteration: recompute chains have no cycles, even if two dropped buffers are made from each other's
//     earlier values, and no search for cycles is needed.
//   - In issue order every rerun op finds the value that it read: its producer is in the chain or the value
//     is in memory, and no op of the chain writes the buffer in between, since none did in the recording.
//     That also covers in-place changes and ops with several outputs.
//   - A buffer has one place in memory at a time. An op of the chain that writes a buffer which is in memory
//     with another value would destroy that value: such a chain is impossible. If the buffer holds the very
//     value that the op writes, nothing is destroyed and the op may run.
//
// Whether a gap can be dropped must not depend on what else is dropped, or a planner could never try
// combinations. [Builder.Recomputable] answers for the worst case, with a deadline for each value: the last
// position at which it is available even if every recomputable gap is dropped. A value is available as long
// as nobody frees or overwrites it in the recording (either it is present, or its gap was droppable and so it
// can be recomputed), or as long as the inputs of its op are available and no other output of the op has been
// overwritten. One pass over the accesses computes all deadlines. Gaps that end before the deadline of their
// value may be dropped together in any combination.
//
// # Complexity
//
// New is O(ops + accesses). A chain of k ops with a accesses takes O(a log v + k log k), with v the number of
// values of one buffer. Memory is linear in the accesses; queries allocate only what they return.
//
// # Rejected
//
// Recursion over buffers instead of values, with a visited set against cycles: it reports cycles where there
// are none (a buffer mutated in place depends on itself) and misses that an input was overwritten. Choosing
// the order of the chain that needs the least scratch: NP-hard in general (register allocation on directed
// acyclic graphs; Sethi 1975), and wrong as soon as ops write in place.
package chain
