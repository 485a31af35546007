package standin_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
)

func TestQuickMemory(t *testing.T) {
	small := standin.Machine{Memory: "1GiB", Context: "100MiB"}
	checkLaws(t, []law{
		{name: "managed memory takes hints where it should be, other memory does not", machine: small,
			program: `
m, d = out("cudaMallocManaged", MiB, 1), memory(MiB)
for p, want in ((m, 0), (m + 4096, 0), (d, 1)):
    assert ask("cudaMemPrefetchAsync", p, 4096, 0, 0, 0) == want, hex(p)
    assert ask("cudaMemAdvise", p, 4096, 3, 0) == want, hex(p)
free(d, m)`},
		{name: "freed memory is free again", machine: small, orders: everyOrder, program: `
before = free_memory()
assert before == 924 * MiB, before
d = [memory(i * MiB + 1) for i in range(1, 20)]
assert free_memory() == before - sum((i * MiB // (2 * MiB) + 1) * 2 * MiB for i in range(1, 20))
free(*d)
assert free_memory() == before`},
		{name: "a device has only its own memory", machine: small, program: `
assert ask("cudaMalloc", ctypes.byref(ctypes.c_uint64()), 925 * MiB) == 2
assert ask("cudaPeekAtLastError") == 2 and ask("cudaGetLastError") == 2 and ask("cudaGetLastError") == 0
free(memory(924 * MiB))`},
		{name: "memory held by other processes is not available",
			machine: standin.Machine{Memory: "1GiB", Context: "0", Others: []string{"1000MiB"}}, program: `
assert free_memory() == 24 * MiB
assert ask("cudaMalloc", ctypes.byref(ctypes.c_uint64()), 25 * MiB) == 2`},
		{name: "addresses ascend, and the lowest hole is used first", program: `
a = [memory(2 * MiB) for _ in range(6)]
assert a == sorted(a) and all(y - x == 2 * MiB for x, y in zip(a, a[1:]))
free(a[1], a[3])
again = memory(2 * MiB)
assert again == a[1]
free(a[0], again, a[2], a[4], a[5])`},
		{name: "freeing twice is reported", program: `
d = memory(MiB)
free(d)
assert ask("cudaFree", d) == 1`, violation: "cudaFree: "},
		{name: "freeing the middle of an allocation is reported", program: `
d = memory(4 * MiB)
assert ask("cudaFree", d + MiB) == 1
free(d)`, violation: "was not allocated, or is free already"},
		{name: "cudaFree waits for work on the memory", orders: everyOrder, program: `
s, d, h = stream(), memory(MiB), Pinned(4)
fill(d, 1, 4, s); copy(h.at, d, 4, s)
free(d)
assert h.bytes() == b"\1" * 4
free(h); close(s)`},
		{name: "cuMemFree does not wait: a copy that was queued before is reported, and the device is lost",
			orders: []string{standin.Late}, program: `
s, d, h = stream(), memory(MiB), Pinned(4)
copy(h.at, d, 4, s)
call("cuMemFree_v2", d)
assert ask("cudaStreamSynchronize", s) == 700
assert ask("cudaMalloc", ctypes.byref(ctypes.c_uint64()), MiB) == 700
call("cudaDeviceReset")
free(memory(MiB))`, violation: "a copy touches 4 bytes", leaks: "pinned host memory\n1 x stream"},
		{name: "queued work may not touch new memory at a freed address", orders: []string{standin.Late},
			program: `
s, d = stream(), memory(2 * MiB)
fill(d, 1, 4, s)
call("cuMemFree_v2", d)
assert memory(2 * MiB) == d
assert ask("cudaStreamSynchronize", s) == 700
call("cudaDeviceReset")`, violation: "a fill touches 4 bytes", leaks: "device memory\n1 x stream"},
		{name: "host memory that is unpinned while a copy needs it is reported",
			orders: []string{standin.Late}, program: `
s, d, buffer = stream(), memory(MiB), ctypes.create_string_buffer(4096)
at = ctypes.addressof(buffer)
call("cudaHostRegister", at, 4096, 0)
copy(at, d, 4, s)
call("cudaHostUnregister", at)
assert ask("cudaStreamSynchronize", s) == 700
call("cudaDeviceReset")`, violation: "of host memory registered", leaks: "device memory\n1 x stream"},
		{name: "a copy of unallocated memory is reported when it is queued", program: `
s, d = stream(), memory(2 * MiB)
assert ask("cudaMemcpyAsync", d, d + 4 * MiB, 4, 4, s) == 1
free(d); close(s)`, violation: "device memory that is not allocated"},
		{name: "leaks are named with the library that made them", program: `
memory(MiB); stream(); event()`,
			leaks: "1 x device memory of 2097152 bytes made by libffi\n1 x event\n1 x stream"},
		{name: "processes share a device, and a killed one's memory comes back", machine: small, program: `
memory(2 * MiB)
p = child('''
memory(500 * MiB); print("holds", flush=True); sys.stdin.read()''')
assert p.stdout.readline() == "holds\n"
assert free_memory() == 1024 * MiB - 100 * MiB - 2 * MiB - 600 * MiB
assert ask("cudaMalloc", ctypes.byref(ctypes.c_uint64()), 400 * MiB) == 2
p.kill(); p.wait()
assert free_memory() == 1024 * MiB - 102 * MiB
free(0x400000000000)`},
	})
}

