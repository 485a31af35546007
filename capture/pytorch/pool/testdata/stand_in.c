// A stand-in for torch's CUDA allocator and for the CUDA runtime, with the shim in front of it, to test
// without a GPU what needs one. With the argument "costs" it measures what an allocation costs instead.
#include "../shim/pool.c"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;
#define CHECK(x) \
	do { \
		if (!(x)) { \
			printf("%s:%d: not true: %s\n", __func__, __LINE__, #x); \
			failures++; \
		} \
	} while (0)

static char slab[16 << 20] __attribute__((aligned(512)));
static size_t slab_used;
static int native_frees, native_uses, native_raw, opened, closed;
static void *asked_base;
static Stream current_stream = {1, 0, 0};
static int captured_stream = -1, device_now = 0, errors_cleared, not_ready, events_live, waits;

static void native_delete(void *p) {
	__atomic_fetch_add(&native_frees, 1, __ATOMIC_RELAXED);
	if ((char *)p < slab || (char *)p >= slab + sizeof slab)
		free(p);
}
static DataPtr native_allocate(void *self, size_t n) {
	(void)self;
	size_t at = __atomic_fetch_add(&slab_used, (n + 511) & ~(size_t)511, __ATOMIC_RELAXED);
	void *p = at + n > sizeof slab ? malloc(n) : slab + at;
	return (DataPtr){p, native_delete, p, 1, 0};
}
static deleter native_raw_deleter(void *self) {
	(void)self;
	native_raw++;
	return native_delete;
}
static void native_record_stream(void *self, const DataPtr *d, Stream s) {
	(void)self, (void)d, (void)s;
	native_uses++;
}
static void *native_base(void *self, void *p, size_t *size) {
	(void)self;
	asked_base = p;
	*size = sizeof slab;
	return slab;
}
struct handle {
	ptrdiff_t offset;
	char text[32];
};
static struct handle native_share(void *self, void *p) {
	(void)self;
	asked_base = p;
	struct handle h = {(char *)p - slab, "handle"};
	return h;
}
static void native_begin(void *self, void *b, void *c, void *d, void *e, void *f) {
	(void)self;
	opened += b == (void *)1 && c == (void *)2 && d == (void *)3 && e == (void *)4 && f == (void *)5;
}
static void native_end(void *self, void *b, void *c, void *d, void *e, void *f) {
	(void)self, (void)e, (void)f;
	closed += b == (void *)1 && c == (void *)2 && d == (void *)3;
}

static Stream cuda_current(int8_t device) { return device < 0 ? current_stream : (Stream){0, 0, 0}; }
static void *cuda_handle(const Stream *s) { return (void *)(uintptr_t)(s->id + 100); }
static int cuda_capturing(void *stream, int *status) {
	*status = (int)(uintptr_t)stream == captured_stream + 100;
	return 0;
}
static int cuda_event_create(void **event, unsigned flags) {
	CHECK(flags == 2 && device_now == 0);
	__atomic_fetch_add(&events_live, 1, __ATOMIC_RELAXED);
	*event = malloc(1);
	return 0;
}
static int cuda_event_record(void *event, void *stream) {
	CHECK(event != NULL && stream == (void *)107);
	return 0;
}
static int cuda_event_query(void *event) {
	CHECK(event != NULL);
	return not_ready ? 600 : 0;
}
static int cuda_event_destroy(void *event) {
	__atomic_fetch_sub(&events_live, 1, __ATOMIC_RELAXED);
	free(event);
	return 0;
}
static int cuda_stream_wait(void *stream, void *event, unsigned flags) {
	CHECK(stream == (void *)100 && event != NULL && flags == 0);
	waits++;
	return 0;
}
static int cuda_get_device(int *device) {
	*device = device_now;
	return 0;
}
static int cuda_set_device(int device) {
	device_now = device;
	return 0;
}
static int cuda_last_error(void) {
	errors_cleared++;
	return 0;
}

// The object: a pointer to a table, with the two words that precede it.
enum { COUNT = 12 };
static void *torchs_table[COUNT + 2] = {[0] = "offset", [1] = "type", [2 + 2] = native_allocate,
    [2 + 3] = native_raw_deleter, [2 + 4] = native_record_stream,
	[2 + 5] = native_base, [2 + 6] = native_share, [2 + 7] = native_begin, [2 + 8] = native_end,
	[2 + 9] = "kept"};
static void **object = &torchs_table[2];
static const struct cuda calls = {cuda_current, cuda_handle, cuda_capturing, cuda_event_create,
    cuda_event_record, cuda_event_query, cuda_event_destroy,
	cuda_stream_wait, cuda_get_device, cuda_set_device, cuda_last_error};

// Makes a virtual call, as torch does.
static DataPtr allocate(size_t n) { return ((DataPtr(*)(void *, size_t))object[2])(&object, n); }
static void record_stream(const DataPtr *d, int64_t id) {
	((void (*)(void *, const DataPtr *, Stream))object[4])(&object, d, (Stream){1, 0, id});
}
static void release(DataPtr d) { d.del(d.ctx); }

static int64_t figure(int i) {
	int64_t figures[FIGURES];
	pool_read(figures, FIGURES);
	return figures[i];
}

static int64_t sizes[] = {4096, 8192, 4096}, offsets[] = {0, 4096, 12288};

static int arm_with(int32_t n, const int64_t *s, const int64_t *o, int one_thread) {
	pool_adopt(65536);
	DataPtr d = allocate(65536);
	release(d);
	pool_adopt(0);
	int error = pool_arm(65536, 512, n, s, o, 1, one_thread);
	if (error)
		pool_drop();
	return error;
}
static int arm(void) { return arm_with(3, sizes, offsets, 0); }

static bool ours(DataPtr d) { return d.del == arena_delete; }

static void on_a_gpu(void) {
	const int slots[HOOKS] = {2, -1, 4, 5, 6, 7, 8};
	void **before = object;
	CHECK(pool_install((void **)&object, COUNT, slots, &calls) == 0);
	CHECK(pool_install((void **)&object, COUNT, slots, &calls) == 4);
	CHECK(object != before && object[9] == before[9] && object[-1] == before[-1] &&
	    object[-2] == before[-2] && object[3] == before[3]);
	CHECK(pool_theirs((void **)&object) == before);

	// Allocations are served in order at the planned places, and look like torch's own.
	CHECK(arm() == 0 && arm() == 5);
	DataPtr a = allocate(4096), b = allocate(8192), c = allocate(4096);
	CHECK(ours(a) && ours(b) && ours(c) && a.type == 1 && a.index == 0 && a.ctx == a.data);
	CHECK((char *)b.data == (char *)a.data + 4096 && (char *)c.data == (char *)a.data + 12288 &&
	    (uintptr_t)a.data % 512 == 0);
	CHECK(!ours(allocate(4096)) && !ours(allocate(100)) && figure(LIVE) == 3 && figure(UNPLANNED) == 1);
	release(a), release(b), release(c);
	CHECK(figure(LIVE) == 0 && figure(SERVED) == 3);

	// A block that is alive when the next step begins keeps its place.
	pool_step();
	a = allocate(4096);
	pool_step();
	CHECK(ours(a) && !ours(allocate(4096)) && figure(OCCUPIED) == 1);
	b = allocate(8192);
	CHECK(ours(b));
	release(a), release(b);

	// Torch serves other streams, captures and open pools.
	pool_step();
	current_stream.id = 7;
	CHECK(!ours(allocate(4096)) && figure(ELSEWHERE) == 1);
	current_stream.id = 0;
	current_stream.index = 1;
	CHECK(!ours(allocate(4096)) && figure(ELSEWHERE) == 2);
	current_stream.index = 0;
	captured_stream = 0;
	CHECK(!ours(allocate(4096)) && figure(CAPTURED) == 1);
	captured_stream = -1;
	pool_step();
	((six)object[7])(&object, (void *)1, (void *)2, (void *)3, (void *)4, (void *)5);
	CHECK(!ours(allocate(4096)) && figure(CAPTURED) == 2);
	((six)object[8])(&object, (void *)1, (void *)2, (void *)3, NULL, NULL);
	((six)object[8])(&object, (void *)1, (void *)2, (void *)3, NULL, NULL); // opened before we came
	CHECK(opened == 1 && closed == 2);
	pool_step();
	release(allocate(4096)), release(allocate(8192)), release(allocate(4096));
	((six)object[7])(&object, (void *)1, (void *)2, (void *)3, (void *)4, (void *)5);
	pool_step();
	CHECK(!ours(allocate(4096)) && figure(CAPTURED) == 3);
	((six)object[8])(&object, (void *)1, (void *)2, (void *)3, NULL, NULL);
	pool_step();
	a = allocate(4096);
	CHECK(ours(a));

	// For other processes, a block is described by the one that torch knows.
	size_t size = 0;
	b = allocate(8192);
	char *arena = a.data;
	CHECK(((void *(*)(void *, void *, size_t *))object[5])(&object, b.data, &size) == slab &&
	    size == sizeof slab && asked_base == arena);
#ifdef __x86_64__
	struct handle h = ((struct handle(*)(void *, void *))object[6])(&object, b.data);
	CHECK(asked_base == arena && slab + h.offset == (char *)b.data && strcmp(h.text, "handle") == 0);
	c = allocate(64);
	h = ((struct handle(*)(void *, void *))object[6])(&object, c.data);
	CHECK(asked_base == c.data && slab + h.offset == (char *)c.data);
	record_stream(&c, 7);
	CHECK(native_uses == 1);
#endif

	// Its own stream does not hold a place; another stream does, until an event behind its work has passed,
	// and the block is not planned again.
	record_stream(&a, 0);
	release(a);
	CHECK(figure(HELD) == 0);
	record_stream(&b, 7), record_stream(&b, 7);
	release(b);
	CHECK(figure(HELD) == 1 && figure(LIVE) == 0 && figure(PLANNED) == 2 && events_live == 0);
	pool_step();
	a = allocate(4096), b = allocate(8192);
	CHECK(ours(a) && !ours(b));
	release(a), release(b);
	pool_step(); // the first step recorded the event, and found it passed
	CHECK(figure(HELD) == 0 && events_live == 0);
	int64_t over[] = {4096, 8192, 512}, where[] = {0, 4096, 4096};
	pool_disarm();
	CHECK(figure(ARENA_COUNT) == 0 && native_frees > 0 && arm_with(3, over, where, 0) == 0);
	not_ready = 1;
	b = allocate(8192);
	record_stream(&b, 7);
	release(b);
	pool_step(), pool_step();
	CHECK(figure(HELD) == 1 && events_live == 1 && errors_cleared > 0 && device_now == 0);
	DataPtr small = allocate(512);
	CHECK(!ours(small)); // its place is held
	captured_stream = 7;
	not_ready = 0;
	pool_step();
	CHECK(figure(HELD) == 1); // a captured stream is not queried
	captured_stream = -1;
	pool_step();
	small = allocate(512);
	CHECK(figure(HELD) == 0 && events_live == 0 && ours(small));

	// A retired arena does not wait; its stream does.
	not_ready = 1;
	record_stream(&small, 7);
	pool_disarm();
	int frees = native_frees;
	CHECK(figure(ARENA_COUNT) == 1 && !ours(allocate(4096)));
	release(small);
	CHECK(waits == 1 && events_live == 0 && figure(ARENA_COUNT) == 0 && native_frees == frees + 1);
	not_ready = 0;

	// A plan of a second stream has to wait for the blocks of the first.
	CHECK(arm() == 0);
	a = allocate(4096);
	pool_disarm();
	current_stream.id = 3;
	CHECK(arm() == 7);
	current_stream.id = 0;
	CHECK(arm() == 0);
	b = allocate(4096);
	CHECK(ours(a) && ours(b) && figure(ARENA_COUNT) == 2);
	pool_disarm();
	CHECK(arm() == 0);
	pool_disarm();

	// While blocks are alive, the table stays but serves nothing.
	pool_remove();
	CHECK(object != before && figure(INSTALLED) == 1 && !ours(allocate(4096)));
	release(a);
	CHECK(object != before);
	release(b);
	CHECK(object == before && figure(INSTALLED) == 0 && figure(ARENA_COUNT) == 0);

	// Somebody else's table in front of ours is not taken out.
	CHECK(pool_install((void **)&object, COUNT, slots, &calls) == 0);
	void *other[COUNT + 2];
	memcpy(other, object - 2, sizeof other);
	void **ours_now = object;
	object = &other[2];
	pool_remove();
	CHECK(object == &other[2] && figure(INSTALLED) == 1 && !ours(allocate(4096)));
	object = ours_now;
	pool_remove();
	CHECK(object == before && figure(INSTALLED) == 0);
}

// If the allocations differ from the plan, the rest is still served.
static void matching(void) {
	enum { N = 200 };
	static int64_t s[N], o[N];
	const int slots[HOOKS] = {2, -1, 4, 5, 6, 7, 8};
	CHECK(pool_install((void **)&object, COUNT, slots, &calls) == 0);
	for (int i = 0; i < N; i++)
		s[i] = i == 0 ? 16384 : 1024 + 512 * (i % 3), o[i] = i == 0 ? 32768 : 2048 * (i % 10);
	s[100] = 15872, o[100] = 49152;
	CHECK(arm_with(N, s, o, 0) == 0);
	// One comes late and is still served. One is missing, and those after it are served, even beyond the
	// window.
	for (int i = 1; i < N; i++) {
		if (i == 100)
			continue;
		DataPtr d = allocate((size_t)s[i]);
		CHECK(ours(d) && (char *)d.data == pool.armed->base + o[i]);
		release(d);
		if (i == 40) {
			d = allocate(16384);
			CHECK(ours(d) && (char *)d.data == pool.armed->base + o[0]);
			release(d);
		}
	}
	CHECK(figure(SERVED) == N - 1 && figure(UNPLANNED) == 0);
	// One is new and looks like one further on: those after it still get their own places.
	int64_t few[] = {1024, 2048, 1024, 3072, 2048}, at[] = {0, 1024, 4096, 8192, 16384};
	pool_disarm();
	CHECK(arm_with(5, few, at, 0) == 0);
	DataPtr extra = allocate(3072), late[5];
	CHECK(ours(extra) && (char *)extra.data == pool.armed->base + 8192);
	for (int i = 0; i < 3; i++) {
		late[i] = allocate((size_t)few[i]);
		CHECK(ours(late[i]) && (char *)late[i].data == pool.armed->base + at[i]);
	}
	late[3] = allocate(3072), late[4] = allocate(2048);
	CHECK(!ours(late[3]) && ours(late[4]) && (char *)late[4].data == pool.armed->base + at[4]);
	release(extra);
	for (int i = 0; i < 5; i++)
		release(late[i]);
	// Only three iterations in a row that serve less than half retire the plan. Steps without allocations do
	// not count.
	for (int i = 0; i < 6; i++) {
		pool_step();
		if (i % 3 == 2)
			for (int k = 0; k < 5; k++)
				release(allocate((size_t)few[k]));
		else
			release(allocate(1536));
	}
	pool_step(), pool_step(), pool_step();
	release(allocate(1536)), pool_step();
	release(allocate(1536)), pool_step();
	CHECK(figure(ARMED) == 1);
	release(allocate(1536)), pool_step();
	CHECK(figure(ARMED) == 0 && figure(WHY) == WHY_STALE && figure(ARENA_COUNT) == 0);
	// A plan of two steps starts again after two.
	pool_adopt(65536);
	release(allocate(65536));
	CHECK(pool_arm(65536, 512, 5, few, at, 2, 0) == 0);
	release(allocate(1024)), pool_step();
	extra = allocate(2048);
	CHECK((char *)extra.data == pool.armed->base + 1024);
	release(extra), pool_step();
	extra = allocate(2048);
	CHECK((char *)extra.data == pool.armed->base + 1024);
	release(extra);
	pool_disarm();
	// Malformed plans are refused, and the memory adopted for them is given back.
	int64_t bad[][4] = {{0, 0, 512, 0}, {-1, 0, 512, 0}, {512, 100, 512, 0}, {512, 65536, 512, 0},
	    {INT64_MAX, 512, 512, 0}, {512, -2, 512, 0}, {512, INT64_MAX, 512, 0}, {-5, -1, 512, 0}};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		int64_t sz[] = {bad[i][0], bad[i][2]}, of[] = {bad[i][1], bad[i][3]};
		int frees = native_frees;
		CHECK(arm_with(2, sz, of, 0) == 2 && native_frees == frees + 1);
	}
	int64_t large[] = {1 << 20, 512}, off[] = {-1, 0}, none[] = {-1, -1};
	CHECK(arm_with(2, large, off, 0) == 0); // entries left to torch may be larger than the arena
	pool_disarm();
	CHECK(arm_with(2, large, none, 0) == 3);
	pool_remove();
}

