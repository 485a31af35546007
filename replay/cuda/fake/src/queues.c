// Streams, events, and the work on them: put down when it is given, done when something waits for it.
#include "fake.h"
#include <stdio.h>

enum kind { RECORD, WAIT, OUT, IN, KERNEL, TAKE, GIVE };

struct item {
    enum kind kind;
    bool done;
    uint64_t issued, end; // on the clock of the host
    struct item *next;    // in its stream
    struct item *on;      // of a wait: the record that it waits for
    CUstream stream;
    CUdeviceptr at;
    void *host;
    size_t size;
    struct range *range;
    CUfunction function;
    uint64_t args[8];
    struct item *all;
};

struct CUstream_st {
    struct item *head, *tail; // head is the first that is not done
    struct item *last;        // the last that was given, done or not
    uint64_t free;            // when it is free again
    uint64_t pace;            // how often it is drawn, besides once
    CUstream next;
};

struct CUevent_st {
    struct item *record;
    bool timing;
    CUevent next;
};

struct CUfunc_st {
    enum { FILL, CHECK, WORK } what;
    CUfunction next;
};

struct CUmod_st {
    char *text;
    CUfunction functions;
    CUmodule next;
};

static CUstream streams;
static CUevent events;
static CUmodule modules;
static struct item *items;
static uint64_t dice;

static uint64_t roll(uint64_t n) {
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return dice % n;
}

// The word at g of a pattern, least byte first.
static uint64_t pattern(uint64_t seed, uint64_t g) {
    uint64_t x = seed + g * 0x9e3779b97f4a7c15ull;
    x ^= x >> 29, x *= 0xbf58476d1ce4e5b9ull;
    return x ^ x >> 32;
}

static void fill(unsigned char *p, uint64_t size, uint64_t seed) {
    for (uint64_t i = 0; i < size; i += 8) {
        uint64_t x = pattern(seed, i >> 3);
        memcpy(p + i, &x, size - i < 8 ? size - i : 8);
    }
}

static uint64_t differ(const unsigned char *p, uint64_t size, uint64_t seed) {
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < size; i += 8) {
        uint64_t x = pattern(seed, i >> 3), n = size - i < 8 ? size - i : 8;
        if (memcmp(p + i, &x, n))
            for (uint64_t k = 0; k < n; k++) wrong += p[i + k] != (unsigned char)(x >> 8 * k);
    }
    return wrong;
}

static void kernel(struct item *x) {
    uint64_t *a = x->args;
    unsigned char *p;
    switch (x->function->what) {
    case FILL:
        if ((p = poke(a[0], a[1], "a fill"))) fill(p, a[1], a[2]);
        return;
    case CHECK: {
        uint64_t *result = poke(a[3], 16, "a check"), wrong;
        if (!result || !(p = poke(a[0], a[1], "a check"))) return;
        result[0] += wrong = differ(p, a[1], a[2]);
        if (wrong && a[4] < result[1]) result[1] = a[4];
        return;
    }
    case WORK:
        if (a[1] && !poke(a[0], a[1], "work")) return;
        if (a[3]) poke(a[2], a[3], "work");
    }
}

static uint64_t cost(struct item *x) {
    switch (x->kind) {
    case OUT: case IN: return 1000 + x->size / fake.copy_rate;
    case KERNEL:
        if (x->function->what == WORK) return 1000 + (x->args[4] + x->args[5]) * 8 / fake.kernel_rate + x->args[6];
        return 1000 + x->args[1] / fake.kernel_rate;
    default: return 0;
    }
}

