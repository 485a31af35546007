// The pool: a planned arena under torch's own allocator, and what goes through that allocator written down.
//
// Torch allocates every tensor by a virtual call of one object, so that writing one pointer, the object's to its table of virtual functions, puts us
// between the two while training runs, and writing it back takes us out. The table we put there is a copy with a few functions exchanged. No header
// of torch is included: pool.py reads from the symbols of the library in the process which slot holds which function, and refuses what it does not
// know. This file knows the layout of two things, a DataPtr and a Stream, and checks the first against what torch returns.
//
// # Serving
//
// A plan is the allocations of one iteration in order, each with its size and its place in the arena, or none for one that torch is to serve. An
// allocation is matched to the next entry of exactly its size, looking ahead and then back by up to WINDOW entries, so that one that is missing, one
// that is new and two that changed places cost no more than themselves. What finds no entry goes to torch, and so does whatever comes from
// another thread or stream, or while a CUDA graph is captured or a private pool is open.
//
// A plan can be wrong, so it is not trusted: the arena is cut at every offset and end that the plan names, a bit for each piece says whether
// a living block holds it, and an allocation whose pieces are not all free goes to torch. Memory is never given out twice, whatever the plan says.
// On a GPU a freed block may be in use by work that is queued still; that is safe within a stream, which is why an arena serves one stream, and
// why a block that another stream was recorded for holds its place until that stream has passed an event, and is not planned again.
//
// # Leaving
//
// Every served block carries arena_delete as its deleter, so this library is never unloaded. A retired arena serves nothing and goes back to torch
// with its last block. Where three iterations in a row served less than half of the planned bytes, the plan is stale and the arena retires by itself:
// one odd batch at the end of an epoch is no reason.
//
// # Locking
//
// One mutex around tables, held for less than a microsecond. Nothing of torch's allocator is called in it, and of CUDA only what looks after events of blocks
// that another stream was recorded for. Torch's allocator may throw through these frames, so this is compiled with -fexceptions. A forked child
// serves nothing, and frees nothing of its parent's arena.
//
// # Complexity
//
// An allocation costs O(WINDOW + pieces / 64), a free O(pieces / 64), arming O(n log n) of n entries. Rejected: a list of conflicts for each entry
// (quadratic for plans that reuse much), a tree of living blocks (slower at the few thousand pieces that plans have).
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

enum { WINDOW = 64, STALE = 3, SLOTS = 128, ARENAS = 4 };
enum { SERVE = 1, RECORD = 2, ADOPT = 4 }; // bits of mode
enum { ALLOCATE, RAW_DELETER, RECORD_STREAM, BASE_ALLOCATION, SHARE_HANDLE, BEGIN_POOL, END_POOL, HOOKS };
enum { EVENT_ALLOC, EVENT_FREE, EVENT_STEP };
enum { WHY_NONE, WHY_ASKED, WHY_STALE };

typedef void (*deleter)(void *);
typedef struct {
	void *data;
	deleter del;
	void *ctx;
	int8_t type, index;
} DataPtr; // c10::DataPtr
typedef struct {
	int8_t type, index;
	int64_t id;
} Stream; // c10::Stream and c10::cuda::CUDAStream
_Static_assert(sizeof(DataPtr) == 32 && sizeof(Stream) == 16, "the layout of c10");

// What is called of CUDA, in the order in which pool.py hands it over.
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

// A stream other than its own that a block was recorded for.
struct use {
	struct use *next;
	Stream stream;
	void *event;
};

struct entry {
	int64_t size, offset; // offset -1: torch serves it
	int32_t first, end;   // its pieces
	uint32_t round;       // the last iteration that matched it
	bool never;           // another stream was recorded for it
	bool held;            // freed, waiting for uses
	struct use *uses;
};