static void *hold(void *at) {
	lock();
	pthread_barrier_wait(at);
	pthread_barrier_wait(at);
	unlock();
	return NULL;
}

static void *ask(void *served) {
	DataPtr d = allocate(4096);
	*(bool *)served = ours(d);
	release(d);
	return NULL;
}

// In a child that is forked while another thread holds the lock, torch serves everything. If only one thread
// is to be served, it is the one that armed the plan.
static void children_and_threads(void) {
	const int slots[HOOKS] = {2, -1, 4, 5, 6, 7, 8};
	pthread_t thread;
	pthread_barrier_t at;
	CHECK(pool_install((void **)&object, COUNT, slots, &calls) == 0 && arm() == 0);
	DataPtr a = allocate(4096);
	pool_disarm();
	CHECK(arm() == 0);
	pthread_barrier_init(&at, NULL, 2);
	pthread_create(&thread, NULL, hold, &at);
	pthread_barrier_wait(&at);
	pid_t child = fork();
	if (child == 0) {
		failures = 0;
		alarm(10);
		int frees = native_frees;
		CHECK(ours(a) && !ours(allocate(4096)) && figure(LIVE) == 1);
		release(a);
		pool_step(), pool_disarm(), pool_remove();
		CHECK(figure(LIVE) == 1 && figure(INSTALLED) == 1 && native_frees == frees && arm() == 1);
		CHECK(pool_install((void **)&object, COUNT, slots, &calls) == 2 && !pool_record(10));
		_exit(failures > 0);
	}
	pthread_barrier_wait(&at);
	pthread_join(thread, NULL);
	int status = -1;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	release(a);
	CHECK(figure(ARENA_COUNT) == 1);
	bool served = false;
	pthread_create(&thread, NULL, ask, &served);
	pthread_join(thread, NULL);
	CHECK(served);
	pool_disarm();
	CHECK(arm_with(3, sizes, offsets, 1) == 0);
	pthread_create(&thread, NULL, ask, &served);
	pthread_join(thread, NULL);
	CHECK(!served && figure(UNPLANNED) == 0);
	ask(&served);
	CHECK(served);
	pool_remove();
	CHECK(object == &torchs_table[2]);
}

