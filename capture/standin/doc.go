// Package standin builds and describes a stand-in GPU: a library that takes the place of NVIDIA's runtime,
// driver and libraries in a process on a machine without a GPU, so that PyTorch's own CUDA code runs there.
//
// `pip install torch` on Linux is the CUDA build. What it needs below it is a documented API. The library
// (src, our own C++) implements that API: device memory is reserved host memory, touched only when written,
// copies and events are real, streams are queues whose work runs as late as the program allows, and kernels
// do nothing. The Python package compute can still make ops compute correct numbers.
//
// It is a basis for tests; only a process started with the environment of [Library.Environ] uses it. It is no
// evidence about time, kernels, or how a real driver behaves beyond its documentation.
package standin
