// An arena: the places of a plan, which of them living blocks hold, and which entry of the plan an allocation
// matches.
//
// The arena is cut at every offset and end in the plan. A bit for each piece says whether a living block
// holds it. So a look at a few words tells whether a place is free, and a plan that puts two living blocks in
// one place is caught as it happens.
//
// Complexity: an allocation costs O(WINDOW + pieces / 64), a free O(pieces / 64), making the tables O(n log
// n) for n entries. Rejected: a list of conflicts for each entry (quadratic for plans that reuse a lot of
// memory), a tree of living blocks (slower at the few thousand pieces that plans have).
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64 };

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

// A stream other than its own that uses a block.
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
	int64_t *sizes;     // of the entries, contiguous for the search
	int64_t *cuts;      // where pieces begin, ascending
	int32_t *owner;     // of each piece: the living entry that begins there
	uint64_t *taken;    // a bit a piece
	int32_t *table;     // from an offset to its piece: open addressing
	uint32_t mask;
	int64_t live, live_bytes, held;
	bool retired;

	int32_t next, ahead; // the expected entry, and the one after a match found further on
	uint32_t round;      // counts iterations
};

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

// flip takes the pieces [first, end), or frees them.
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

// living returns the entry of the living block at data, or NULL.
static struct entry *living(struct arena *a, const void *data) {
	int32_t p = piece_at(a, (char *)data - a->base);
	return p < 0 || a->owner[p] < 0 ? NULL : &a->entries[a->owner[p]];
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

// restart goes back to the plan's first entry.
static void restart(struct arena *a) {
	a->next = 0;
	a->ahead = a->n;
	a->round++;
}

static bool fits(const struct arena *a, int32_t i, int64_t size) {
	return i < a->n && a->sizes[i] == size && a->entries[i].round != a->round;
}

// match finds the entry of an allocation, or -1. It tries the expected entry first. If a later one matches,
// either the allocation is new and the expected entry is still to come, or the entries before the match are
// missing. The expectation moves to the match only when the next allocation continues from there.
static int32_t match(struct arena *a, int64_t size) {
	while (a->next < a->n && a->entries[a->next].round == a->round)
		a->next++;
	if (fits(a, a->next, size)) {
		a->ahead = a->n;
		return a->next++;
	}
	if (fits(a, a->ahead, size)) {
		int32_t i = a->ahead;
		a->next = i + 1;
		a->ahead = a->n;
		return i;
	}
	int32_t end = a->next + WINDOW < a->n ? a->next + WINDOW : a->n;
	for (int32_t i = a->next + 1; i < end; i++)
		if (fits(a, i, size)) {
			a->ahead = i + 1;
			return i;
		}
	int32_t begin = a->next - WINDOW > 0 ? a->next - WINDOW : 0;
	for (int32_t i = a->next - 1; i >= begin; i--)
		if (fits(a, i, size))
			return i;
	return -1;
}

// draw makes the tables of an arena from a plan; NULL if memory is short.
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
	restart(a);
	return a;
}
