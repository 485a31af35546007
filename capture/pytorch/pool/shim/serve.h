// The state of the pool: what is served and recorded, and what happens to freed blocks.
#include <pthread.h>
#include <time.h>

#include "arena.h"

enum { STALE = 3, SLOTS = 128, ARENAS = 4 };
enum { SERVE = 1, RECORD = 2, ADOPT = 4 }; // bits of mode
enum { ALLOCATE, RAW_DELETER, RECORD_STREAM, BASE_ALLOCATION, SHARE_HANDLE, BEGIN_POOL, END_POOL, HOOKS };
enum { EVENT_ALLOC, EVENT_FREE, EVENT_STEP };
enum { WHY_NONE, WHY_ASKED, WHY_STALE };

// The CUDA functions that we call, in the order in which pool.py passes them.
struct cuda {
	Stream (*current)(int8_t device);
	void *(*handle)(const Stream *);
	int (*capturing)(void *stream, int *status);
	int (*event_create)(void **event, unsigned flags);
	int (*event_record)(void *event, void *stream);
	int (*event_query)(void *event);
	int (*event_destroy)(void *event);
	int (*stream_wait)(void *stream, void *event, unsigned flags);
	int (*get_device)(int *device);
	int (*set_device)(int device);
	int (*last_error)(void);
};

struct event {
	int64_t time, size;
	uint64_t data, stream, thread;
	int64_t kind;
};

// The counters that pool.py reads, in this order.
enum {
	SERVED, SERVED_BYTES, MISSED, UNPLANNED, OCCUPIED, ELSEWHERE, CAPTURED, ITERATIONS, LAST_SERVED,
	LAST_SERVED_BYTES, PLANNED, PLANNED_BYTES, WHY, LIVE, LIVE_BYTES, HELD, ARENA_COUNT, ARENA_BYTES, ARMED,
	INSTALLED, LOST, FIGURES
};

static struct {
	pthread_mutex_t lock;
	unsigned mode; // what the hook does; read without the lock
	bool forked, leaving;
	void **object, **theirs;
	void *copy[SLOTS + 2]; // with the two words that precede a table: the offset to the top and the type
	void *native[HOOKS];
	bool cuda;
	struct cuda call;
	deleter native_delete;

	pthread_t thread; // the only one that is served, if one_thread
	bool one_thread;
	Stream stream; // the one that is served
	int open_pools;
	int64_t least, most;

	struct arena *arenas[ARENAS], *armed;
	int32_t steps, step;
	uint32_t bad;
	int64_t seen, iteration_served, iteration_bytes;
	int64_t figures[FIGURES];

	pthread_t adopter;
	size_t adopt;
	DataPtr adopted;

	struct event *events;
	size_t event_count, event_room;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void) { pthread_mutex_lock(&pool.lock); }
static void unlock(void) { pthread_mutex_unlock(&pool.lock); }
static unsigned mode(void) { return __atomic_load_n(&pool.mode, __ATOMIC_ACQUIRE); }
static void set_mode(unsigned m) { __atomic_store_n(&pool.mode, m, __ATOMIC_RELEASE); }

static void in_child(void) {
	pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
	memcpy(&pool.lock, &fresh, sizeof fresh); // the thread that held it does not exist in the child
	pool.forked = true;
	set_mode(0);
}

// note records one event. The caller holds the lock.
static void note(int64_t kind, void *data, int64_t size) {
	if (pool.event_count == pool.event_room) {
		pool.figures[LOST]++;
		return;
	}
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	pool.events[pool.event_count++] = (struct event){
		.time = now.tv_sec * 1000000000 + now.tv_nsec, .kind = kind, .data = (uint64_t)data, .size = size,
		.thread = (uint64_t)pthread_self()};
}

// recorded_delete frees one of torch's blocks while we record. It records the free first, so that the next
// use of the address is recorded after it.
static void recorded_delete(void *data) {
	if (mode() & RECORD) {
		lock();
		if (pool.mode & RECORD)
			note(EVENT_FREE, data, 0);
		unlock();
	}
	pool.native_delete(data);
}

// gone unlinks and returns a retired arena that has no blocks left; the caller gives it back without the
// lock.
static struct arena *gone(struct arena *a) {
	if (!a->retired || a->live > 0 || a->held > 0)
		return NULL;
	for (int i = 0; i < ARENAS; i++)
		if (pool.arenas[i] == a)
			pool.arenas[i] = NULL;
	return a;
}

