// What the functions of cuda.S do: hand out addresses with nothing behind them.
#include <stdatomic.h>

static atomic_ulong next = 0x700000000000;

__attribute__((visibility("hidden"))) int fake_alloc(unsigned long *out, unsigned long size)
{
	if (size > 1ul << 40)
		return 2; // CUDA_ERROR_OUT_OF_MEMORY
	*out = atomic_fetch_add(&next, (size + 0x1fffff) & ~0x1ffffful);
	return 0;
}

__attribute__((visibility("hidden"))) int fake_pitch(unsigned long *out, unsigned long *pitch,
    unsigned long width, unsigned long height)
{
	*pitch = (width + 511) & ~511ul;
	return fake_alloc(out, *pitch * height);
}

__attribute__((visibility("hidden"))) int fake_none(void) { return 0; }
