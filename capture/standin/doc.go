// Package standin builds and describes a stand-in GPU: a library that takes the place of NVIDIA's runtime,
// driver and libraries in a process on a machine without a GPU, so that PyTorch's own CUDA code runs there.
//
// `pip install torch` on Linux is the CUDA build. What it needs below it is a documented API. The library
// (src, C++ of our own) answers that API: device memory is host memory that is reserved and touched only
// where somebody writes, copies and events are real, streams are queues whose work runs as late as the
// program allows, and kernels do nothing. The package compute makes ops compute true numbers all the same.
//
// It is a floor for tests, and no process meets it unless it is started with the environment that
// [Library.Environ] returns. What it is no evidence for: time, kernels, and how a real driver behaves beyond
// its documentation.
package standin
