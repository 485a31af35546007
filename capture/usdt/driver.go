package usdt

// action is what an event says about memory.
type action uint8

const (
	blockAlloc    action = iota // PyTorch's allocator hands out a block
	blockFree                   // and takes it back
	driverAlloc                 // the driver hands out device memory
	driverFree                  //
	driverMap                   // physical memory appears at an address
	driverUnmap                 //
	physicalAlloc               // physical memory without an address; the event's address is its handle
	physicalFree                //
	pinnedAlloc                 // the driver hands out pinned host memory
	pinnedFree                  //
)

// function is one of the driver's: where its arguments are when it is entered, in the syntax of operand.go.
type function struct {
	name string
	does action
	// addr is the address or handle that the call is about; if out is set, a pointer to where the function
	// stores it.
	addr string
	out  bool
	// size is in bytes. If pitch is set, it counts rows, and pitch points to where the function stores the
	// bytes of a row.
	size, pitch    string
	stream, device string
}

// driverFunctions are the exported functions of libcuda.so.1 that allocate and free memory, by cuda.h (12.x).
// Several names can share one address, which is probed once, so the current name comes before older ones. The
// _ptsz forms are for programs compiled with a default stream for each thread.
var driverFunctions = []function{
	{name: "cuMemAlloc_v2", does: driverAlloc, addr: "8@%rdi", out: true, size: "8@%rsi"},
	{name: "cuMemAllocManaged", does: driverAlloc, addr: "8@%rdi", out: true, size: "8@%rsi"},
	{name: "cuMemAllocPitch_v2", does: driverAlloc, addr: "8@%rdi", out: true, pitch: "8@%rsi",
		size: "8@%rcx"},
	{name: "cuMemAllocAsync", does: driverAlloc, addr: "8@%rdi", out: true, size: "8@%rsi", stream: "8@%rdx"},
	{name: "cuMemAllocAsync_ptsz", does: driverAlloc, addr: "8@%rdi", out: true, size: "8@%rsi",
		stream: "8@%rdx"},
	{name: "cuMemAllocFromPoolAsync", does: driverAlloc, addr: "8@%rdi", out: true, size: "8@%rsi",
		stream: "8@%rcx"},
	{name: "cuMemAllocFromPoolAsync_ptsz", does: driverAlloc, addr: "8@%rdi", out: true, size: "8@%rsi",
		stream: "8@%rcx"},
	{name: "cuMemFree_v2", does: driverFree, addr: "8@%rdi"},
	{name: "cuMemFreeAsync", does: driverFree, addr: "8@%rdi", stream: "8@%rsi"},
	{name: "cuMemFreeAsync_ptsz", does: driverFree, addr: "8@%rdi", stream: "8@%rsi"},
	// The third argument is a CUmemAllocationProp; its location, a type and a device, is at byte 8.
	{name: "cuMemCreate", does: physicalAlloc, addr: "8@%rdi", out: true, size: "8@%rsi",
		device: "-4@12(%rdx)"},
	{name: "cuMemRelease", does: physicalFree, addr: "8@%rdi"},
	{name: "cuMemMap", does: driverMap, addr: "8@%rdi", size: "8@%rsi"},
	{name: "cuMemUnmap", does: driverUnmap, addr: "8@%rdi", size: "8@%rsi"},
	{name: "cuMemHostAlloc", does: pinnedAlloc, addr: "8@%rdi", out: true, size: "8@%rsi"},
	{name: "cuMemAllocHost_v2", does: pinnedAlloc, addr: "8@%rdi", out: true, size: "8@%rsi"},
	{name: "cuMemFreeHost", does: pinnedFree, addr: "8@%rdi"},
}