static void perform(struct item *x) {
    CUstream s = x->stream;
    uint64_t start = s->free > x->issued ? s->free : x->issued;
    if (x->kind == WAIT && x->on && x->on->end > start) start = x->on->end;
    x->end = s->free = start + cost(x);
    if (!lost) switch (x->kind) { // a device that is lost does nothing any more
    case OUT: case IN: {
        void *p = poke(x->at, x->size, "a copy");
        if (!p) break;
        if (!registered(x->host, x->size)) {
            violate(CUDA_ERROR_ILLEGAL_ADDRESS, "a copy of %zu bytes touches host memory that is not registered any more", x->size);
            lose(CUDA_ERROR_ILLEGAL_ADDRESS);
        } else if (x->kind == OUT) memcpy(x->host, p, x->size);
        else memcpy(p, x->host, x->size);
        break;
    }
    case KERNEL: kernel(x); break;
    case TAKE: x->range->alive = true; break;
    case GIVE: x->range->alive = false; break;
    default: break;
    }
    x->done = true;
    s->head = x->next;
    if (!s->head) s->tail = NULL;
}

static bool runnable(CUstream s) { return s->head && !(s->head->kind == WAIT && s->head->on && !s->head->on->done); }

// one does one thing of a stream that is drawn. For a while some streams are drawn often and some hardly ever: where all go at one pace, what one of them
// does too early hardly meets what another does too late.
static bool one(void) {
    uint64_t n = 0;
    if (roll(24) == 0)
        for (CUstream s = streams; s; s = s->next) s->pace = 1ull << 2 * roll(7);
    for (CUstream s = streams; s; s = s->next) n += runnable(s) ? s->pace + 1 : 0;
    if (!n) return false;
    n = roll(n);
    for (CUstream s = streams; s; s = s->next)
        if (runnable(s)) {
            if (n <= s->pace) { perform(s->head); return true; }
            n -= s->pace + 1;
        }
    return false;
}

static void until(struct item *target) {
    if (fake.seed > 1) {
        while (!target->done && one()) {}
    } else {
        while (!target->done) {
            struct item *x = target->stream->head;
            if (x->kind == WAIT && x->on && !x->on->done) until(x->on);
            perform(x);
        }
    }
    if (target->end > fake.now) fake.now = target->end;
}

static CUresult give(CUstream s, struct item x) {
    if (!s) return violate(CUDA_ERROR_INVALID_HANDLE, "work is given to no stream");
    struct item *y = malloc(sizeof *y);
    *y = x;
    fake.now += 500;
    y->stream = s, y->issued = fake.now, y->all = items, items = y;
    if (s->tail) s->tail->next = y;
    else s->head = y;
    s->tail = s->last = y;
    if (fake.seed == 1) until(y);
    return CUDA_SUCCESS;
}

CUresult enqueue_pool(CUstream s, struct range *r, bool alloc) { return give(s, (struct item){.kind = alloc ? TAKE : GIVE, .range = r}); }

bool range_done(struct range *r) {
    for (struct item *x = items; x; x = x->all)
        if (x->range == r && !x->done) return false;
    return true;
}

API CUresult cuStreamCreate(CUstream *s, unsigned int flags) {
    ENTER();
    if (flags != CU_STREAM_NON_BLOCKING) return violate(CUDA_ERROR_INVALID_VALUE, "a stream that waits for the default stream");
    *s = calloc(1, sizeof **s);
    (*s)->next = streams, streams = *s;
    dice = (fake.seed + 0x632be59bd9b4e019ull) * 0x9e3779b97f4a7c15ull | 1;
    return CUDA_SUCCESS;
}

API CUresult cuStreamDestroy_v2(CUstream s) {
    ENTER();
    for (CUstream *p = &streams; *p; p = &(*p)->next)
        if (*p == s) {
            if (s->head) until(s->tail); // the driver lets what was given come to its end
            *p = s->next;
            return CUDA_SUCCESS; // items name it: it stays until everything goes
        }
    return violate(CUDA_ERROR_INVALID_HANDLE, "a stream is destroyed twice");
}

API CUresult cuStreamSynchronize(CUstream s) {
    ENTER();
    if (s->tail) until(s->tail);
    return enter(NULL);
}

API CUresult cuCtxSynchronize(void) {
    ENTER();
    if (fake.seed > 1) while (one()) {}
    for (CUstream s = streams; s; s = s->next) {
        if (s->tail) until(s->tail);
        if (s->free > fake.now) fake.now = s->free;
    }
    return enter(NULL);
}

API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned int flags) {
    ENTER();
    (void)flags;
    return give(s, (struct item){.kind = WAIT, .on = e->record});
}

