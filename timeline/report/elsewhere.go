package report

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
)

// Memory also runs out where PyTorch's allocator does not see it: in the driver, in a library, on the host,
// in another framework. Those messages have few figures or none, and people take them for PyTorch's: they
// make the batch smaller when DataLoader workers have filled the host. So for each, the report says whose
// memory it was, what usually takes it, and what to do. If a log has several, the last one counts; but
// PyTorch's own comes before all of these, because it has figures.
//
// Rejected: guessing from exit codes alone, which logs rarely have; reading all of XLA's buffer assignment,
// for which there is a reader of its own (traces/xla).
//
// Sources: the wordings are in PyTorch's c10/core/impl/alloc_cpu.cpp, aten/src/ATen/cuda/Exceptions.h,
// aten/src/ATen/mps/MPSAllocator.mm and torch/utils/data/_utils/signal_handling.py, in NCCL's checks of CUDA
// calls, XLA's BFC allocator, Triton's launcher and vLLM's start; the default sizes in NCCL's environment
// variables and in JAX's page on GPU memory.

// elsewhere is a message of memory that ran out outside of PyTorch's allocator for CUDA.
type elsewhere struct {
	kind string
	// words are what lines are searched for first, ten times faster: each line that find matches has one.
	words []string
	find  *regexp.Regexp // its first groups are an amount, if it has any: bytes, or a number and a unit
	// cause has a %s for the amount if find has groups; fix is what to do.
	cause, fix string
	// gpu says that it was a GPU's memory; watch, that gmemtop run shows what takes it.
	gpu, watch bool
}

const (
	leaveRoom = "Type nvidia-smi. If another process holds the GPU, end it or choose another GPU with " +
		"CUDA_VISIBLE_DEVICES. If this one does, leave room beside PyTorch's allocator: " +
		"torch.cuda.set_per_process_memory_fraction(0.9), or a smaller batch."
	hostMemory = "free -h shows what the host has; a container or Slurm's --mem may allow less. Look for " +
		"data that is read whole, DataLoader workers that each hold a copy of it, pinned memory, and " +
		"checkpoints loaded to the CPU."
)

