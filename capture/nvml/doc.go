// Package nvml reads devices and the processes on them through NVIDIA's management library.
//
// # What it reads, and how much of it to believe
//
// Only NVML sees a whole GPU: every process's memory, the driver's own share, and what the hardware is doing.
// But not every figure is always available: that depends on the driver, the product, the operating system,
// the container, MIG mode and the caller's rights. So every number here is a [maybe.Int], which is known or
// not: a missing one never reads 0, and NVML's all-ones "not available" never reads as a size.
// [Reading.Absent] says why a figure is unknown.
//
// # The traps of the binding
//
// go-nvml binds to the library lazily: a call of any function before the library is loaded, or of one that an
// older driver's library does not export, ends the process in the dynamic linker ("symbol lookup error"),
// which no recover catches. Hence [Open] initialises first and only then returns a [Library], and every call
// looks up the symbol that it needs beforehand: if it is absent, the figure is unknown. Its functions need
// cgo; without it [Open] returns an error that says so. A library that was linked with immediate binding (-z
// now, LD_BIND_NOW) does not start at all.
//
// # Cost
//
// Reading PCIe throughput takes the driver 20 ms a direction, since it counts for that long. A [Sampler]
// therefore has a goroutine for each device: a slow or hung GPU delays neither the caller nor the other
// devices, and its last reading shows its age.
//
// # Reconciliation
//
// [Reconcile] splits a device's used memory into what PyTorch can account for (tensors, rounding, cache,
// pools), the process's CUDA context, other processes and a remainder that is shown as such. It only does
// arithmetic on figures.
//
// Source: NVIDIA, NVML API Reference (nvmlMemory_v2_t, nvmlProcessInfo_t, nvmlDeviceGetPcieThroughput,
// NVML_FI_DEV_NVLINK_*).
package nvml
