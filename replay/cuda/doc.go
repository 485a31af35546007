// Package cuda carries plans out on an NVIDIA GPU: it replays the recorded iteration with real memory, real
// copies and kernels that do as much work as the recorded ones, so that simulated figures can be measured.
//
// Its duties:
//   - [Target]: a device as a target of package replay, with [Target.Run] for one plan;
//   - the executor behind it: memory where the plan or its online allocator puts it, a stream for each queue
//     of the plan, its waits as events, its host copies in pinned memory;
//   - a verification of every plan before it is timed: the device fills each block with a pattern of its
//     identity when it is produced, and checks the pattern at every later access and before its memory is
//     given up;
//   - [Calibrate]: what copies, launches and allocations cost on the device, for the simulator.
//
// Packages below:
//
//	driver          the small interface through which all of this uses a GPU, and its errors in words
//	driver/libcuda  one binary for machines with and without a driver: trampolines, the header, and what
//	                gorgonia.org/cu lacks
//	fake            a driver library for tests, in C: strict about order and memory; it fails where told to
//
// `make` builds with -tags cuda. A plain build has all of this but the driver, and [Target.Run] answers
// "built without it".
//
// # What is proven here and what is not
//
// Placement, order, copies and the cost of allocators are real. Kernels are stand-ins: each streams bytes and
// issues instructions for as long as the recorded kernel took alone, so that copies and compute slow each
// other down. What the recorded kernels compute, and whether running them again gives the same bytes, is
// proven only in live training.
//
// # Who owns the thread
//
// A CUDA context belongs to a thread of the operating system. [Target.Run] locks its goroutine to its thread,
// opens the device, does everything there, and closes the device before it unlocks: a context a run. That
// costs a few tenths of a second; in return nothing is left over from one run to the next, and a device lost
// in one run is opened again in the next. Runs on one Target wait for each other.
//
// Everything that a run takes from the device or pins on the host goes through a ledger, which gives it back
// in every case: error, panic, cancellation.
package cuda
