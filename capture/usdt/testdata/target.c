// The watched process: it carries out the lines of its input and answers each with "ok", the nanoseconds that
// it took and the nanoseconds of processor time.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long u64;
static void (*torch_malloc)(u64, int, u64, u64), (*torch_free)(u64), (*torch_free_uncached)(u64, u64);
static int (*cuMemAlloc)(u64 *, u64), (*cuMemFree)(u64);

static u64 clock_of(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return t.tv_sec * 1000000000ul + t.tv_nsec;
}

static u64 now(void) { return clock_of(CLOCK_MONOTONIC); }

// spent is the processor time of this thread. It includes what a probe costs, but not what other processes
// take.
static u64 spent(void) { return clock_of(CLOCK_THREAD_CPUTIME_ID); }

static void pairs(u64 base, u64 n)
{
	for (u64 i = 0; i < n; i++) {
		torch_malloc(base + (i << 9), 1, 512 + i % 7, 5);
		torch_free(base + (i << 9));
	}
}

static u64 each;
static void *work(void *arg) { pairs((u64)arg << 40, each); return NULL; }

static void *symbol(void *lib, const char *name)
{
	void *f = dlsym(lib, name);
	if (!f) { fprintf(stderr, "no %s\n", name); exit(3); }
	return f;
}

static void load(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW);
	if (!lib) { fprintf(stderr, "%s\n", dlerror()); exit(3); }
	if (strstr(path, "c10")) {
		torch_malloc = symbol(lib, "torch_malloc");
		torch_free = symbol(lib, "torch_free");
		torch_free_uncached = symbol(lib, "torch_free_uncached");
	} else if (strstr(path, "libcuda")) {
		cuMemAlloc = symbol(lib, "cuMemAlloc_v2");
		cuMemFree = symbol(lib, "cuMemFree_v2");
	}
}

// any calls an exported function with up to five arguments and prints what that stored through the first two.
static void any(char *line)
{
	char name[64];
	u64 a[5] = {0}, out = 0, out2 = 0, prop[4] = {1, 0, 0, 0};
	((int *)prop)[3] = 3; // location.id
	char kind[8] = "";
	sscanf(line, "%7s %63s %lx %lx %lx %lx %lx", kind, name, a, a + 1, a + 2, a + 3, a + 4);
	if (strchr(kind, 'o')) a[0] = (u64)&out;
	if (strchr(kind, 'p')) a[1] = (u64)&out2;
	if (strchr(kind, 'c')) a[2] = (u64)prop;
	int (*f)(u64, u64, u64, u64, u64) = symbol(RTLD_DEFAULT, name);
	int rc = f(a[0], a[1], a[2], a[3], a[4]);
	printf("%d %lx\n", rc, out);
}

int main(void)
{
	char line[4096];
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof line, stdin)) {
		u64 a = 0, b = 0, c = 0, d = 0, begun = now(), spending = spent();
		line[strcspn(line, "\n")] = 0;
		char *rest = line + 1;
		sscanf(rest, "%lx %lx %lx %lx", &a, &b, &c, &d);
		switch (line[0]) {
		case 'L': {
			void *lib = dlopen(rest + 1, RTLD_NOW | RTLD_GLOBAL);
			if (!lib) { fprintf(stderr, "%s\n", dlerror()); return 3; }
			load(rest + 1);
			break;
		}
		case 'm': torch_malloc(a, (signed char)b, c, d); break;
		case 'f': torch_free(a); break;
		case 'u': torch_free_uncached(1, a); break;
		case 'p': pairs(1ul << 40, a); break;
		case 'd':
			for (u64 i = 0; i < a; i++) {
				u64 p = 0;
				cuMemAlloc(&p, 2ul << 20);
				cuMemFree(p);
			}
			break;
		case 't': {
			pthread_t t[4];
			each = a;
			for (u64 i = 0; i < 4; i++) pthread_create(t + i, NULL, work, (void *)(i + 1));
			for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
			break;
		}
		case 'r': // a pairs at b pairs a second, in bursts of 500
			for (u64 i = 0; i < a; i += 500) {
				u64 due = begun + i * 1000000000ul / b;
				for (u64 t = now(); t < due; t = now()) {
					struct timespec s = {0, due - t};
					nanosleep(&s, NULL);
				}
				pairs(1ul << 40, a - i < 500 ? a - i : 500);
			}
			break;
		case 'x': any(rest); break;
		case 's': { // a call of a function that the tests wrote
			void (*f)(void) = symbol(RTLD_DEFAULT, rest + 1);
			f();
			break;
		}
		case 'q': return 0;
		}
		printf("ok %lu %lu\n", now() - begun, spent() - spending);
	}
	return 0;
}