API CUresult cuEventCreate(CUevent *e, unsigned int flags) {
    ENTER();
    *e = calloc(1, sizeof **e);
    (*e)->timing = !(flags & CU_EVENT_DISABLE_TIMING);
    (*e)->next = events, events = *e;
    return CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(CUevent e) {
    ENTER();
    for (CUevent *p = &events; *p; p = &(*p)->next)
        if (*p == e) { *p = e->next; free(e); return CUDA_SUCCESS; }
    return violate(CUDA_ERROR_INVALID_HANDLE, "an event is destroyed twice");
}

API CUresult cuEventRecord(CUevent e, CUstream s) {
    ENTER();
    CUresult r = give(s, (struct item){.kind = RECORD});
    if (!r) e->record = s->last;
    return r;
}

API CUresult cuEventSynchronize(CUevent e) {
    ENTER();
    if (e->record) until(e->record);
    return enter(NULL);
}

API CUresult cuEventQuery(CUevent e) {
    ENTER();
    return e->record && !e->record->done ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

API CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
    ENTER();
    if (!a->timing || !b->timing || !a->record || !b->record) return CUDA_ERROR_INVALID_HANDLE;
    if (!a->record->done || !b->record->done) return CUDA_ERROR_NOT_READY;
    *ms = ((double)b->record->end - (double)a->record->end) / 1e6;
    return CUDA_SUCCESS;
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream s) {
    ENTER();
    if (!registered(to, size)) return violate(CUDA_ERROR_INVALID_VALUE, "a copy to host memory that is not registered");
    return give(s, (struct item){.kind = OUT, .host = to, .at = from, .size = size});
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream s) {
    ENTER();
    if (!registered(from, size)) return violate(CUDA_ERROR_INVALID_VALUE, "a copy from host memory that is not registered");
    return give(s, (struct item){.kind = IN, .host = (void *)from, .at = to, .size = size});
}

API CUresult cuModuleLoadData(CUmodule *m, const void *image) {
    ENTER();
    if (!strstr(image, ".version") || !strstr(image, ".target")) return CUDA_ERROR_INVALID_PTX;
    *m = calloc(1, sizeof **m);
    (*m)->text = strdup(image);
    (*m)->next = modules, modules = *m;
    return CUDA_SUCCESS;
}

API CUresult cuModuleUnload(CUmodule m) {
    ENTER();
    for (CUmodule *p = &modules; *p; p = &(*p)->next)
        if (*p == m) { *p = m->next; return CUDA_SUCCESS; }
    return violate(CUDA_ERROR_INVALID_HANDLE, "a module is unloaded twice");
}

API CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
    ENTER();
    static const char *const known[] = {"gmemtop_fill", "gmemtop_check", "gmemtop_work"};
    char entry[80];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, known[i]) && strstr(m->text, entry)) {
            *f = calloc(1, sizeof **f);
            (*f)->what = i, (*f)->next = m->functions, m->functions = *f;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

API CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                            CUstream s, void **params, void **extra) {
    ENTER();
    (void)shared, (void)extra;
    if (!gx || gy != 1 || gz != 1 || !bx || bx > 1024 || by != 1 || bz != 1) return CUDA_ERROR_INVALID_VALUE;
    struct item x = {.kind = KERNEL, .function = f};
    static const int arguments[] = {3, 5, 7};
    for (int i = 0; i < arguments[f->what]; i++) x.args[i] = *(uint64_t *)params[i];
    return give(s, x);
}

long queue_leaks(char *what, int size) {
    long s = 0, e = 0, m = 0;
    for (CUstream x = streams; x; x = x->next) s++;
    for (CUevent x = events; x; x = x->next) e++;
    for (CUmodule x = modules; x; x = x->next) m++;
    snprintf(what, size, "%ld streams, %ld events, %ld modules", s, e, m);
    return s + e + m;
}

void queue_reset(void) {
    while (items) { struct item *x = items; items = x->all; free(x); }
    while (events) { CUevent x = events; events = x->next; free(x); }
    streams = NULL, modules = NULL;
}
