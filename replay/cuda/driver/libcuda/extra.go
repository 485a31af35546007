//go:build cuda && linux && cgo

package libcuda

// #include <cuda.h>
//
// static CUmemAllocationProp on(int device) {
//     CUmemAllocationProp p = {0};
//     p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
//     p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
//     p.location.id = device;
//     return p;
// }
//
// static CUresult granularity(size_t *size, int device) {
//     CUmemAllocationProp p = on(device);
//     return cuMemGetAllocationGranularity(size, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
// }
//
// static CUresult create(CUmemGenericAllocationHandle *h, size_t size, int device) {
//     CUmemAllocationProp p = on(device);
//     return cuMemCreate(h, size, &p, 0);
// }
//
// static CUresult allow(CUdeviceptr at, size_t size, int device) {
//     CUmemAccessDesc d = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
//     return cuMemSetAccess(at, size, &d, 1);
// }
//
// static CUresult pool(CUmemoryPool *pool, int device) {
//     CUmemPoolProps p = {0};
//     uint64_t all = UINT64_MAX;
//     p.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
//     p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
//     p.location.id = device;
//     CUresult r = cuMemPoolCreate(pool, &p);
//     if (r != CUDA_SUCCESS) return r;
//     r = cuMemPoolSetAttribute(*pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
//     if (r != CUDA_SUCCESS) cuMemPoolDestroy(*pool);
//     return r;
// }
import "C"

import "unsafe"

// Sizes are bytes, addresses are device addresses, devices are the driver's ordinals. Errors are of type
// [Result]. Call these functions on a thread where a context of that device is current.

// HostRegister pins host memory so that copies to and from it are asynchronous and run at the link's speed.
// It must not be Go's: the garbage collector could free it while the device still copies.
func HostRegister(p unsafe.Pointer, size int64) error {
	return result(C.cuMemHostRegister(p, C.size_t(size), 0))
}

// HostUnregister undoes HostRegister.
func HostUnregister(p unsafe.Pointer) error { return result(C.cuMemHostUnregister(p)) }

// Granularity returns the unit of physical memory: sizes are multiples of it.
func Granularity(device int) (int64, error) {
	var size C.size_t
	err := result(C.granularity(&size, C.int(device)))
	return int64(size), err
}

// Reserve returns size bytes of address space with nothing behind.
func Reserve(size int64) (uint64, error) {
	var p C.CUdeviceptr
	err := result(C.cuMemAddressReserve(&p, C.size_t(size), 0, 0, 0))
	return uint64(p), err
}

// Unreserve gives a whole reservation back.
func Unreserve(addr uint64, size int64) error {
	return result(C.cuMemAddressFree(C.CUdeviceptr(addr), C.size_t(size)))
}

// Create makes physical memory.
func Create(size int64, device int) (uint64, error) {
	var h C.CUmemGenericAllocationHandle
	err := result(C.create(&h, C.size_t(size), C.int(device)))
	return uint64(h), err
}

// Release gives physical memory back once it is mapped nowhere.
func Release(handle uint64) error {
	return result(C.cuMemRelease(C.CUmemGenericAllocationHandle(handle)))
}

// Map puts the whole of a handle's memory at a reserved address; Allow must follow before it is touched.
func Map(addr uint64, size int64, handle uint64) error {
	return result(C.cuMemMap(C.CUdeviceptr(addr), C.size_t(size), 0, C.CUmemGenericAllocationHandle(handle),
		0))
}

// Allow makes mapped memory readable and writable by a device.
func Allow(addr uint64, size int64, device int) error {
	return result(C.allow(C.CUdeviceptr(addr), C.size_t(size), C.int(device)))
}

// Unmap removes the mappings that fill a range.
func Unmap(addr uint64, size int64) error {
	return result(C.cuMemUnmap(C.CUdeviceptr(addr), C.size_t(size)))
}

// MemoryPool is a pool of stream-ordered allocation.
type MemoryPool struct{ p C.CUmemoryPool }

// NewMemoryPool returns a pool of a device that keeps what is freed into it until it is trimmed or destroyed.
func NewMemoryPool(device int) (MemoryPool, error) {
	var p C.CUmemoryPool
	err := result(C.pool(&p, C.int(device)))
	return MemoryPool{p}, err
}

// Destroy destroys the pool; its memory goes back once nothing of it is in use.
func (p MemoryPool) Destroy() error { return result(C.cuMemPoolDestroy(p.p)) }

// Trim gives back what is unused, down to keep bytes.
func (p MemoryPool) Trim(keep int64) error { return result(C.cuMemPoolTrimTo(p.p, C.size_t(keep))) }

// Reserved returns the bytes that the pool holds now, and the most that it held.
func (p MemoryPool) Reserved() (now, peak int64, err error) {
	var v C.uint64_t
	if err = result(C.cuMemPoolGetAttribute(p.p, C.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
		unsafe.Pointer(&v))); err != nil {
		return 0, 0, err
	}
	now = int64(v)
	err = result(C.cuMemPoolGetAttribute(p.p, C.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, unsafe.Pointer(&v)))
	return now, int64(v), err
}

// AllocAsync takes memory from the pool in a stream's order. stream is the CUstream.
func (p MemoryPool) AllocAsync(size int64, stream unsafe.Pointer) (uint64, error) {
	var a C.CUdeviceptr
	err := result(C.cuMemAllocFromPoolAsync(&a, C.size_t(size), p.p, C.CUstream(stream)))
	return uint64(a), err
}

// FreeAsync gives memory back to its pool in a stream's order.
func FreeAsync(addr uint64, stream unsafe.Pointer) error {
	return result(C.cuMemFreeAsync(C.CUdeviceptr(addr), C.CUstream(stream)))
}
