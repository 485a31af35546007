// Package usdt watches the memory of a running process from the outside, by probes in the kernel (eBPF).
// Nothing is loaded into the process, no Python is run, and no restart is needed.
//
// # What is probed
//
// PyTorch's libc10_cuda.so ships two static probes (USDT), pytorch:malloc and pytorch:free, at the caching
// allocator: every tensor's block with its device, requested size and stream ([PyTorch]). NVIDIA's
// libcuda.so.1 exports the driver's calls, and probes on those see the segments of any CUDA program, however
// it allocates and finds the functions ([Driver]).
//
// # Where the arguments are
//
// A static probe is a single nop and a note in the ELF file: its address, its semaphore, and a string that
// says where the compiler happened to keep each argument, such as "-8@%rax -1@%dl -8@%r14 -8@-104(%rbp)". The
// string differs between builds, so it is parsed and handed to the kernel program as constants: see notes.go
// and operand.go. The driver's functions take their arguments in the registers of the calling convention;
// what they return through a pointer is read when they return.
//
// Rejected: probes on mangled C++ names. The allocator's class is local to its file and the library is
// stripped, so that stock builds have no such symbols.
//
// # What it costs
//
// A hit is a trap into the kernel. If the kernel can emulate the probed instruction (a nop, a push, a jump),
// that trap is the whole cost; any other is copied out and single-stepped, a second trap, which on virtual
// machines costs tens of microseconds. NVIDIA's functions begin with a comparison and a jump, so the probe is
// put on the jump: see prologue.go. Events go through a ring buffer that the reader empties every few
// milliseconds; events that do not fit are counted.
//
// # What it cannot see
//
// Blocks that were alive before the probes were attached: their frees are counted. Python stacks. When a free
// completes on its stream. Allocations that bypass the caching allocator's main entry (raw_alloc of some C++
// extensions). Which device a driver's call is for, unless the call says so. Sizes are as requested, without
// the allocator's rounding.
//
// # What it needs
//
// Linux 5.8 on x86-64 and root; from Linux 6.10 CAP_BPF and CAP_PERFMON are enough (and CAP_SYS_PTRACE for
// another user's process). Every reason why it cannot work is an error of one sentence that ends with what to
// do: see errors.go.
//
// Sources: SystemTap, "User Space Probe Implementation" (format of the notes);
// c10/cuda/CUDACachingAllocator.cpp and c10/util/static_tracepoint.h of PyTorch (names and arguments); cuda.h
// (signatures); arch/x86/kernel/uprobes.c of Linux (which instructions are emulated).
package usdt

//go:generate sh generate.sh