var allElsewhere = []elsewhere{
	{kind: "driver", words: []string{"out of memory", "cudaErrorMemory", "OUT_OF_MEMORY"},
		gpu: true, watch: true, find: regexp.MustCompile(
			`(?:CUDA|HIP) error: out of memory|cuda runtime error \(2\) ?: out of memory|` +
				`cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY`),
		cause: "The GPU was full when something other than PyTorch's allocator asked for memory: the " +
			"driver, for a context or a kernel, or a library.",
		fix: leaveRoom + " CUDA reports errors late, so the traceback may end at another line."},
	{kind: "cuda_library", words: []string{"_FAILED", "_NOT_INITIALIZED"},
		gpu: true, watch: true, find: regexp.MustCompile(
			`CU(?:BLAS|SOLVER|SPARSE|FFT|RAND)_(?:STATUS_)?(?:ALLOC(?:ATION)?_FAILED|NOT_INITIALIZED)`),
		cause: "A CUDA library could not start: usually the GPU had no memory left for its handle and " +
			"workspace.",
		fix: leaveRoom + " If the GPU has room, look for an index out of range, such as a label: " +
			"CUDA_LAUNCH_BLOCKING=1 shows where."},
	{kind: "cudnn", words: []string{"CUDNN_STATUS"},
		gpu: true, watch: true, find: regexp.MustCompile(
			`CUDNN_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED|INTERNAL_ERROR_(?:HOST|DEVICE)_ALLOCATION_FAILED)`),
		cause: "cuDNN could not start: usually the GPU had no memory left for it. A driver too old for " +
			"this CUDA gives the same message.",
		fix: leaveRoom},
	{kind: "nccl", words: []string{"out of memory"},
		gpu: true, watch: true, find: regexp.MustCompile(
			`NCCL WARN .*out of memory|Cuda failure (?:2 )?'out of memory'`),
		cause: "NCCL could not get its buffers: PyTorch's allocator had left it no memory on the GPU.",
		fix: "Leave it some: torch.cuda.set_per_process_memory_fraction(0.9), or a smaller batch. " +
			"NCCL_BUFFSIZE=2097152 halves its buffers."},
	{kind: "host", words: []string{"DefaultCPUAllocator"},
		watch: true, find: regexp.MustCompile(
			`DefaultCPUAllocator: (?:can't allocate|not enough) memory: you tried to allocate ` +
				`([0-9]+) bytes`),
		cause: "The host's memory ran out, not a GPU's: PyTorch asked for %s of it.", fix: hostMemory},
	{kind: "host", words: []string{"_ArrayMemoryError"},
		watch: true, find: regexp.MustCompile(`_ArrayMemoryError: Unable to allocate ` + amount),
		cause: "The host's memory ran out, not a GPU's: NumPy asked for %s of it.", fix: hostMemory},
	{kind: "host_limit", words: []string{"oom", "Killed process", "out of memory", "OOM"},
		watch: true, find: regexp.MustCompile(
			`oom_kill event|oom-kill:|Out of memory: Killed process|Memory cgroup out of memory|` +
				`\bOOMKilled\b|\bOOM Killed\b`),
		cause: "The kernel killed the job because the host's memory, or what the job may use of it, was " +
			"used up. It was not a GPU's memory.",
		fix: hostMemory},
	{kind: "killed", words: []string{"Killed", "exitcode", "SIGKILL", " 137"},
		watch: true, find: regexp.MustCompile(
			`^Killed\s*$|: line [0-9]+: +[0-9]+ Killed |killed by signal: Killed|exitcode *: -9\b|` +
				`Signal 9 \(SIGKILL\)|Signals\.SIGKILL|terminated with signal SIGKILL|` +
				`exit(?:ed with)? (?:code|status) 137\b`),
		cause: "Something killed the job with SIGKILL. Mostly that is the kernel, because the host's " +
			"memory, or what the job may use of it, was used up. It was not a GPU's memory.",
		fix: "sudo dmesg | grep -i 'killed process' shows whether the kernel did it. " + hostMemory},
	{kind: "shared_memory", words: []string{"shared memory"},
		find: regexp.MustCompile(
			`workers are out of shared memory|insufficient shared memory \(shm\)`),
		cause: "The host's shared memory ran out: DataLoader workers hand over their batches in /dev/shm.",
		fix: "Give the container more: docker run --shm-size=16g, or --ipc=host. In Kubernetes, mount an " +
			"emptyDir with medium: Memory at /dev/shm. num_workers=0 does not use it."},
	{kind: "jax", words: []string{"xhausted", "EXHAUSTED"},
		gpu: true, find: regexp.MustCompile(
			`(?i:resource.exhausted): (?:Out of memory (?:while trying to allocate|allocating)|` +
				`Failed to allocate request for) ([0-9]+(?:\.[0-9]+)?) ?(bytes|[KMGT]iB)`),
		cause: "JAX ran out of memory on the device: XLA asked for %s.",
		fix: "XLA takes three quarters of a GPU by default: XLA_PYTHON_CLIENT_MEM_FRACTION=0.9 lets it " +
			"take more. jax.profiler.save_device_memory_profile(\"memory.prof\"), called before it " +
			"fails, writes what gmemtop memory.prof shows."},
	{kind: "mps", words: []string{"MPS backend"},
		gpu: true, find: regexp.MustCompile(
			`MPS backend out of memory \(.*\)\. Tried to allocate ([0-9]+(?:\.[0-9]+)?) (bytes|[KMGT]i?B)`),
		cause: "The Mac's GPU may not take more memory: PyTorch asked for %s.",
		fix: "A smaller batch or a shorter sequence needs less. PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 " +
			"lifts the limit, and the Mac may then swap or stop."},
	{kind: "triton", words: []string{"shared memory"},
		find: regexp.MustCompile(
			`out of resource: shared memory, Required: ([0-9]+), Hardware limit: [0-9]+`),
		cause: "The GPU's memory is not the problem: a Triton kernel needs %s of shared memory in one " +
			"multiprocessor, more than this GPU has.",
		fix: "Smaller blocks or fewer num_stages in the kernel's configuration need less."},
	{kind: "vllm_cache", words: []string{"cache blocks"},
		gpu: true, find: regexp.MustCompile(`No available memory for the cache blocks`),
		cause: "vLLM had no memory left for its key-value cache.",
		fix: "Raise gpu_memory_utilization, or lower max_model_len. Beside a training, make the training " +
			"smaller or let vLLM sleep while it trains."},
	{kind: "vllm_start", words: []string{"desired GPU memory"},
		gpu: true, find: regexp.MustCompile(
			`Free memory on device .* is less than desired GPU memory utilization`),
		cause: "vLLM wants a larger share of the GPU than is free.",
		fix:   "Lower gpu_memory_utilization, or end what holds the GPU: nvidia-smi shows it."},
}

// parseElsewhere finds a message of memory that ran out elsewhere in a line of text.
func parseElsewhere(line string) (m Message, ok bool) {
	in := func(word string) bool { return strings.Contains(line, word) }
	for i := range allElsewhere {
		e := &allElsewhere[i]
		if !slices.ContainsFunc(e.words, in) {
			continue
		}
		f := e.find.FindStringSubmatch(line)
		if f == nil {
			continue
		}
		m = Message{SchemaVersion: SchemaVersion, Found: true, Kind: e.kind, elsewhere: e}
		switch len(f) {
		case 2:
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				m.Tried = known(n)
			}
		case 3:
			m.Tried = known(bytesOf(f[1], f[2]))
		}
		return m, true
	}
	return m, false
}

// Killed returns the message of a job that SIGKILL ended.
func Killed() Message {
	m, _ := parseElsewhere("Killed")
	return m
}

// OnGPU reports whether it was a GPU's memory that ran out.
func (m *Message) OnGPU() bool { return m.elsewhere == nil || m.elsewhere.gpu }

// sentences return the cause and what to do.
func (e *elsewhere) sentences(m *Message, u timeline.Units) (cause, fix string) {
	cause = e.cause
	if e.find.NumSubexp() > 0 {
		asked := "more"
		if m.Tried != nil {
			asked = u.Bytes(*m.Tried)
		}
		cause = fmt.Sprintf(cause, asked)
	}
	return cause, e.fix
}

// print prints the cause and what shows more.
func (e *elsewhere) print(m *Message, p *printer, o Options) {
	cause, fix := e.sentences(m, o.Units)
	p.line("%s %s", cause, fix)
	if m.RaisedCode != "" {
		p.line("")
		p.line("the traceback ends at %s", m.RaisedAt)
		p.command("  ", m.RaisedCode)
	}
	if e.watch {
		p.line("")
		p.line("what shows it, step by step")
		p.command("  ", "gmemtop run -- python train.py")
	}
}