static volatile bool crowded;

// hammer allocates and frees what the plan expects, and writes into every block which thread owns it.
static void *hammer(void *served) {
	uint64_t mine = (uint64_t)pthread_self(), seed = mine;
	DataPtr kept[16] = {{0}};
	while (crowded) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		DataPtr *d = &kept[seed >> 60];
		if (d->del != NULL) {
			CHECK(*(uint64_t *)d->data == (mine ^ (uint64_t)d));
			if (seed >> 50 & 1 && ours(*d))
				record_stream(d, 7);
			release(*d);
			d->del = NULL;
		} else {
			*d = allocate(seed >> 40 & 1 ? 4096 : 8192);
			*(uint64_t *)d->data = mine ^ (uint64_t)d;
			__atomic_fetch_add((int64_t *)served, ours(*d), __ATOMIC_RELAXED);
		}
	}
	for (int i = 0; i < 16; i++)
		if (kept[i].del != NULL)
			release(kept[i]);
	return NULL;
}

// Threads allocate and free while the pool is armed, disarmed, recording, taken out and put back: no block
// ever belongs to two threads, and all memory is given back.
static void crowd(void) {
	enum { THREADS = 4, N = 64 };
	const int slots[HOOKS] = {2, -1, 4, 5, 6, 7, 8};
	static int64_t s[N], o[N];
	for (int i = 0; i < N; i++)
		s[i] = i % 3 ? 4096 : 8192, o[i] = 4096 * (i % 15); // places overlap
	int64_t served = 0;
	int armed = 0;
	pthread_t threads[THREADS];
	crowded = true;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, hammer, &served);
	for (int i = 0; i < 300; i++) {
		int error = pool_install((void **)&object, COUNT, slots, &calls);
		CHECK(error == 0 || error == 4);
		error = arm_with(N, s, o, 0);
		CHECK(error == 0 || error == 6);
		armed += error == 0;
		for (int k = 0; k < 5; k++) {
			usleep(100);
			pool_step();
		}
		if (i % 4 == 3)
			pool_remove();
		else
			pool_disarm();
	}
	crowded = false;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pool_step();
	pool_remove();
	CHECK(armed > 100 && served > 1000 && figure(ARENA_COUNT) == 0 && figure(LIVE) == 0 &&
	    figure(HELD) == 0 && figure(INSTALLED) == 0 && events_live == 0);
	CHECK(object == &torchs_table[2]);
}

