// Memory: whole allocations, pools in stream order, virtual memory, pinned host memory.
#define _GNU_SOURCE
#include "fake.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define SPACE (1ull << 42)

struct physical {
    size_t size;
    off_t offset;
    int mappings;
    bool released;
};

struct pinned {
    const char *p;
    size_t size;
    struct pinned *next;
};

static char *space; // addresses are never used twice
static size_t used;
static int file = -1;
static off_t file_end;
static struct range *ranges;
static struct physical made[1 << 16];
static int made_count;
static struct pinned *pins;
static size_t pool_now, pool_peak;
static int pools;

static CUdeviceptr addresses(size_t size) {
    if (!space) {
        space = mmap(NULL, SPACE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (space == MAP_FAILED) { space = NULL; return 0; }
        used = GRANULARITY - (uintptr_t)space % GRANULARITY;
    }
    size = (size + 511) & ~511ull;
    if (size >= GRANULARITY) used = ((uintptr_t)space + used + GRANULARITY - 1) / GRANULARITY * GRANULARITY - (uintptr_t)space;
    if (used + size + GRANULARITY > SPACE) return 0;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)(space + used);
    used += size;
    return at;
}

static CUresult hold(size_t size) {
    if (fake.held + fake.outside + size > fake.capacity) return CUDA_ERROR_OUT_OF_MEMORY;
    fake.held += size;
    if (fake.held > fake.peak) fake.peak = fake.held;
    return CUDA_SUCCESS;
}

static struct range *add(CUdeviceptr at, size_t size, int kind) {
    struct range *r = calloc(1, sizeof *r);
    r->at = at, r->size = size, r->kind = kind, r->alive = true, r->next = ranges;
    return ranges = r;
}

static struct range *exact(CUdeviceptr at, int kind) {
    for (struct range *r = ranges; r; r = r->next)
        if (r->at == at && (int)r->kind == kind) return r;
    return NULL;
}

static void drop(struct range *r) {
    for (struct range **p = &ranges; *p; p = &(*p)->next)
        if (*p == r) { *p = r->next; free(r); return; }
}

struct range *range_of(CUdeviceptr at, size_t size) {
    for (struct range *r = ranges; r; r = r->next)
        if (r->kind != RESERVED && r->kind != MAPPED && r->at <= at && at + size <= r->at + r->size) return r;
    return NULL;
}

// mapped reports whether mappings cover a range without a hole.
static bool mapped(CUdeviceptr at, size_t size) {
    for (CUdeviceptr end = at + size; at < end;) {
        struct range *r = ranges;
        while (r && !(r->kind == MAPPED && r->alive && r->at <= at && at < r->at + r->size)) r = r->next;
        if (!r) return false;
        at = r->at + r->size;
    }
    return true;
}

void *poke(CUdeviceptr at, size_t size, const char *who) {
    struct range *r = range_of(at, size);
    if (r ? r->alive : mapped(at, size)) return (void *)(uintptr_t)at;
    violate(CUDA_ERROR_ILLEGAL_ADDRESS, "%s touches %zu bytes at %#llx, which are %s", who, size, at, r ? "not allocated yet, or given back" : "not allocated");
    lose(CUDA_ERROR_ILLEGAL_ADDRESS);
    return NULL;
}

API CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    ENTER();
    *free = fake.capacity - fake.held - fake.outside, *total = fake.capacity;
    return CUDA_SUCCESS;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t size) {
    ENTER();
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = hold((size + 511) & ~511ull);
    if (r) return r;
    if (!(*p = addresses(size))) return CUDA_ERROR_OUT_OF_MEMORY;
    add(*p, size, ALLOCATED);
    return CUDA_SUCCESS;
}

API CUresult cuMemFree_v2(CUdeviceptr p) {
    ENTER();
    struct range *r = exact(p, ALLOCATED);
    if (!r) return violate(CUDA_ERROR_INVALID_VALUE, "%#llx is freed and is not allocated", p);
    fake.held -= (r->size + 511) & ~511ull;
    uintptr_t from = (p + 4095) & ~4095ull, to = (p + r->size) & ~4095ull;
    if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
    drop(r);
    return CUDA_SUCCESS;
}

API CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned int flags) {
    ENTER();
    if (!size || flags) return CUDA_ERROR_INVALID_VALUE;
    struct pinned *x = calloc(1, sizeof *x);
    x->p = p, x->size = size, x->next = pins, pins = x;
    return CUDA_SUCCESS;
}

