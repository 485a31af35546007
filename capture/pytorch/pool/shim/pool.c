// The pool: serves allocations from a planned arena, in front of torch's own allocator, and records the calls
// of that allocator.
//
// Torch allocates every tensor by a virtual call on one object. Replacing that object's pointer to its table
// of virtual functions puts us in between while training runs; putting it back takes us out. Our table is a
// copy with a few functions replaced. We include no torch headers: slots.py reads from the library's symbols
// which slot holds which function, and refuses a library that it does not know. This file knows the layout of
// two types, DataPtr and Stream, and checks the first against what torch returns.
//
// # Serving
//
// A plan lists the allocations of one iteration in order, each with its size and its place in the arena; an
// entry without a place is left to torch. An allocation is matched to the next entry of exactly its size, up
// to WINDOW entries ahead and then back, so that an allocation that is missing, new or swapped with another
// does not disturb the rest. Allocations without an entry go to torch, and so do all from another thread or
// stream, or made while a CUDA graph is captured or a private pool is open.
//
// We do not trust the plan: if a place is not completely free, the allocation goes to torch (arena.h), so
// memory is never handed out twice. On a GPU, queued work may still use a freed block. Within a stream that
// is safe, so an arena serves one stream. A block that record_stream named another stream for keeps its place
// until that stream has passed an event.
//
// # Leaving
//
// Every served block has arena_delete as its deleter, so this library is never unloaded. A retired arena
// serves nothing, and goes back to torch with its last block. An arena retires itself when three iterations
// in a row served less than half of the planned bytes: then the plan is stale. One odd batch at the end of an
// epoch does not retire it.
//
// # Locking
//
// One mutex guards all tables and is held for less than a microsecond. While it is held, nothing calls
// torch's allocator, and the only CUDA calls are for events of blocks that another stream uses. Torch's
// allocator may throw through these frames, so compile this with -fexceptions. A forked child serves nothing
// and frees nothing in its parent's arena.
#define _GNU_SOURCE
#include "serve.h"

#define EXPORT __attribute__((visibility("default")))

// -- what stands in torch's table ------------------------------------------------------------------------

static DataPtr hook_allocate(void *self, size_t size) {
	unsigned m = mode();
	DataPtr d;
	if ((m & SERVE) && serve(size, &d))
		return d;
	d = ((DataPtr(*)(void *, size_t))pool.native[ALLOCATE])(self, size);
	if ((m & ADOPT) && pthread_equal(pthread_self(), pool.adopter) && size == pool.adopt && d.data != NULL &&
	    d.ctx == d.data) {
		pool.adopted = d;
		pool.adopt = 0;
		d.del = no_delete;
	} else if ((m & RECORD) && d.data != NULL && d.ctx == d.data && pool.native_delete != NULL &&
	    d.del == pool.native_delete) {
		lock();
		if (pool.mode & RECORD) {
			note(EVENT_ALLOC, d.data, (int64_t)size);
			d.del = recorded_delete;
		}
		unlock();
	}
	return d;
}

// hook_raw_deleter returns a deleter for blocks whose own was thrown away, such as oneDNN's scratchpads
// (raw_deallocate). While an arena exists, such a block may belong to it.
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
	struct use *u = calloc(1, sizeof *u);
	lock();
	struct arena *a = arena_of(d->data);
	struct entry *e = a == NULL ? NULL : living(a, d->data);
	if (s.index == pool.stream.index && s.id == pool.stream.id)
		e = NULL; // its own stream: work queued there comes before the next use of the place
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

// To torch, an arena is one block, and the arena's blocks are parts of it. So if asked where a block's memory
// begins, or for a handle that lets another process map it, we answer for the arena.
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

// hook_share_handle returns a struct with a string, for which C++ passes the address of the result as the
// first argument; pool.py refuses processors where that address is passed differently.
static void *hook_share_handle(void *result, void *self, void *data) {
	void *base = known(data);
	((void *(*)(void *, void *, void *))pool.native[SHARE_HANDLE])(result, self, base);
	*(ptrdiff_t *)result += (char *)data - (char *)base;
	return result;
}

typedef void (*six)(void *, void *, void *, void *, void *, void *);

// hook_begin_pool and hook_end_pool pass on all arguments of torch's version: there are at most six, in
// registers.
static void hook_begin_pool(void *self, void *b, void *c, void *d, void *e, void *f) {
	__atomic_fetch_add(&pool.open_pools, 1, __ATOMIC_RELAXED);
	((six)pool.native[BEGIN_POOL])(self, b, c, d, e, f);
}

static void hook_end_pool(void *self, void *b, void *c, void *d, void *e, void *f) {
	((six)pool.native[END_POOL])(self, b, c, d, e, f);
	if (__atomic_load_n(&pool.open_pools, __ATOMIC_RELAXED) > 0)
		__atomic_fetch_sub(&pool.open_pools, 1, __ATOMIC_RELAXED);
}

// -- what pool.py calls ----------------------------------------------------------------------------------

