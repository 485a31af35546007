// Package libcuda lets one binary call the CUDA driver wherever it runs: the binary starts without a libcuda,
// needs no toolkit to build, and opens the driver's library on request.
//
// Its duties:
//   - include/cuda.h: the declarations that gorgonia.org/cu is compiled against, written by us; `make` puts
//     it before every other header;
//   - a definition for every function that the header declares, which jumps to the driver's own once [Open]
//     has found it (trampolines);
//   - [Open] and [Close];
//   - what gorgonia.org/cu lacks, in the same manner: pinned host memory, virtual memory, stream-ordered
//     allocation.
//
// Everything but this comment is built only with -tags cuda. A file that imports gorgonia.org/cu must import
// this package too: without it linking may succeed, if another package also loads its library late, and the
// first call would jump to address 0.
//
// # Why trampolines
//
// The problem: gorgonia.org/cu is written to be linked with -lcuda. A binary linked that way does not start
// on a machine without a driver, and the library's package initialisation ends the process if there is a
// driver but no GPU.
//
// The solution: the archive that -lcuda finds is empty (stub/libcuda.a), and every function is defined here,
// hidden, as one jump through a table. The table is filled with a function that answers CUDA_ERROR_NOT_FOUND
// until Open fills it from dlsym; what an older driver lacks stays so. cuInit alone is not a jump: it answers
// success, so that package initialisation passes, and Open calls the real one.
//
// Rejected: lazy binding with unresolved symbols (the initialisation jumps to 0); a wrapper in C a function
// (the same table with 170 bodies instead of 170 jumps, to be written by hand); purego (a second way of
// calling C beside the cgo that NVML needs anyway).
package libcuda

//go:generate go run generate.go
