// Package fake is a driver library for tests: C of our own (src), compiled by the test that wants it, that stands in for
// libcuda.so.1.
//
// It keeps real books (capacity, what is allocated, mapped, pinned and in use at the moment work touches it), it does work only
// when something waits for it, so that an order which the program forgot to ask for is not there by luck, and it fails the n-th
// call of any function when told to. It runs the three kernels of package cuda by name. src/fake.h says what it is strict about.
//
// Everything but this comment is built with -tags cuda only.
package fake
