// Package torchsnapshot reads and writes PyTorch's memory snapshots: the files that
// torch.cuda.memory._dump_snapshot makes and that memory_viz shows.
//
//   - [Sniff] recognises one by its first bytes.
//   - [Read] decodes pickle protocols 2 to 5 and JSON, of torch 1.13 and later, as a stream: nothing is
//     executed, no object graph is kept, and what this version does not know is kept as JSON and counted.
//   - [Write] makes a snapshot of any trace.
//
// device_traces (and host_traces, on devices of kind host) become the trace's events, segments (and
// host_segments) its final state, external_annotations its marks, allocator_settings its settings, other keys
// its extra. Sizes of trace entries are requested bytes, sizes of blocks are rounded bytes, as in PyTorch.
// PyTorch writes a compile_context of N/A if there is none.
package torchsnapshot
