// Package nvml reads devices and the processes on them through NVIDIA's management library.
//
// # What it reads, and how much of it to believe
//
// NVML is the one witness that sees a whole GPU: every process's memory, the driver's own share, and what the
// hardware is doing. It is also the least even of interfaces: a figure may be refused by the driver's
// version, the product, the operating system, the container, MIG mode or the caller's rights, each figure for
// a reason of its own. So every number here is a [Figure], which is either known or not; none is ever 0 for
// want of a better value, and NVML's all-ones "not available" is not taken for a size. Why a figure is
// unknown stands beside it in [Reading.Absent].
//
// # The traps of the binding
//
// go-nvml binds to the library lazily: a call of any function before the library is loaded, or of one that an
// older driver's library does not export, ends the process in the dynamic linker ("symbol lookup error"),
// which no recover catches. Hence [Open] initialises first and hands out a [Library] only then, and every
// call names the symbol it needs, which is looked up beforehand: an absent one is an unknown figure. Its
// functions need cgo; without it [Open] returns an error that says so. A library that was linked with
// immediate binding (-z now, LD_BIND_NOW) does not start at all.
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
// pools), the process's CUDA context, other processes and a remainder that is shown as such. It is arithmetic
// over figures and knows of no library.
//
// Source: NVIDIA, NVML API Reference (nvmlMemory_v2_t, nvmlProcessInfo_t, nvmlDeviceGetPcieThroughput,
// NVML_FI_DEV_NVLINK_*).
package nvml
