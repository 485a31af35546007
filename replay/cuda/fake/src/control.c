// What the device is, what the test asks of it, and every call's way in.
#include "fake.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct fake fake;

static struct {
    char function[64];
    long n;
    CUresult answer;
} injected;

static struct count {
    const char *function;
    long calls;
} counts[256];

CUresult lost;
static char violation[256], leaks[512];
static long leaked;
static int version = 12040, devices = 1, mode;

void lose(CUresult why) {
    if (!lost) lost = why;
}

CUresult violate(CUresult answer, const char *format, ...) {
    if (!violation[0]) {
        va_list args;
        va_start(args, format);
        vsnprintf(violation, sizeof violation, format, args);
        va_end(args);
    }
    return answer;
}

CUresult enter(const char *function) {
    if (function) {
        struct count *c = counts;
        while (c->function && strcmp(c->function, function)) c++;
        c->function = function, c->calls++;
        if (injected.n > 0 && (!strcmp(injected.function, "*") || !strcmp(injected.function, function)) && --injected.n == 0) {
            CUresult r = injected.answer;
            if (r == CUDA_ERROR_ECC_UNCORRECTABLE || r >= 700) lose(r);
            return r;
        }
    }
    return lost;
}

API void fake_reset(uint64_t capacity, uint64_t outside, uint64_t seed) {
    queue_reset();
    memory_reset();
    memset(&fake, 0, sizeof fake);
    memset(counts, 0, sizeof counts);
    memset(&injected, 0, sizeof injected);
    fake.capacity = capacity, fake.outside = outside, fake.seed = seed, fake.copy_rate = 1, fake.kernel_rate = 10;
    lost = 0, violation[0] = leaks[0] = 0, leaked = 0, version = 12040, devices = 1, mode = 0;
}

API void fake_schedule(uint64_t seed) { fake.seed = seed; }
API void fake_machine(int driver, int count, int compute_mode) { version = driver, devices = count, mode = compute_mode; }
API void fake_fail(const char *function, long n, int answer) {
    snprintf(injected.function, sizeof injected.function, "%s", function);
    injected.n = n, injected.answer = answer;
}
API long fake_calls(const char *function) {
    long all = 0;
    for (struct count *c = counts; c->function; c++)
        if (!strcmp(function, "*") || !strcmp(c->function, function)) all += c->calls;
    return all;
}
API const char *fake_violation(void) { return violation; }
API uint64_t fake_held(void) { return fake.held; }
API uint64_t fake_peak(void) { return fake.peak; }
API long fake_leaked(void) { return leaked; }
API const char *fake_leaks(void) { return leaks; }
API int fake_contexts(void) { return fake.contexts; }

// A program that runs by itself has no test that asks: what it did wrong is said when it ends.
static void confess(void) {
    if (violation[0]) fprintf(stderr, "fake driver: %s\n", violation);
    if (leaked || fake.contexts || fake.held)
        fprintf(stderr, "fake driver: %ld things were left when a context went (%s); %d contexts and %llu bytes are left\n", leaked, leaks, fake.contexts,
                (unsigned long long)fake.held);
}

API CUresult cuInit(unsigned int flags) {
    (void)flags;
    if (!fake.capacity) { // a program opened it by itself
        const char *bytes = getenv("FAKE_CUDA_BYTES");
        const char *machine = getenv("FAKE_CUDA_MACHINE"), *fail = getenv("FAKE_CUDA_FAIL");
        fake_reset(bytes ? strtoull(bytes, 0, 10) : 1ull << 30, 0, 0);
        if (machine && *machine && sscanf(machine, "%d,%d,%d", &version, &devices, &mode) != 3) abort();
        if (fail && *fail && sscanf(fail, "%63[^,],%ld,%d", injected.function, &injected.n, (int *)&injected.answer) != 3) abort();
        atexit(confess);
    }
    return devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
API CUresult cuDriverGetVersion(int *v) { return *v = version, CUDA_SUCCESS; }
API CUresult cuDeviceGetCount(int *n) { return *n = devices, CUDA_SUCCESS; }
API CUresult cuDeviceGet(CUdevice *d, int i) {
    if (i < 0 || i >= devices) return CUDA_ERROR_INVALID_DEVICE;
    return *d = i, CUDA_SUCCESS;
}
API CUresult cuDeviceGetName(char *s, int n, CUdevice d) { return (void)d, snprintf(s, n, "FAKE GPU"), CUDA_SUCCESS; }
API CUresult cuDeviceGetUuid(CUuuid *u, CUdevice d) { return memset(u, 0x11 * (d + 1), sizeof *u), CUDA_SUCCESS; }
API CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d) { return (void)d, *n = fake.capacity, CUDA_SUCCESS; }
API CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) {
    (void)d;
    switch ((int)a) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return *v = 8, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return *v = 9, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return *v = 0, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: return *v = mode, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: return *v = 1, CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuCtxCreate_v2(CUcontext *c, unsigned int flags, CUdevice d) {
    ENTER();
    (void)flags, (void)d;
    if (mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    fake.contexts++;
    *c = fake.current = (CUcontext)&fake;
    return CUDA_SUCCESS;
}

// Destroying a context takes everything with it; what was still there is written down first.
API CUresult cuCtxDestroy_v2(CUcontext c) {
    CUresult r = enter(__func__);
    if (!fake.contexts) return violate(CUDA_ERROR_INVALID_CONTEXT, "the context is destroyed twice");
    (void)c;
    char a[256], b[128];
    long n = memory_leaks(a, sizeof a) + queue_leaks(b, sizeof b);
    if (n) leaked += n, snprintf(leaks, sizeof leaks, "%s, %s", a, b);
    queue_reset();
    memory_reset();
    fake.contexts--, fake.current = NULL;
    lost = 0;
    return r;
}

API CUresult cuCtxSetCurrent(CUcontext c) { return fake.current = c, CUDA_SUCCESS; }
API CUresult cuCtxGetCurrent(CUcontext *c) { return *c = fake.current, CUDA_SUCCESS; }

API CUresult cuGetErrorName(CUresult r, const char **name) {
    static const struct { CUresult r; const char *name; } known[] = {
        {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"}, {CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE"},
        {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
        {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM"}};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].r == r) return *name = known[i].name, CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_VALUE;
}
