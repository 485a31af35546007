// A driver library for tests: the entry points that package driver calls, with real bookkeeping and no GPU.
//
// What it is strict about, so that a program which passes here has no luck to thank:
//   - work is done only when something waits for it, and then no more of it than that needs (or, with a seed, any order that streams and events allow);
//   - every access of running work is checked against what is allocated, mapped and registered at that moment;
//   - freeing twice, freeing what work still needs, copying to host memory that is not registered are faults, the first of which is kept in words.
//
// Device memory is memory of this process at the same addresses, so that kernels really write and a shared physical page really is shared.
#ifndef GMEMTOP_FAKE_H
#define GMEMTOP_FAKE_H

#include <cuda.h>
#include <stdbool.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define GRANULARITY (2ull << 20)

// A call begins with ENTER: it is counted, an injected failure or an earlier fatal one ends it here.
#define ENTER() do { CUresult r_ = enter(__func__); if (r_) return r_; } while (0)

CUresult enter(const char *function);
CUresult violate(CUresult answer, const char *format, ...);
void lose(CUresult why);
extern CUresult lost; // what every call answers from then on

// A range of device memory.
struct range {
    CUdeviceptr at;
    size_t size;
    enum { ALLOCATED, POOLED, RESERVED, MAPPED } kind;
    bool alive;                          // of pooled memory: whether its allocation has come to pass
    CUmemGenericAllocationHandle handle; // of mapped memory
    CUstream stream;                     // of pooled memory that was given back: the stream in whose order
    bool given;
    struct range *next;
};

struct range *range_of(CUdeviceptr at, size_t size);
bool registered(const void *p, size_t size);
void *poke(CUdeviceptr at, size_t size, const char *who); // the bytes of a range, or NULL and a fault where work may not touch them
long memory_leaks(char *what, int size);
void memory_reset(void);
long queue_leaks(char *what, int size);
void queue_reset(void);
CUresult enqueue_pool(CUstream s, struct range *r, bool alloc);
bool range_done(struct range *r); // whether its being given back has come to pass

extern struct fake {
    uint64_t capacity, held, peak, outside;
    uint64_t seed; // 0 is lazy, 1 is at once, others are an order of their own
    uint64_t now;  // the host's clock, in nanoseconds
    double copy_rate, kernel_rate; // bytes a nanosecond
    int contexts;
    CUcontext current;
} fake;

#endif