func TestQuickPools(t *testing.T) {
	checkLaws(t, []law{
		{name: "memory of a pool may be touched after its allocation and before its free, " +
			"in their streams' orders", orders: everyOrder, program: `
a, b, e = stream(), stream(), event()
p = out("cudaMallocAsync", MiB, a)
after(b, e, a)
fill(p, 4, 8, b); h = Pinned(8); copy(h.at, p, 8, b)
after(a, e, b)
call("cudaFreeAsync", p, a)
wait(a)
assert h.bytes() == b"\4" * 8
free(h); close(a, b, events=[e])`},
		{name: "touching memory of a pool in a stream that does not wait for its allocation is reported",
			orders: []string{standin.Late}, program: `
a, b = stream(), stream()
p = out("cudaMallocAsync", MiB, a)
fill(p, 4, 8, b)
assert ask("cudaStreamSynchronize", b) == 700
call("cudaDeviceReset")`, violation: "of memory of a pool that are not allocated when it runs",
			leaks: "memory of a pool\n2 x stream"},
		{name: "touching memory of a pool after its free is reported", orders: []string{standin.Late},
			program: `
a, b = stream(), stream()
p = out("cudaMallocAsync", MiB, a); wait(a)
fill(p, 4, 8, b)
call("cudaFreeAsync", p, a); wait(a)
assert ask("cudaStreamSynchronize", b) == 700
call("cudaDeviceReset")`, violation: "a fill touches 8 bytes", leaks: "2 x stream"},
		{name: "a stream reuses at once what it freed", orders: everyOrder, program: `
a = stream()
p = out("cudaMallocAsync", 5 * MiB, a); call("cudaFreeAsync", p, a)
q = out("cudaMallocAsync", 5 * MiB, a)
assert p == q
call("cudaFreeAsync", q, a); close(a)`},
		{name: "late: another stream reuses freed memory only after the free", orders: []string{standin.Late},
			program: `
a, b = stream(), stream()
p = out("cudaMallocAsync", 40 * MiB, a); call("cudaFreeAsync", p, a)
q = out("cudaMallocAsync", 40 * MiB, b)
assert p != q
call("cudaFreeAsync", q, b); close(a, b)`},
		{name: "a wait makes a pool give back unused memory, down to its threshold",
			machine: standin.Machine{Memory: "1GiB", Context: "0"}, orders: everyOrder, program: `
pool, a = out("cudaDeviceGetDefaultMemPool", 0), stream()
def attribute(n):
    v = ctypes.c_uint64()
    call("cudaMemPoolGetAttribute", pool, n, ctypes.byref(v))
    return v.value
p = out("cudaMallocAsync", 50 * MiB, a)
assert attribute(7) == 50 * MiB and attribute(5) == 64 * MiB and free_memory() == 960 * MiB
call("cudaFreeAsync", p, a); wait(a)
assert attribute(7) == 0 and attribute(5) == 0 and attribute(6) == 64 * MiB and free_memory() == 1024 * MiB
call("cudaMemPoolSetAttribute", pool, 4, ctypes.byref(ctypes.c_uint64(1 << 62)))
p = out("cudaMallocAsync", 50 * MiB, a); call("cudaFreeAsync", p, a); wait(a)
assert attribute(5) == 64 * MiB
call("cudaMemPoolTrimTo", pool, 0)
assert attribute(5) == 0 and free_memory() == 1024 * MiB
close(a)`},
	})
}

