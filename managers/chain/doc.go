// Package chain works out how a dropped buffer is made again: which ops run again, in which order, at which
// moment, and what that costs.
//
// It serves every manager that recomputes. A manager chooses idle intervals to drop; this package turns them
// into the absences and reruns that [plan.Assemble] carries out and [plan.Validate] accepts, or says in a
// sentence why it cannot be done.
//
// # The problem
//
// A value is what a buffer holds between two writes: a buffer that a convolution writes and an activation
// then changes in place holds two values, one behind the other. Dropping an idle interval loses one value;
// bringing it back at position x means running its op again, which must find the very values that it read in
// the recording. Some of them are in memory at x. Others were overwritten, freed or dropped since, and have
// to be made again too, as scratch, and so on backwards.
//
// # The way chosen
//
// Collect the ops by need, from the wanted values backwards, and run them in issue order. Three facts make
// that right and simple:
//
//   - A value is needed only by ops behind the op that makes it. So the search moves strictly backwards
//     through the iteration: recompute chains have no cycles, even where two dropped buffers are made from
//     each other's earlier values, and no search for cycles is needed.
//   - In issue order every op that runs again finds the value it read: its maker is in the chain or the value
//     is in memory, and no op of the chain writes the buffer in between, since in the recording none did.
//     That settles in-place changes and ops of several outputs without a case of their own.
//   - A buffer has one place in memory at a time. An op of the chain that writes a buffer which is in memory
//     with another value would destroy that value: such a chain is impossible. If it holds the very value
//     that the op writes, nothing is destroyed and the op may run.
//
// Whether a gap can be dropped must not depend on what else is dropped, or a planner could never try
// combinations. [Builder.Recomputable] answers for the worst case, by a deadline for each value: the last
// position at which it can be had although every recomputable gap is dropped. A value can be had as long as
// nobody frees or overwrites it in the recording (either it is there, or its gap was droppable and so it can
// be made), or as long as the inputs of its op can be had and no other output of the op has moved on. One
// pass over the accesses computes all deadlines; gaps that end before the deadline of their value's making
// may be dropped together in any combination.
//
// # Complexity
//
// New is O(ops + accesses). A chain of k ops with a accesses takes O(a log v + k log k), v being the number
// of values of one buffer. Memory is linear in the accesses; queries allocate only what they return.
//
// # The way rejected
//
// Recursion over buffers instead of values, with a visited set against cycles: it reports cycles where there
// are none (a buffer mutated in place depends on itself) and misses that an input was overwritten. Choosing
// an order of the chain that needs the least scratch: NP-hard in general (register allocation on directed
// acyclic graphs; Sethi 1975), and wrong as soon as ops write in place.
package chain
