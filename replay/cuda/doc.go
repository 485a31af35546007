// Package cuda carries plans out on an NVIDIA GPU: the recorded iteration is enacted again with real memory,
// real copies and kernels that do as much work as the recorded ones, so that what the simulator says becomes
// a measurement.
//
// Its duties:
//   - [Target]: a device as replay's targets are, with [Target.Run] for one plan;
//   - the executor behind it: memory where the plan or its online allocator puts it, a stream for each queue of the plan, its waits as events, its host copies
//     in pinned memory;
//   - a verification of every plan before it is timed: each block is filled with a pattern of its identity when it is produced and checked at every later
//     access and before its memory goes, by the device itself;
//   - [Calibrate]: what copies, launches and allocations cost on the device, for the simulator.
//
// Packages below:
//
//	driver          the one small interface through which all of this sees a GPU, and what can go wrong in words
//	driver/libcuda  one binary for machines with and without a driver: trampolines, the header, what gorgonia.org/cu lacks
//	fake            a driver library for tests, in C: strict about order and memory, fails where it is told to
//
// `make` builds with -tags cuda. A plain build has all of this but the driver, and [Target.Run] answers
// "built without it".
//
// # What is proven here and what is not
//
// Placement, order, copies and what allocators cost are real. Kernels are stand-ins: they stream as many
// bytes and issue as many instructions as take the recorded time alone, so that copies and compute slow each
// other down; what the recorded kernels compute, and whether running them again gives the same bytes, is not
// proven here but by live training.
//
// # Who owns the thread
//
// A CUDA context belongs to a thread of the operating system. [Target.Run] locks its goroutine to its thread,
// opens the device, does everything there, and closes the device before it unlocks: a context a run. That
// costs a few tenths of a second, and in exchange nothing of one run can be left to the next, and a device
// that was lost in one is opened again in the next. Runs on one Target wait for each other.
//
// Everything that a run takes from the device or pins on the host goes through a ledger, which gives it back
// on every way out: error, panic, cancellation.
package cuda