// out puts torch's own table back once nothing needs ours. If somebody else's table is in front of ours, ours
// stays and passes everything on.
static void out(void) {
	for (int i = 0; i < ARENAS; i++)
		if (pool.arenas[i] != NULL)
			return;
	void *ours = &pool.copy[2];
	if (pool.leaving && __atomic_compare_exchange_n((void **)pool.object, &ours, (void *)pool.theirs, false,
	    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		pool.figures[INSTALLED] = 0, pool.leaving = false;
}

static void give_back(struct arena *a) {
	if (a == NULL)
		return;
	a->block.del(a->block.ctx);
	discard(a);
	lock();
	out();
	unlock();
}

// retire stops an arena. The caller holds the lock and gives back what retire returns.
static struct arena *retire(int why) {
	struct arena *a = pool.armed;
	if (a == NULL)
		return NULL;
	set_mode(pool.mode & ~SERVE);
	pool.armed = NULL;
	pool.figures[WHY] = why;
	a->retired = true;
	return gone(a);
}

static struct arena *arena_of(const void *data) {
	for (int i = 0; i < ARENAS; i++) {
		struct arena *a = pool.arenas[i];
		if (a != NULL && (char *)data >= a->base && (char *)data < a->base + a->bytes)
			return a;
	}
	return NULL;
}

// cleared reports whether a CUDA call succeeded, and clears our error so that the program does not see it.
static bool cleared(int code) {
	if (code != 0)
		pool.call.last_error();
	return code == 0;
}

// let_go frees the place of a held block, once all its uses have passed.
static void let_go(struct arena *a, struct entry *e) {
	for (struct use *u = e->uses, *next; u != NULL; u = next) {
		next = u->next;
		if (u->event != NULL)
			cleared(pool.call.event_destroy(u->event));
		free(u);
	}
	e->uses = NULL;
	e->held = false;
	a->held--;
	a->owner[e->first] = -1;
	flip(a, e->first, e->end);
}

static bool capturing(const Stream *s) {
	int status = 0;
	return !cleared(pool.call.capturing(pool.call.handle(s), &status)) || status != 0;
}

// settle looks after a held block: it records events behind the queued work of the block's other streams, and
// frees the place once those events have passed. A retired arena need not wait: its own stream waits for the
// others, and torch reuses the memory after that. The caller holds the lock.
static void settle(struct arena *a, struct entry *e) {
	int device = -1;
	bool done = cleared(pool.call.get_device(&device)) && !capturing(&pool.stream);
	for (struct use *u = e->uses; done && u != NULL; u = u->next)
		done = !capturing(&u->stream);
	if (!done)
		return; // a captured stream must not be queried
	cleared(pool.call.set_device(a->block.index));
	for (struct use *u = e->uses; u != NULL; u = u->next) {
		bool fresh = u->event == NULL;
		if (fresh) {
			void *event = NULL;
			if (cleared(pool.call.event_create(&event, 2 /* no timing */)) &&
			    cleared(pool.call.event_record(event, pool.call.handle(&u->stream))))
				u->event = event;
			else if (event != NULL)
				cleared(pool.call.event_destroy(event));
		}
		if (u->event == NULL)
			done = false;
		else if (a->retired)
			done = cleared(pool.call.stream_wait(pool.call.handle(&pool.stream), u->event, 0)) && done;
		else
			done = cleared(pool.call.event_query(u->event)) && done;
	}
	cleared(pool.call.set_device(device));
	if (done)
		let_go(a, e);
}

// arena_delete frees a block of an arena.
static void arena_delete(void *data) {
	if (data == NULL || pool.forked)
		return;
	lock();
	struct arena *a = arena_of(data), *last = NULL;
	struct entry *e = a == NULL ? NULL : living(a, data);
	if (e != NULL && !e->held) {
		if (pool.mode & RECORD)
			note(EVENT_FREE, data, 0);
		a->live--;
		a->live_bytes -= e->size;
		if (e->uses != NULL) {
			e->held = true;
			a->held++;
			if (a->retired)
				settle(a, e);
		} else {
			a->owner[e->first] = -1;
			flip(a, e->first, e->end);
		}
		last = gone(a);
	}
	unlock();
	give_back(last);
}

// either_delete frees a block that may be torch's or an arena's.
static void either_delete(void *data) {
	lock();
	bool ours = arena_of(data) != NULL;
	unlock();
	(ours ? arena_delete : recorded_delete)(data);
}

static void no_delete(void *data) { (void)data; }

// stranger reports whether the calling thread is one that is not served.
static bool stranger(void) {
	return __atomic_load_n(&pool.one_thread, __ATOMIC_RELAXED) &&
	    !pthread_equal(pthread_self(), __atomic_load_n(&pool.thread, __ATOMIC_RELAXED));
}

// serve answers an allocation from the arena, or leaves it to torch.
static bool serve(size_t size, DataPtr *d) {
	if ((int64_t)size < __atomic_load_n(&pool.least, __ATOMIC_RELAXED) ||
	    (int64_t)size > __atomic_load_n(&pool.most, __ATOMIC_RELAXED))
		return false;
	if (stranger())
		return false;
	Stream s = {0, -1, 0};
	bool captured = false;
	if (pool.cuda) {
		s = pool.call.current(-1);
		captured = __atomic_load_n(&pool.open_pools, __ATOMIC_RELAXED) > 0 || capturing(&s);
	}
	bool served = false;
	lock();
	struct arena *a = pool.armed;
	// Checked again under the lock: the plan may have changed.
	if (a == NULL || (int64_t)size < pool.least || (int64_t)size > pool.most || stranger()) {
		unlock();
		return false;
	}
	if (s.index != pool.stream.index || s.id != pool.stream.id) {
		pool.figures[ELSEWHERE]++;
		unlock();
		return false;
	}
	pool.seen++;
	int32_t i = match(a, (int64_t)size);
	if (i < 0) {
		pool.figures[UNPLANNED]++;
	} else {
		struct entry *e = &a->entries[i];
		e->round = a->round;
		if (e->offset < 0 || e->never) {
			// torch serves it
		} else if (captured) {
			pool.figures[CAPTURED]++;
		} else if (pieces_taken(a, e->first, e->end)) {
			pool.figures[OCCUPIED]++;
		} else {
			flip(a, e->first, e->end);
			a->owner[e->first] = i;
			a->live++;
			a->live_bytes += e->size;
			pool.iteration_served++;
			pool.iteration_bytes += e->size;
			pool.figures[SERVED]++;
			pool.figures[SERVED_BYTES] += e->size;
			void *data = a->base + e->offset;
			*d = (DataPtr){.data = data, .del = arena_delete, .ctx = data, .type = a->block.type,
			    .index = a->block.index};
			if (pool.mode & RECORD)
				note(EVENT_ALLOC, data, e->size);
			served = true;
		}
	}
	unlock();
	return served;
}