// On the CPU, code that threw a block's deleter away asks for it.
static void on_a_cpu(void) {
	const int slots[HOOKS] = {2, 3, -1, -1, -1, -1, -1};
	int64_t one[] = {4096}, at[] = {0};
	for (char *p = (char *)&pool; p < (char *)(&pool + 1); p++)
		*p = 0;
	pthread_mutex_init(&pool.lock, NULL);
	CHECK(pool_install((void **)&object, COUNT, slots, NULL) == 0);
	CHECK(arm_with(1, one, at, 1) == 2); // the adopted memory belongs to a GPU
	DataPtr d = allocate(4096);
	CHECK(d.del == native_delete && ((deleter(*)(void *))object[3])(&object) == native_delete);
	release(d);
	CHECK(pool_record(100));
	d = allocate(4096);
	DataPtr e = allocate(4096);
	CHECK(d.del == recorded_delete && d.ctx == d.data);
	release(d);
	((deleter(*)(void *))object[3])(&object)(e.data);
	struct event *events;
	CHECK(pool_events(&events) == 4 && events[2].kind == EVENT_FREE && events[2].data == (uint64_t)d.data &&
	    events[3].kind == EVENT_FREE && events[3].data == (uint64_t)e.data);
	pool_free(events);
	int frees = native_frees;
	CHECK(pool_record(1));
	d = allocate(4096), e = allocate(4096);
	CHECK(figure(LOST) == 1 && pool_events(&events) == 1);
	pool_free(events);
	release(d), release(e);
	CHECK(native_frees == frees + 2);
	pool_remove();
	CHECK(object == &torchs_table[2]);
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static DataPtr plain_allocate(void *self, size_t n) {
	(void)self;
	void *p = NULL;
	if (posix_memalign(&p, 64, n))
		p = NULL;
	return (DataPtr){p, free, p, 0, -1};
}
static deleter plain_raw_deleter(void *self) {
	(void)self;
	return free;
}

// costs prints how many nanoseconds an allocation and its free take: with a stand-in that calls malloc as
// torch does, with our table in front, armed, and recording.
static void costs(void) {
	enum { N = 1000, ROUNDS = 300 };
	static void *table[6] = {NULL, NULL, NULL, NULL, plain_allocate, plain_raw_deleter};
	static int64_t s[N], o[N];
	static DataPtr kept[8];
	object = &table[2];
	const int slots[HOOKS] = {2, 3, -1, -1, -1, -1, -1};
	const char *names[] = {"torch's own", "in front", "armed", "recording"};
	for (int how = 0; how < 4; how++) {
		if (how == 1)
			CHECK(pool_install((void **)&object, 4, slots, NULL) == 0);
		if (how == 2) {
			for (int i = 0; i < N; i++)
				s[i] = 4096, o[i] = 4096 * (i % 13);
			pool_adopt(65536);
			release(allocate(65536));
			CHECK(pool_arm(65536, 64, N, s, o, 1, 1) == 0);
		}
		if (how == 3) {
			pool_disarm();
			CHECK(pool_record((int64_t)2 * N * ROUNDS + 100));
		}
		double best = 1e18;
		for (int round = 0; round < ROUNDS; round++) {
			double began = now();
			for (int i = 0; i < N; i++) { // eight live at a time
				if (kept[i % 8].del != NULL)
					release(kept[i % 8]);
				kept[i % 8] = allocate(4096);
			}
			double took = (now() - began) / N;
			best = took < best ? took : best;
			for (int i = 0; i < 8; i++) {
				release(kept[i]);
				kept[i].del = NULL;
			}
			pool_step();
		}
		printf("%-12s %6.1f ns\n", names[how], best);
		if (how == 2)
			CHECK(figure(SERVED) == (int64_t)N * ROUNDS);
	}
}

int main(int argc, char **argv) {
	if (argc > 1 && strcmp(argv[1], "costs") == 0) {
		costs();
	} else {
		on_a_gpu();
		matching();
		children_and_threads();
		crowd();
		on_a_cpu();
	}
	return failures > 0;
}
