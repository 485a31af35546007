// Package allocator emulates online memory allocators of GPUs over an abstract driver: how PyTorch's caching
// allocator, a CnMem-like arena, GMLake and plain cudaMalloc serve the same sequence of requests, byte for
// byte and call for call.
//
//   - [Driver] supplies an allocator's memory: the simulated device of [NewDriver], or a real one.
//   - [Allocator] is an emulated policy: [NewCaching], [NewArena], or any of [Policies] from [New].
//   - [Settings] are the caching allocator's settings, parsed from PYTORCH_CUDA_ALLOC_CONF or a snapshot.
//   - [Events] says when work on other streams is done, for blocks used there.
//
// An allocator decides addresses and driver calls; it moves no bytes and knows no time. Every answer is a
// function of the calls made and of the driver's and events' answers, so a replay is deterministic. Nothing
// here is safe for concurrent use: an allocator belongs to one goroutine, as PyTorch's belongs to the thread
// that holds its lock.
//
// The package imports the standard library and traces/torchalloc only, so that both the simulator and the
// device executor can use it.
package allocator
