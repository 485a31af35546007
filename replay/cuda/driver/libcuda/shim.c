//go:build cuda && linux && cgo

// The table that the trampolines jump through, and the library behind it; see doc.go.
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>

static const char *const names[] = {
#include "names.h"
};
enum { count = sizeof names / sizeof *names };

__attribute__((visibility("hidden"))) void *libcuda_table[count];
static void *handle;

// Called for functions that the driver lacks, and for all of them while no driver is open. The arguments do
// not matter: the caller cleans them up.
static CUresult absent(void) { return CUDA_ERROR_NOT_FOUND; }

__attribute__((constructor)) static void clear(void) {
    for (int i = 0; i < count; i++) libcuda_table[i] = (void *)absent;
}

// libcuda_open opens the library and starts the driver. It returns the driver's answer to cuInit, or -1 with
// the reason in why if there is no such library. missing counts the functions that this driver does not have.
int libcuda_open(const char *path, char *why, int size, int *missing) {
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!h) {
        const char *text = dlerror();
        snprintf(why, size, "%s", text ? text : "unknown error");
        return -1;
    }
    CUresult (*init)(unsigned int) = (CUresult(*)(unsigned int))dlsym(h, "cuInit");
    if (!init) {
        snprintf(why, size, "%s has no cuInit", path);
        dlclose(h);
        return -1;
    }
    CUresult r = init(0);
    if (r != CUDA_SUCCESS) {
        dlclose(h);
        return r;
    }
    *missing = 0;
    for (int i = 0; i < count; i++) {
        void *f = dlsym(h, names[i]);
        if (f) libcuda_table[i] = f;
        else (*missing)++;
    }
    handle = h;
    return 0;
}

void libcuda_close(void) {
    clear();
    if (handle) dlclose(handle);
    handle = 0;
}

// gorgonia.org/cu calls this while the program starts, and ends the program if it fails.
__attribute__((visibility("hidden"))) CUresult cuInit(unsigned int flags) { (void)flags; return CUDA_SUCCESS; }