struct arena {
	DataPtr block; // as torch gave it
	char *base;
	int64_t bytes;
	int32_t n, pieces;
	struct entry *entries;
	int64_t *sizes;     // of entries, side by side, for the search
	int64_t *cuts;      // where pieces begin, ascending
	int32_t *owner;     // of each piece: the living entry that begins there
	uint64_t *taken;    // a bit a piece
	int32_t *table;     // from an offset to its piece: open addressing
	uint32_t mask;
	int64_t live, live_bytes, held;
	bool retired;
};

struct event {
	int64_t time, size;
	uint64_t data, stream, thread;
	int64_t kind;
};

// What pool.py reads, in this order.
enum {
	SERVED, SERVED_BYTES, MISSED, UNPLANNED, OCCUPIED, ELSEWHERE, CAPTURED, ITERATIONS, LAST_SERVED, LAST_SERVED_BYTES, PLANNED, PLANNED_BYTES, WHY,
	LIVE, LIVE_BYTES, HELD, ARENA_COUNT, ARENA_BYTES, ARMED, INSTALLED, LOST, FIGURES
};

static struct {
	pthread_mutex_t lock;
	unsigned mode; // what the hook does; read without the lock
	bool forked, leaving, watched;
	void **object, **theirs;
	void *copy[SLOTS + 2]; // what precedes a table stays before it: the offset to the top and the type
	void *native[HOOKS];
	bool cuda;
	struct cuda call;
	deleter native_delete;

	pthread_t thread; // that is served, where only one is
	bool one_thread;
	Stream stream; // that is served
	int open_pools;
	int64_t least, most;

	struct arena *arenas[ARENAS], *armed;
	int32_t next, ahead; // the entry that is expected, and the one behind a match that was found further on
	int32_t steps, step;
	uint32_t round, bad;
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
	memcpy(&pool.lock, &fresh, sizeof fresh); // the thread that held it is not in the child
	pool.forked = true;
	set_mode(0);
}

// -- events -----------------------------------------------------------------------------------------------------------------

// note writes one event down. The caller holds the lock.
static void note(int64_t kind, void *data, int64_t size) {
	if (pool.event_count == pool.event_room) {
		pool.figures[LOST]++;
		return;
	}
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	pool.events[pool.event_count++] = (struct event){
		.time = now.tv_sec * 1000000000 + now.tv_nsec, .kind = kind, .data = (uint64_t)data, .size = size, .thread = (uint64_t)pthread_self()};
}

// recorded_delete frees a block of torch's whose life is recorded. It is noted before it is freed, so that whoever gets the address next is noted after it.
static void recorded_delete(void *data) {
	if (mode() & RECORD) {
		lock();
		if (pool.mode & RECORD)
			note(EVENT_FREE, data, 0);
		unlock();
	}
	pool.native_delete(data);
}

// -- the arena --------------------------------------------------------------------------------------------------------------

static uint32_t hash(int64_t offset) { return (uint32_t)(((uint64_t)offset * 0x9e3779b97f4a7c15u) >> 32); }

static int32_t piece_at(const struct arena *a, int64_t offset) {
	for (uint32_t i = hash(offset) & a->mask;; i = (i + 1) & a->mask) {
		int32_t p = a->table[i];
		if (p < 0 || a->cuts[p] == offset)
			return p;
	}
}

// pieces_taken reports whether any of the pieces [first, end) is taken.
static bool pieces_taken(const struct arena *a, int32_t first, int32_t end) {
	for (int32_t w = first >> 6; w <= (end - 1) >> 6; w++) {
		uint64_t m = ~(uint64_t)0;
		if (w == first >> 6)
			m &= ~(uint64_t)0 << (first & 63);
		if (w == (end - 1) >> 6)
			m &= ~(uint64_t)0 >> (63 - ((end - 1) & 63));
		if (a->taken[w] & m)
			return true;
	}
	return false;
}

