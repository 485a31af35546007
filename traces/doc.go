// Package traces is the ground floor of gmemtop: the event model of one process, which every source fills and
// every view reads.
//
// A [Trace] holds, column by column,
//   - memory events (alloc, free, segment, out of memory) of one process on one or more devices,
//   - ops and the blocks they access, where the source knows them,
//   - marks (iterations, phases, annotations) and counters,
//   - the allocator's final state, where the source has one,
//   - the counted losses: what was in the source and is not in the trace.
//
// Sources fill a [Builder]; [Builder.Finish] freezes it. A frozen Trace is never written again, so it is
// shared between goroutines without locks. Rows hold no pointers: strings, frames and stacks are interned and
// rows carry their indices, so that ten million events cost the garbage collector nothing.
//
// What a trace can answer is its [Kind]; nothing is ever invented beyond it.
//
// Sub-packages read and write one format each (traces/gmt is the native one); traces/load recognises them by
// content. This package imports nothing of ours but traces/maybe.
package traces