// reserve is the common code of programs with virtual memory.
const reserve = `
class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int),
                ("device", ctypes.c_int), ("rest", ctypes.c_uint64 * 2)]
class Access(ctypes.Structure):
    _fields_ = [("location", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int)]
free(0)
S = 2 * MiB
at = out("cuMemAddressReserve", 8 * S, 0, 0, 0)
h = out("cuMemCreate", S, ctypes.byref(Properties(1, 1, 1, 0)), 0)
def put(i, handle):
    call("cuMemMap", at + i * S, S, 0, handle, 0)
    call("cuMemSetAccess", at + i * S, S, ctypes.byref(Access(1, 0, 3)), 1)
`

func TestQuickVirtualMemory(t *testing.T) {
	small := standin.Machine{Memory: "1GiB", Context: "0"}
	checkLaws(t, []law{
		{name: "a handle at two addresses shows the same bytes, and goes when it is unmapped and released",
			machine: small, program: reserve + `
put(0, h); put(3, h)
call("cudaMemcpy", at, ctypes.create_string_buffer(b"same", 4), 4, 1)
assert read(at + 3 * S) == b"same" and free_memory() == 1022 * MiB
call("cuMemRelease", h)
call("cuMemUnmap", at, S)
assert read(at + 3 * S) == b"same" and free_memory() == 1022 * MiB
call("cuMemUnmap", at + 3 * S, S)
assert free_memory() == 1024 * MiB
call("cuMemAddressFree", at, 8 * S)`},
		{name: "a copy may span mappings that touch", machine: small, program: reserve + `
g = out("cuMemCreate", S, ctypes.byref(Properties(1, 0, 1, 0)), 0)
put(0, h); put(1, g)
call("cudaMemset", at, 3, 2 * S)
assert read(at + S - 2) == b"\3" * 4
call("cuMemUnmap", at, 2 * S); call("cuMemRelease", h); call("cuMemRelease", g)
call("cuMemAddressFree", at, 8 * S)`},
		{name: "unmapping memory that queued work needs is reported", machine: small,
			orders: []string{standin.Late}, program: reserve + `
put(0, h); s = stream()
fill(at, 1, 4, s)
call("cuMemUnmap", at, S); call("cuMemRelease", h); call("cuMemAddressFree", at, 8 * S)
assert ask("cudaStreamSynchronize", s) == 700
call("cudaDeviceReset")`, violation: "a fill touches 4 bytes", leaks: "1 x stream"},
		{name: "mapping twice at one address, or outside a reservation, is reported", machine: small,
			program: reserve + `
put(0, h)
assert ask("cuMemMap", at, S, 0, h, 0) == 208
assert ask("cuMemMap", at + 8 * S, S, 0, h, 0) == 1
call("cuMemUnmap", at, S); call("cuMemRelease", h); call("cuMemAddressFree", at, 8 * S)`,
			violation: "is mapped at\nnot reserved"},
		{name: "releasing a handle twice is reported", machine: small, program: reserve + `
call("cuMemRelease", h)
assert ask("cuMemRelease", h) == 1
call("cuMemAddressFree", at, 8 * S)`, violation: "cuMemRelease"},
		{name: "leaked handles and addresses are named", machine: small, program: reserve + `put(0, h)`,
			leaks: "handle of physical memory\n1 x mapping\n1 x reservation"},
		{name: "a handle is shared with another process by a file descriptor", machine: small,
			program: reserve + `
put(0, h)
call("cudaMemcpy", at, ctypes.create_string_buffer(b"ours", 4), 4, 1)
f = ctypes.c_int(); call("cuMemExportToShareableHandle", ctypes.byref(f), h, 1, 0)
p = child('''
class Access(ctypes.Structure):
    _fields_ = [("location", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int)]
free(0); S = 2 * MiB
h = out("cuMemImportFromShareableHandle", %d, 1)
at = out("cuMemAddressReserve", S, 0, 0, 0)
call("cuMemMap", at, S, 0, h, 0); call("cuMemSetAccess", at, S, ctypes.byref(Access(1, 0, 3)), 1)
assert read(at) == b"ours"
call("cudaMemcpy", at, ctypes.create_string_buffer(b"them", 4), 4, 1)
call("cuMemUnmap", at, S); call("cuMemRelease", h); call("cuMemAddressFree", at, S)
''' % f.value, pass_fds=[f.value])
p.communicate()
assert p.returncode == 0 and read(at) == b"them"
call("cuMemUnmap", at, S); call("cuMemRelease", h); call("cuMemAddressFree", at, 8 * S)`},
	})
}
