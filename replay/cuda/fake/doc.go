// Package fake is a driver library for tests: C of our own (src), compiled by the test that wants it, that stands in for
// libcuda.so.1.
//
// It keeps real books (capacity, what is allocated, mapped, pinned and in use at the moment work touches it), it does work only
// when something waits for it, so that an order which the program forgot to ask for is not there by luck, and it fails the n-th
// call of any function when told to. It runs the three kernels of package cuda by name. src/fake.h says what it is strict about.
//
// A program that opens it by itself tells it by environment variables: FAKE_CUDA_BYTES its memory, FAKE_CUDA_MACHINE the driver's
// version, number of devices and compute mode ("12040,1,0"), FAKE_CUDA_FAIL a function, which call of it, and its answer
// ("cuMemAlloc_v2,3,2"). What the program did wrong is said on standard error when it ends.
//
// Everything but this comment is built with -tags cuda only.
package fake