// flip takes the pieces [first, end) or lets go of them.
static void flip(struct arena *a, int32_t first, int32_t end) {
	for (int32_t w = first >> 6; w <= (end - 1) >> 6; w++) {
		uint64_t m = ~(uint64_t)0;
		if (w == first >> 6)
			m &= ~(uint64_t)0 << (first & 63);
		if (w == (end - 1) >> 6)
			m &= ~(uint64_t)0 >> (63 - ((end - 1) & 63));
		a->taken[w] ^= m;
	}
}

static void discard(struct arena *a) {
	if (a == NULL)
		return;
	free(a->entries);
	free(a->sizes);
	free(a->cuts);
	free(a->owner);
	free(a->taken);
	free(a->table);
	free(a);
}

// gone unlinks a retired arena without blocks and returns it, for the caller to give back without the lock.
static struct arena *gone(struct arena *a) {
	if (!a->retired || a->live > 0 || a->held > 0)
		return NULL;
	for (int i = 0; i < ARENAS; i++)
		if (pool.arenas[i] == a)
			pool.arenas[i] = NULL;
	return a;
}

// out puts torch's own table back, once nothing needs ours. Where somebody else put a table in front of ours, ours stays and passes everything on.
static void out(void) {
	for (int i = 0; i < ARENAS; i++)
		if (pool.arenas[i] != NULL)
			return;
	void *ours = &pool.copy[2];
	if (pool.leaving && __atomic_compare_exchange_n((void **)pool.object, &ours, (void *)pool.theirs, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
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

// retire stops an arena. The caller holds the lock, and gives back what is returned.
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

// living returns the entry of the living block at data, NULL where there is none.
static struct entry *living(struct arena *a, const void *data) {
	int32_t p = piece_at(a, (char *)data - a->base);
	return p < 0 || a->owner[p] < 0 ? NULL : &a->entries[a->owner[p]];
}

// cleared answers a call of CUDA: an error of ours is not left for the program to find.
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

// settle looks after a block that is held: it puts an event behind what its other streams have queued, and lets go once those are past. A
// retired arena need not wait: its own stream is made to, behind which torch reuses its memory. The caller holds the lock.
static void settle(struct arena *a, struct entry *e) {
	int device = -1;
	bool done = cleared(pool.call.get_device(&device)) && !capturing(&pool.stream);
	for (struct use *u = e->uses; done && u != NULL; u = u->next)
		done = !capturing(&u->stream);
	if (!done)
		return; // nothing may be asked of a stream that is captured
	cleared(pool.call.set_device(a->block.index));
	for (struct use *u = e->uses; u != NULL; u = u->next) {
		bool fresh = u->event == NULL;
		if (fresh) {
			void *event = NULL;
			if (cleared(pool.call.event_create(&event, 2 /* no timing */)) && cleared(pool.call.event_record(event, pool.call.handle(&u->stream))))
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

// either_delete frees a block of which nobody says whose it is.
static void either_delete(void *data) {
	lock();
	bool ours = arena_of(data) != NULL;
	unlock();
	(ours ? arena_delete : recorded_delete)(data);
}

static void no_delete(void *data) { (void)data; }

static bool fits(const struct arena *a, int32_t i, int64_t size) { return i < a->n && a->sizes[i] == size && a->entries[i].round != pool.round; }

// match finds the entry of an allocation, -1 for none. The one that is expected comes first. One that was found ahead may be new and not in the plan, and
// then the next is the expected one still; or those before it may be missing, and then the next is the one behind it: only that moves the expectation.
static int32_t match(const struct arena *a, int64_t size) {
	while (pool.next < a->n && a->entries[pool.next].round == pool.round)
		pool.next++;
	if (fits(a, pool.next, size)) {
		pool.ahead = a->n;
		return pool.next++;
	}
	if (fits(a, pool.ahead, size)) {
		int32_t i = pool.ahead;
		pool.next = i + 1;
		pool.ahead = a->n;
		return i;
	}
	int32_t end = pool.next + WINDOW < a->n ? pool.next + WINDOW : a->n;
	for (int32_t i = pool.next + 1; i < end; i++)
		if (fits(a, i, size)) {
			pool.ahead = i + 1;
			return i;
		}
	int32_t begin = pool.next - WINDOW > 0 ? pool.next - WINDOW : 0;
	for (int32_t i = pool.next - 1; i >= begin; i--)
		if (fits(a, i, size))
			return i;
	return -1;
}

// stranger reports whether the calling thread is one that is not served.
static bool stranger(void) {
	return __atomic_load_n(&pool.one_thread, __ATOMIC_RELAXED) && !pthread_equal(pthread_self(), __atomic_load_n(&pool.thread, __ATOMIC_RELAXED));
}

// serve answers an allocation from the arena, or leaves it to torch.
static bool serve(size_t size, DataPtr *d) {
	if ((int64_t)size < __atomic_load_n(&pool.least, __ATOMIC_RELAXED) || (int64_t)size > __atomic_load_n(&pool.most, __ATOMIC_RELAXED))
		return false;
	if (stranger())
		return false;
	Stream s = pool.stream;
	bool captured = false;
	if (pool.cuda) {
		s = pool.call.current(-1);
		captured = __atomic_load_n(&pool.open_pools, __ATOMIC_RELAXED) > 0 || capturing(&s);
	}
	bool served = false;
	lock();
	struct arena *a = pool.armed;
	if (a == NULL || (int64_t)size < pool.least || (int64_t)size > pool.most || stranger()) { // another plan may have come meanwhile
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
		e->round = pool.round;
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
			*d = (DataPtr){.data = data, .del = arena_delete, .ctx = data, .type = a->block.type, .index = a->block.index};
			if (pool.mode & RECORD)
				note(EVENT_ALLOC, data, e->size);
			served = true;
		}
	}
	unlock();
	return served;
}

// -- what stands in torch's table -------------------------------------------------------------------------------------------

static DataPtr hook_allocate(void *self, size_t size) {
	unsigned m = mode();
	DataPtr d;
	if ((m & SERVE) && serve(size, &d))
		return d;
	d = ((DataPtr(*)(void *, size_t))pool.native[ALLOCATE])(self, size);
	if ((m & ADOPT) && size == pool.adopt && pthread_equal(pthread_self(), pool.adopter) && d.data != NULL && d.ctx == d.data) {
		pool.adopted = d;
		pool.adopt = 0;
		d.del = no_delete;
	} else if ((m & RECORD) && d.data != NULL && d.ctx == d.data && pool.native_delete != NULL && d.del == pool.native_delete) {
		lock();
		if (pool.mode & RECORD) {
			note(EVENT_ALLOC, d.data, (int64_t)size);
			d.del = recorded_delete;
		}
		unlock();
	}
	return d;
}

// hook_raw_deleter answers for blocks whose deleter was thrown away: raw_deallocate, as oneDNN does with its scratchpads. While an arena lives, such a
// block may be its.
static deleter hook_raw_deleter(void *self) {
	bool any = mode() & RECORD;
	for (int i = 0; i < ARENAS; i++)
		any = any || __atomic_load_n(&pool.arenas[i], __ATOMIC_RELAXED) != NULL;
	return any ? either_delete : ((deleter(*)(void *))pool.native[RAW_DELETER])(self);
}

static void hook_record_stream(void *self, const DataPtr *d, Stream s) {
	if (d->del != arena_delete) {
		((void (*)(void *, const DataPtr *, Stream))pool.native[RECORD_STREAM])(self, d, s);
		return;
	}
	if (s.index == pool.stream.index && s.id == pool.stream.id)
		return; // its own: what is queued there comes before whoever gets the place
	struct use *u = calloc(1, sizeof *u);
	lock();
	struct arena *a = arena_of(d->data);
	struct entry *e = a == NULL ? NULL : living(a, d->data);
	for (struct use *v = e == NULL ? NULL : e->uses; v != NULL; v = v->next)
		if (v->stream.index == s.index && v->stream.id == s.id)
			e = NULL;
	if (e != NULL) {
		if (!e->never && a == pool.armed) {
			pool.figures[PLANNED]--;
			pool.figures[PLANNED_BYTES] -= e->size;
		}
		e->never = true;
		if (u != NULL) {
			u->stream = s;
			u->next = e->uses;
			e->uses = u;
			u = NULL;
		}
	}
	unlock();
	free(u);
}

// A block of the arena is part of one that torch knows: the arena. Whoever asks where its memory begins, or for a handle by which another process
// maps it, is told of that.
static void *known(void *data) {
	lock();
	struct arena *a = arena_of(data);
	void *base = a == NULL ? data : a->base;
	unlock();
	return base;
}

static void *hook_base_allocation(void *self, void *data, size_t *size) {
	return ((void *(*)(void *, void *, size_t *))pool.native[BASE_ALLOCATION])(self, known(data), size);
}

// hook_share_handle returns a struct with a string, of which C++ has the caller's address in front; pool.py refuses processors where that is not an
// argument like others.
static void *hook_share_handle(void *result, void *self, void *data) {
	void *base = known(data);
	((void *(*)(void *, void *, void *))pool.native[SHARE_HANDLE])(result, self, base);
	*(ptrdiff_t *)result += (char *)data - (char *)base;
	return result;
}

typedef void (*six)(void *, void *, void *, void *, void *, void *);

// hook_begin_pool and hook_end_pool hand on whatever arguments torch's version has: they are in registers, six at most.
static void hook_begin_pool(void *self, void *b, void *c, void *d, void *e, void *f) {
	__atomic_fetch_add(&pool.open_pools, 1, __ATOMIC_RELAXED);
	((six)pool.native[BEGIN_POOL])(self, b, c, d, e, f);
}

static void hook_end_pool(void *self, void *b, void *c, void *d, void *e, void *f) {
	((six)pool.native[END_POOL])(self, b, c, d, e, f);
	if (__atomic_load_n(&pool.open_pools, __ATOMIC_RELAXED) > 0)
		__atomic_fetch_sub(&pool.open_pools, 1, __ATOMIC_RELAXED);
}

// -- what pool.py calls -----------------------------------------------------------------------------------------------------

// pool_install puts our table in front of object's: count slots, those of hooks by number, -1 where torch has none. It returns 0, or why not.
EXPORT int pool_install(void **object, int count, const int *slots, const struct cuda *cuda) {
	static void *const hooks[HOOKS] = {hook_allocate, hook_raw_deleter, hook_record_stream, hook_base_allocation, hook_share_handle, hook_begin_pool, hook_end_pool};
	if (count < 3 || count > SLOTS)
		return 1;
	lock();
	int error = pool.forked ? 2 : pool.object != NULL && pool.object != object ? 3 : pool.figures[INSTALLED] && !pool.leaving ? 4 : 0;
	if (error == 0 && pool.figures[INSTALLED]) {
		pool.leaving = false; // the table of the last time is there still
	} else if (error == 0) {
		void **theirs = *(void ***)object;
		void *copy[SLOTS + 2], *native[HOOKS];
		memcpy(copy, theirs - 2, (size_t)(count + 2) * sizeof *copy);
		memset(native, 0, sizeof native);
		for (int h = 0; h < HOOKS; h++)
			if (slots[h] >= 0 && slots[h] < count) {
				native[h] = theirs[slots[h]];
				copy[2 + slots[h]] = hooks[h];
			}
		// A thread may still be on its way through the table of an earlier time: what is written again is the same.
		memcpy(pool.native, native, sizeof native);
		memcpy(pool.copy, copy, sizeof copy);
		// Where code compares deleters, on a GPU, raw_deleter is not ours, and lives of torch's blocks are not recorded.
		pool.native_delete = native[RAW_DELETER] == NULL ? NULL : ((deleter(*)(void *))native[RAW_DELETER])(object);
		pool.cuda = cuda != NULL;
		if (cuda != NULL)
			pool.call = *cuda;
		pool.object = object;
		pool.theirs = theirs;
		if (!pool.watched)
			pthread_atfork(NULL, NULL, in_child);
		pool.watched = true;
		pool.figures[INSTALLED] = 1;
		__atomic_store_n((void **)object, (void *)&pool.copy[2], __ATOMIC_SEQ_CST);
	}
	unlock();
	return error;
}

// pool_theirs returns the table that stood in object before ours did.
EXPORT void **pool_theirs(void **object) {
	void **now = *(void ***)object;
	return now == &pool.copy[2] ? pool.theirs : now;
}

// pool_adopt has the next allocation of so many bytes by this thread, or none where 0, become the memory of an arena: Python makes a tensor and
// drops it, errors and all. pool_drop gives back what was adopted and not armed.
EXPORT void pool_adopt(int64_t bytes) {
	lock();
	pool.adopt = (size_t)bytes;
	pool.adopter = pthread_self();
	set_mode(bytes > 0 ? pool.mode | ADOPT : pool.mode & ~ADOPT);
	unlock();
}

EXPORT void pool_drop(void) {
	DataPtr d = pool.adopted;
	memset(&pool.adopted, 0, sizeof pool.adopted);
	if (d.data != NULL)
		d.del(d.ctx);
}

static int by_value(const void *a, const void *b) {
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static int32_t cut_index(const struct arena *a, int64_t offset) {
	int32_t lo = 0, hi = a->pieces;
	while (lo < hi) {
		int32_t mid = lo + (hi - lo) / 2;
		if (a->cuts[mid] < offset)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

// draw makes the tables of an arena from a plan, NULL where memory is short.
static struct arena *draw(int32_t n, const int64_t *sizes, const int64_t *offsets) {
	struct arena *a = calloc(1, sizeof *a);
	if (a == NULL)
		return NULL;
	a->n = n;
	a->entries = calloc((size_t)n, sizeof *a->entries);
	a->sizes = calloc((size_t)n, sizeof *a->sizes);
	a->cuts = calloc((size_t)n * 2, sizeof *a->cuts);
	if (a->entries == NULL || a->sizes == NULL || a->cuts == NULL) {
		discard(a);
		return NULL;
	}
	int32_t k = 0, distinct = 0;
	for (int32_t i = 0; i < n; i++)
		if (offsets[i] >= 0) {
			a->cuts[k++] = offsets[i];
			a->cuts[k++] = offsets[i] + sizes[i];
		}
	qsort(a->cuts, (size_t)k, sizeof *a->cuts, by_value);
	for (int32_t i = 0; i < k; i++)
		if (i == 0 || a->cuts[i] != a->cuts[i - 1])
			a->cuts[distinct++] = a->cuts[i];
	a->pieces = distinct;
	uint32_t room = 16;
	while (room < 2 * (uint32_t)distinct)
		room *= 2;
	a->mask = room - 1;
	a->owner = malloc((size_t)distinct * sizeof *a->owner);
	a->taken = calloc((size_t)distinct / 64 + 1, sizeof *a->taken);
	a->table = malloc(room * sizeof *a->table);
	if (a->owner == NULL || a->taken == NULL || a->table == NULL) {
		discard(a);
		return NULL;
	}
	memset(a->owner, 0xff, (size_t)distinct * sizeof *a->owner);
	memset(a->table, 0xff, room * sizeof *a->table);
	for (int32_t p = 0; p < distinct; p++) {
		uint32_t i = hash(a->cuts[p]) & a->mask;
		while (a->table[i] >= 0)
			i = (i + 1) & a->mask;
		a->table[i] = p;
	}
	for (int32_t i = 0; i < n; i++) {
		a->sizes[i] = sizes[i];
		a->entries[i] = (struct entry){.size = sizes[i], .offset = offsets[i]};
		if (offsets[i] >= 0) {
			a->entries[i].first = cut_index(a, offsets[i]);
			a->entries[i].end = cut_index(a, offsets[i] + sizes[i]);
		}
	}
	return a;
}

// pool_arm serves the plan, which spans steps iterations, from what was adopted: n allocations in order, each with its size and offset, aligned to align. With
// one_thread only the calling thread is served. It returns 0, or why not.
EXPORT int pool_arm(int64_t bytes, int64_t align, int32_t n, const int64_t *sizes, const int64_t *offsets, int32_t steps, int one_thread) {
	int64_t least = INT64_MAX, most = 0, planned = 0, planned_bytes = 0;
	if (pool.forked || pool.adopted.data == NULL || !pool.figures[INSTALLED])
		return 1;
	if (n < 1 || n > 1 << 20 || steps < 1 || (uintptr_t)pool.adopted.data % (uintptr_t)align != 0)
		return 2;
	for (int32_t i = 0; i < n; i++) {
		if (sizes[i] < 1 || sizes[i] > bytes || offsets[i] < -1 || offsets[i] > bytes - sizes[i] || (offsets[i] > 0 && offsets[i] % align != 0)) {
			if (offsets[i] != -1 || sizes[i] < 1)
				return 2;
		}
		if (offsets[i] >= 0)
			planned++, planned_bytes += sizes[i];
		least = sizes[i] < least ? sizes[i] : least;
		most = sizes[i] > most ? sizes[i] : most;
	}
	if (planned == 0)
		return 3;
	Stream here = pool.cuda ? pool.call.current(-1) : (Stream){0, -1, 0};
	if (here.index != pool.adopted.index || pool.adopted.type != (pool.cuda ? 1 : 0))
		return 2;
	struct arena *a = draw(n, sizes, offsets);
	if (a == NULL)
		return 4;
	lock();
	int room = -1;
	for (int i = 0; i < ARENAS; i++) {
		if (pool.arenas[i] == NULL)
			room = i;
		else if (pool.cuda && (pool.stream.id != here.id || pool.stream.index != here.index))
			room = ARENAS; // blocks of an arena of another stream live
	}
	if (pool.armed != NULL || room < 0 || room == ARENAS) {
		int error = pool.armed != NULL ? 5 : room < 0 ? 6 : 7;
		unlock();
		discard(a);
		return error;
	}
	a->block = pool.adopted;
	memset(&pool.adopted, 0, sizeof pool.adopted);
	a->base = a->block.data;
	a->bytes = bytes;
	pool.stream = here;
	pool.arenas[room] = a;
	pool.armed = a;
	__atomic_store_n(&pool.thread, pthread_self(), __ATOMIC_RELAXED);
	__atomic_store_n(&pool.one_thread, one_thread != 0, __ATOMIC_RELAXED);
	__atomic_store_n(&pool.least, least, __ATOMIC_RELAXED);
	__atomic_store_n(&pool.most, most, __ATOMIC_RELAXED);
	pool.next = 0, pool.ahead = n, pool.steps = steps, pool.step = 0, pool.round = 1, pool.bad = 0;
	pool.seen = pool.iteration_served = pool.iteration_bytes = 0;
	memset(pool.figures, 0, INSTALLED * sizeof *pool.figures);
	pool.figures[PLANNED] = planned;
	pool.figures[PLANNED_BYTES] = planned_bytes;
	set_mode((pool.mode & ~ADOPT) | SERVE);
	unlock();
	return 0;
}

// pool_step ends an iteration: the next allocation is matched from the plan's beginning.
EXPORT void pool_step(void) {
	if (pool.forked)
		return;
	struct arena *last[ARENAS + 1] = {NULL};
	lock();
	if (pool.mode & RECORD)
		note(EVENT_STEP, NULL, 0);
	if (pool.armed != NULL && ++pool.step >= pool.steps) {
		pool.step = 0;
		if (pool.seen > 0) { // else a step that allocated nothing says nothing of the plan
			pool.figures[ITERATIONS]++;
			pool.figures[LAST_SERVED] = pool.iteration_served;
			pool.figures[LAST_SERVED_BYTES] = pool.iteration_bytes;
			pool.figures[MISSED] += pool.figures[PLANNED] - pool.iteration_served;
			pool.bad = 2 * pool.iteration_bytes < pool.figures[PLANNED_BYTES] ? pool.bad + 1 : 0;
		}
		pool.seen = pool.iteration_served = pool.iteration_bytes = 0;
		pool.next = 0;
		pool.ahead = pool.armed->n;
		pool.round++;
		__atomic_store_n(&pool.thread, pthread_self(), __ATOMIC_RELAXED);
		if (pool.bad >= STALE)
			last[ARENAS] = retire(WHY_STALE);
	}
	for (int i = 0; i < ARENAS; i++) {
		struct arena *a = pool.arenas[i];
		for (int32_t k = 0; a != NULL && a->held > 0 && k < a->n; k++)
			if (a->entries[k].held)
				settle(a, &a->entries[k]);
		if (a != NULL)
			last[i] = gone(a);
	}
	unlock();
	for (int i = 0; i <= ARENAS; i++)
		give_back(last[i]);
}

// pool_disarm stops service. The arena goes with its last block.
EXPORT void pool_disarm(void) {
	if (pool.forked)
		return;
	lock();
	struct arena *last = retire(WHY_ASKED);
	unlock();
	give_back(last);
}

// pool_remove takes our table out, at once or when the last arena goes.
EXPORT void pool_remove(void) {
	if (pool.forked)
		return;
	pool_disarm();
	pool_step(); // blocks that wait for other streams
	lock();
	set_mode(0);
	free(pool.events);
	pool.events = NULL;
	pool.event_count = pool.event_room = 0;
	if (pool.figures[INSTALLED]) {
		pool.leaving = true;
		out();
	}
	unlock();
}

// pool_record begins to write events down, room of them at most. It returns whether there is memory.
EXPORT int pool_record(int64_t room) {
	struct event *events = malloc((size_t)room * sizeof *events);
	if (events == NULL || pool.forked) {
		free(events);
		return 0;
	}
	lock();
	free(pool.events);
	pool.events = events;
	pool.event_count = 0;
	pool.event_room = (size_t)room;
	pool.figures[LOST] = 0;
	set_mode(pool.mode | RECORD);
	unlock();
	return 1;
}

// pool_events ends the recording and hands its events over: their number, and the caller frees them by pool_free.
EXPORT int64_t pool_events(struct event **events) {
	lock();
	set_mode(pool.mode & ~RECORD);
	*events = pool.events;
	int64_t n = (int64_t)pool.event_count;
	pool.events = NULL;
	pool.event_count = pool.event_room = 0;
	unlock();
	return n;
}

EXPORT void pool_free(void *events) { free(events); }

// pool_read copies the figures.
EXPORT int pool_read(int64_t *figures, int room) {
	lock();
	pool.figures[LIVE] = pool.figures[LIVE_BYTES] = pool.figures[HELD] = pool.figures[ARENA_COUNT] = pool.figures[ARENA_BYTES] = 0;
	for (int i = 0; i < ARENAS; i++) {
		struct arena *a = pool.arenas[i];
		if (a == NULL)
			continue;
		pool.figures[LIVE] += a->live;
		pool.figures[LIVE_BYTES] += a->live_bytes;
		pool.figures[HELD] += a->held;
		pool.figures[ARENA_COUNT]++;
		pool.figures[ARENA_BYTES] += a->bytes;
	}
	pool.figures[ARMED] = pool.armed != NULL;
	int n = room < FIGURES ? room : FIGURES;
	memcpy(figures, pool.figures, (size_t)n * sizeof *figures);
	unlock();
	return n;
}