// pool_install puts our table, of count slots, in front of object's. The hooks' slots are given by number, -1
// where torch has none. It returns 0, or why it refused.
EXPORT int pool_install(void **object, int count, const int *slots, const struct cuda *cuda) {
	static void *const hooks[HOOKS] = {hook_allocate, hook_raw_deleter, hook_record_stream,
	    hook_base_allocation, hook_share_handle, hook_begin_pool, hook_end_pool};
	if (count < 3 || count > SLOTS)
		return 1;
	lock();
	void **theirs = *(void ***)object;
	int error = 0;
	if (pool.forked)
		error = 2;
	else if (pool.object != NULL && pool.object != object)
		error = 3;
	else if (pool.figures[INSTALLED] && !pool.leaving)
		error = 4;
	else if (pool.object != NULL && theirs != pool.theirs && !pool.figures[INSTALLED])
		error = 1;
	// Only the first time: from then on a thread may be in a call through our table, so it is not written
	// again.
	if (error == 0 && pool.object == NULL) {
		memcpy(pool.copy, theirs - 2, (size_t)(count + 2) * sizeof *pool.copy);
		for (int h = 0; h < HOOKS; h++)
			if (slots[h] >= 0 && slots[h] < count) {
				pool.native[h] = theirs[slots[h]];
				pool.copy[2 + slots[h]] = hooks[h];
			}
		// Where code compares deleters, as on a GPU, we leave raw_deleter to torch and do not record the
		// lifetimes of its blocks.
		if (pool.native[RAW_DELETER] != NULL)
			pool.native_delete = ((deleter(*)(void *))pool.native[RAW_DELETER])(object);
		pool.cuda = cuda != NULL;
		if (cuda != NULL)
			pool.call = *cuda;
		pool.object = object;
		pool.theirs = theirs;
		pthread_atfork(NULL, NULL, in_child);
	}
	if (error == 0) {
		pool.leaving = false;
		if (!pool.figures[INSTALLED])
			__atomic_store_n((void **)object, (void *)&pool.copy[2], __ATOMIC_SEQ_CST);
		pool.figures[INSTALLED] = 1;
	}
	unlock();
	return error;
}

// pool_theirs returns the table that object had before ours.
EXPORT void **pool_theirs(void **object) {
	void **now = *(void ***)object;
	return now == &pool.copy[2] ? pool.theirs : now;
}

// pool_adopt takes this thread's next allocation of that many bytes as the memory of an arena; 0 cancels.
// Python allocates it by making a tensor and dropping it, so that errors are raised in Python. pool_drop
// gives back memory that was adopted but never armed.
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

// pool_arm serves a plan from the adopted memory. The plan spans a number of iterations and has n allocations
// in order, each with its size and its offset, a multiple of align. With one_thread only the calling thread
// is served. It returns 0, or why it refused.
EXPORT int pool_arm(int64_t bytes, int64_t align, int32_t n, const int64_t *sizes, const int64_t *offsets,
    int32_t steps, int one_thread) {
	int64_t least = INT64_MAX, most = 0, planned = 0, planned_bytes = 0;
	if (pool.forked || pool.adopted.data == NULL || !pool.figures[INSTALLED])
		return 1;
	if (n < 1 || n > 1 << 20 || steps < 1 || (uintptr_t)pool.adopted.data % (uintptr_t)align != 0)
		return 2;
	for (int32_t i = 0; i < n; i++) {
		if (sizes[i] < 1 || sizes[i] > bytes || offsets[i] < -1 || offsets[i] > bytes - sizes[i] ||
		    (offsets[i] > 0 && offsets[i] % align != 0)) {
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
			room = ARENAS; // another stream's arena still has living blocks
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
	pool.steps = steps, pool.step = 0, pool.bad = 0;
	pool.seen = pool.iteration_served = pool.iteration_bytes = 0;
	memset(pool.figures, 0, INSTALLED * sizeof *pool.figures);
	pool.figures[PLANNED] = planned;
	pool.figures[PLANNED_BYTES] = planned_bytes;
	set_mode((pool.mode & ~ADOPT) | SERVE);
	unlock();
	return 0;
}

// pool_step ends an iteration: matching starts again at the plan's first entry.
EXPORT void pool_step(void) {
	if (pool.forked)
		return;
	struct arena *last[ARENAS + 1] = {NULL};
	lock();
	if (pool.mode & RECORD)
		note(EVENT_STEP, NULL, 0);
	if (pool.armed != NULL && ++pool.step >= pool.steps) {
		pool.step = 0;
		if (pool.seen > 0) { // a step without allocations says nothing about the plan
			pool.figures[ITERATIONS]++;
			pool.figures[LAST_SERVED] = pool.iteration_served;
			pool.figures[LAST_SERVED_BYTES] = pool.iteration_bytes;
			pool.figures[MISSED] += pool.figures[PLANNED] - pool.iteration_served;
			pool.bad = 2 * pool.iteration_bytes < pool.figures[PLANNED_BYTES] ? pool.bad + 1 : 0;
		}
		pool.seen = pool.iteration_served = pool.iteration_bytes = 0;
		restart(pool.armed);
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

// pool_disarm stops serving. The arena goes back to torch with its last block.
EXPORT void pool_disarm(void) {
	if (pool.forked)
		return;
	lock();
	struct arena *last = retire(WHY_ASKED);
	unlock();
	give_back(last);
}

// pool_remove takes our table out, now or when the last arena goes.
EXPORT void pool_remove(void) {
	if (pool.forked)
		return;
	pool_disarm();
	pool_step(); // settles blocks that wait for other streams
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

// pool_record starts recording, up to room events. It returns whether there is memory for them.
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

// pool_events ends the recording, hands over its events and returns their number. The caller frees them with
// pool_free.
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

// pool_read copies the counters.
EXPORT int pool_read(int64_t *figures, int room) {
	lock();
	pool.figures[LIVE] = pool.figures[LIVE_BYTES] = pool.figures[HELD] = 0;
	pool.figures[ARENA_COUNT] = pool.figures[ARENA_BYTES] = 0;
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