API CUresult cuMemHostUnregister(void *p) {
    ENTER();
    for (struct pinned **x = &pins; *x; x = &(*x)->next)
        if ((*x)->p == p) {
            struct pinned *gone = *x;
            *x = gone->next;
            free(gone);
            return CUDA_SUCCESS;
        }
    return violate(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "%p is unregistered and was not registered", p);
}

bool registered(const void *p, size_t size) {
    const char *q = p;
    for (struct pinned *x = pins; x; x = x->next)
        if (x->p <= q && q + size <= x->p + x->size) return true;
    return false;
}

// Pools: one size a hole, reused in the order of one stream.

API CUresult cuMemPoolCreate(CUmemoryPool *p, const CUmemPoolProps *props) {
    ENTER();
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    pools++, pool_now = pool_peak = 0;
    *p = (CUmemoryPool)&pools;
    return CUDA_SUCCESS;
}

static void trim(void) {
    for (struct range *r = ranges, *next; r; r = next) {
        next = r->next;
        if (r->kind == POOLED && r->given && range_done(r)) fake.held -= r->size, pool_now -= r->size, drop(r);
    }
}

API CUresult cuMemPoolDestroy(CUmemoryPool p) {
    ENTER();
    if (!pools || p != (CUmemoryPool)&pools) return violate(CUDA_ERROR_INVALID_VALUE, "a pool is destroyed twice");
    trim();
    pools--;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolTrimTo(CUmemoryPool p, size_t keep) {
    ENTER();
    (void)p, (void)keep;
    trim();
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAttribute(CUmemoryPool p, CUmemPool_attribute a, void *value) {
    ENTER();
    (void)p, (void)a, (void)value;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool p, CUmemPool_attribute a, void *value) {
    ENTER();
    (void)p;
    *(uint64_t *)value = a == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool_now : pool_peak;
    return CUDA_SUCCESS;
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t size, CUmemoryPool pool, CUstream s) {
    ENTER();
    (void)pool;
    size = (size + 511) & ~511ull;
    for (struct range *r = ranges; r; r = r->next)
        if (r->kind == POOLED && r->given && r->size == size && (r->stream == s || range_done(r))) {
            r->given = false;
            *p = r->at;
            return enqueue_pool(s, r, true);
        }
    CUresult e = hold(size);
    if (e) return e;
    struct range *r = add(addresses(size), size, POOLED);
    r->alive = false;
    *p = r->at;
    if ((pool_now += size) > pool_peak) pool_peak = pool_now;
    return enqueue_pool(s, r, true);
}

API CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s) {
    ENTER();
    struct range *r = exact(p, POOLED);
    if (!r || r->given) return violate(CUDA_ERROR_INVALID_VALUE, "%#llx is given back to the pool and is not of it", p);
    r->given = true, r->stream = s;
    return enqueue_pool(s, r, false);
}

// Virtual memory. Physical memory is a stretch of one file, mapped wherever it is asked for.

API CUresult cuMemGetAllocationGranularity(size_t *size, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags f) {
    ENTER();
    (void)prop, (void)f;
    *size = GRANULARITY;
    return CUDA_SUCCESS;
}

API CUresult cuMemAddressReserve(CUdeviceptr *p, size_t size, size_t align, CUdeviceptr hint, unsigned long long flags) {
    ENTER();
    (void)align, (void)hint, (void)flags;
    if (!size || size % GRANULARITY) return CUDA_ERROR_INVALID_VALUE;
    if (!(*p = addresses(size))) return CUDA_ERROR_OUT_OF_MEMORY;
    add(*p, size, RESERVED);
    return CUDA_SUCCESS;
}

API CUresult cuMemAddressFree(CUdeviceptr p, size_t size) {
    ENTER();
    struct range *r = exact(p, RESERVED);
    if (!r || r->size != size) return violate(CUDA_ERROR_INVALID_VALUE, "%zu bytes of addresses at %#llx are given back and were not reserved", size, p);
    for (struct range *m = ranges; m; m = m->next)
        if (m->kind == MAPPED && m->at >= p && m->at < p + size) return violate(CUDA_ERROR_INVALID_VALUE, "addresses are given back while memory is mapped there");
    drop(r);
    return CUDA_SUCCESS;
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t size, const CUmemAllocationProp *prop, unsigned long long flags) {
    ENTER();
    (void)flags;
    if (!size || size % GRANULARITY || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (made_count == sizeof made / sizeof *made) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = hold(size);
    if (r) return r;
    if (file < 0) file = memfd_create("device", 0);
    if (ftruncate(file, file_end + size)) return CUDA_ERROR_OPERATING_SYSTEM;
    made[made_count] = (struct physical){size, file_end, 0, false};
    file_end += size;
    *h = ++made_count;
    return CUDA_SUCCESS;
}

static struct physical *physical(CUmemGenericAllocationHandle h) {
    return h && h <= (unsigned)made_count && made[h - 1].size ? &made[h - 1] : NULL;
}

static void reclaim(struct physical *x) {
    if (x->released && !x->mappings) {
        fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, x->offset, x->size);
        fake.held -= x->size, x->size = 0;
    }
}

API CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
    ENTER();
    struct physical *x = physical(h);
    if (!x || x->released) return violate(CUDA_ERROR_INVALID_VALUE, "handle %llu is released twice, or is none", h);
    x->released = true;
    reclaim(x);
    return CUDA_SUCCESS;
}

API CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags) {
    ENTER();
    (void)flags;
    struct physical *x = physical(h);
    struct range *r = ranges;
    while (r && !(r->kind == RESERVED && r->at <= p && p + size <= r->at + r->size)) r = r->next;
    if (!x || x->released || !r || offset || size != x->size || p % GRANULARITY) return violate(CUDA_ERROR_INVALID_VALUE, "handle %llu cannot be mapped at %#llx", h, p);
    for (struct range *m = ranges; m; m = m->next)
        if (m->kind == MAPPED && m->at < p + size && p < m->at + m->size) return violate(CUDA_ERROR_ALREADY_MAPPED, "%#llx is mapped already", p);
    if (mmap((void *)(uintptr_t)p, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, x->offset) == MAP_FAILED) return CUDA_ERROR_OPERATING_SYSTEM;
    x->mappings++;
    r = add(p, size, MAPPED);
    r->handle = h, r->alive = false; // until access is given
    return CUDA_SUCCESS;
}

API CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc *d, size_t n) {
    ENTER();
    if (n != 1 || d->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
    for (struct range *r = ranges; r; r = r->next)
        if (r->kind == MAPPED && r->at >= p && r->at + r->size <= p + size) r->alive = true;
    return mapped(p, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemUnmap(CUdeviceptr p, size_t size) {
    ENTER();
    for (CUdeviceptr at = p; at < p + size;) {
        struct range *r = exact(at, MAPPED);
        if (!r || at + r->size > p + size) return violate(CUDA_ERROR_INVALID_VALUE, "%#llx is unmapped and nothing is mapped there", at);
        at += r->size;
    }
    for (CUdeviceptr at = p; at < p + size;) {
        struct range *r = exact(at, MAPPED);
        struct physical *x = physical(r->handle);
        mmap((void *)(uintptr_t)at, r->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        at += r->size;
        x->mappings--;
        reclaim(x);
        drop(r);
    }
    return CUDA_SUCCESS;
}

long memory_leaks(char *what, int size) {
    long n[4] = {0}, handles = 0, registrations = 0;
    for (struct range *r = ranges; r; r = r->next)
        if (!(r->kind == POOLED && r->given)) n[r->kind]++;
    for (int i = 0; i < made_count; i++) handles += made[i].size && !made[i].released;
    for (struct pinned *x = pins; x; x = x->next) registrations++;
    long all = n[0] + n[1] + n[2] + n[3] + handles + registrations + pools;
    snprintf(what, size, "%ld allocations, %ld of a pool, %ld reservations, %ld mappings, %ld handles, %ld registrations, %d pools", n[ALLOCATED], n[POOLED],
             n[RESERVED], n[MAPPED], handles, registrations, pools);
    return all;
}

void memory_reset(void) {
    while (ranges) drop(ranges);
    while (pins) { struct pinned *x = pins; pins = x->next; free(x); }
    if (space) munmap(space, SPACE);
    if (file >= 0) close(file);
    space = NULL, used = 0, file = -1, file_end = 0, made_count = 0, pools = 0, pool_now = pool_peak = 0;
    fake.held = 0;
}
