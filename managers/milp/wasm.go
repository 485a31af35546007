package milp

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// This file is the machine on which HiGHS runs: the nine functions that its WebAssembly build needs from its
// host, and the runtime, compiled once per process. scripts/highs.sh builds it from HiGHS' source with
// Emscripten: exceptions end it, it has no threads and no files, and it exports the functions of
// highs_c_api.h by their names.
//
// Stopping. A function running in WebAssembly cannot be interrupted from outside without paying for checks in
// every loop. But HiGHS itself reads the clock between any two steps of its work, so we stop it there: first
// gently, by a jump in time that exceeds its time limit and makes it return with its best solution; then, if
// it continues for hardStopReads more reads, by a panic that unwinds the instance. Between two reads it
// cannot be stopped; README.md has the longest stretch seen.

//go:embed highs.wasm.zst
var compressedWasm []byte

// wasmVersion is the version of HiGHS in highs.wasm.zst.
const wasmVersion = "1.15.1"

const (
	// virtualLimit is HiGHS' time limit in seconds of the clock lent to it, which the clock passes when it
	// jumps.
	virtualLimit = 1e6
	// tickSeconds is how far the lent clock advances with each read: so little that no number of reads
	// reaches virtualLimit, but not 0, so that HiGHS' rates of work per second stay finite.
	tickSeconds = 1e-9
	// hardStopReads is how many more reads of the clock HiGHS is given to return once the clock has jumped,
	// in which it takes its best solution back through presolve. It took up to 909 in the tests.
	hardStopReads = 1 << 16
)

var (
	errStopped = errors.New("milp: HiGHS did not stop when its time was up")
	errMemory  = errors.New("milp: the model needs more memory than Options.MaxMemory: " +
		"aggregate it or raise the limit")
	errUnsupported = errors.New("milp: HiGHS gave up on the model with an internal exception")
)

// host is the state of one instance as its host functions see it.
type host struct {
	stop      atomic.Bool // set from other goroutines: the clock jumps at its next read
	reads     int64       // of the clock so far
	maxReads  int64       // after this many the clock jumps
	after     int64       // reads since the jump
	maxMemory uint64
	exhausted bool // the instance was refused memory
}

type hostKey struct{}

// seconds reads the clock lent to HiGHS.
func (h *host) seconds() float64 {
	h.reads++
	t := float64(h.reads) * tickSeconds
	if h.after > 0 || h.stop.Load() || h.reads > h.maxReads {
		h.after++
		if h.after > hardStopReads {
			panic(errStopped)
		}
		t += 2 * virtualLimit
	}
	return t
}

// machine is a runtime with the solver compiled and ready to be instantiated.
type machine struct {
	runtime wazero.Runtime
	code    wazero.CompiledModule
	name    string // as reported in Solution.Solver
}

// compile makes the machine, once per process: it holds the compiled code, which every instance shares and
// none can change.
var compile = sync.OnceValues(func() (*machine, error) {
	wasm, err := decompress()
	if err != nil {
		return nil, err
	}
	return newCachedMachine(context.Background(), wasm, cacheDir())
})

// newCachedMachine is newMachine that does without a cache that turns out to be of no use: wazero takes one
// that it cannot write, or that was tampered with, for an error.
func newCachedMachine(ctx context.Context, wasm []byte, dir string) (*machine, error) {
	if dir != "" {
		if m, err := newMachine(ctx, wasm, dir, true); err == nil {
			return m, nil
		}
	}
	return newMachine(ctx, wasm, "", true)
}

// instances limits how many solves run at once, for each needs a processor and may need gigabytes.
var instances = sync.OnceValue(func() chan struct{} {
	return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)))
})

// cacheDir returns where compiled code is kept between runs, or "" if the system names no such place.
func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "gmemtop", "wazero")
}

// decompress returns the solver's WebAssembly.
func decompress() ([]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("milp: decompressing HiGHS: %w", err)
	}
	defer d.Close()
	wasm, err := d.DecodeAll(compressedWasm, nil)
	if err != nil {
		return nil, fmt.Errorf("milp: decompressing HiGHS: %w", err)
	}
	return wasm, nil
}

// newMachine compiles the solver, or takes the compiled code from the cache in dir if dir is not "".
func newMachine(ctx context.Context, wasm []byte, dir string, compiler bool) (*machine, error) {
	m := &machine{name: "HiGHS " + wasmVersion + " (WebAssembly)"}
	config := wazero.NewRuntimeConfigCompiler()
	if !compiler {
		config = wazero.NewRuntimeConfigInterpreter()
	}
	if dir != "" {
		if cache, err := wazero.NewCompilationCacheWithDir(dir); err == nil {
			config = config.WithCompilationCache(cache)
		}
	}
	var err error
	if m.runtime, err = newRuntime(ctx, config); err != nil {
		// The processor has no compiler: an order of magnitude slower, and the name says so.
		m.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
		compiler = false
	}
	if !compiler {
		m.name = "HiGHS " + wasmVersion + " (WebAssembly, interpreted)"
	}
	if err := exportHost(ctx, m.runtime); err != nil {
		return nil, errors.Join(fmt.Errorf("milp: preparing HiGHS: %w", err), m.runtime.Close(ctx))
	}
	ctx = experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0))
	if m.code, err = m.runtime.CompileModule(ctx, wasm); err != nil {
		return nil, errors.Join(fmt.Errorf("milp: compiling HiGHS: %w", err), m.runtime.Close(ctx))
	}
	return m, nil
}

// newRuntime turns wazero's panic on a processor it has no compiler for into an error.
func newRuntime(ctx context.Context, config wazero.RuntimeConfig) (r wazero.Runtime, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("milp: no compiler for %s: %v", runtime.GOARCH, p)
		}
	}()
	return wazero.NewRuntimeWithConfig(ctx, config), nil
}

// wasiBadFile is WASI's error for a file that is not open.
const wasiBadFile = 8

// exportHost defines the functions HiGHS imports. They find their instance's state in the context its exports
// are called with.
func exportHost(ctx context.Context, r wazero.Runtime) error {
	const i32, i64 = api.ValueTypeI32, api.ValueTypeI64
	types := func(t ...api.ValueType) []api.ValueType { return t }
	b := r.NewHostModuleBuilder("wasi_snapshot_preview1")
	def := func(name string, params, results []api.ValueType,
		f func(h *host, mem api.Memory, stack []uint64)) {
		of := func(ctx context.Context, mod api.Module, stack []uint64) {
			f(ctx.Value(hostKey{}).(*host), mod.Memory(), stack)
		}
		b = b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(of), params, results).Export(name)
	}
	def("clock_time_get", types(i32, i64, i32), types(i32), func(h *host, mem api.Memory, stack []uint64) {
		mem.WriteUint64Le(uint32(stack[2]), uint64(h.seconds()*1e9))
		stack[0] = 0
	})
	def("proc_exit", types(i32), nil, func(*host, api.Memory, []uint64) { panic(errUnsupported) })

	// No environment and no files; what HiGHS prints is dropped.
	noFile := func(_ *host, _ api.Memory, stack []uint64) { stack[0] = wasiBadFile }
	def("fd_close", types(i32), types(i32), noFile)
	def("fd_read", types(i32, i32, i32, i32), types(i32), noFile)
	def("fd_seek", types(i32, i64, i32, i32), types(i32), noFile)
	def("fd_write", types(i32, i32, i32, i32), types(i32), func(_ *host, mem api.Memory, stack []uint64) {
		var total uint32
		for k := range uint32(stack[2]) {
			n, _ := mem.ReadUint32Le(uint32(stack[1]) + 8*k + 4)
			total += n
		}
		mem.WriteUint32Le(uint32(stack[3]), total)
		stack[0] = 0
	})
	def("environ_get", types(i32, i32), types(i32), func(_ *host, _ api.Memory, stack []uint64) {
		stack[0] = 0
	})
	def("environ_sizes_get", types(i32, i32), types(i32), func(_ *host, mem api.Memory, stack []uint64) {
		mem.WriteUint32Le(uint32(stack[0]), 0)
		mem.WriteUint32Le(uint32(stack[1]), 0)
		stack[0] = 0
	})
	if _, err := b.Instantiate(ctx); err != nil {
		return err
	}
	b = r.NewHostModuleBuilder("env")
	def("emscripten_notify_memory_growth", types(i32), nil, func(*host, api.Memory, []uint64) {})
	_, err := b.Instantiate(ctx)
	return err
}

// memory is an instance's, as wazero asks for it.
type memory struct {
	host  *host
	bytes []byte
}

// Reallocate enlarges the memory, and its capacity by a fifth or more, so that growing costs linear time
// altogether. It returns nil above the instance's limit, which does not bar what every instance begins with.
func (m *memory) Reallocate(size uint64) []byte {
	if size > m.host.maxMemory && m.bytes != nil {
		m.host.exhausted = true
		return nil
	}
	if have := uint64(cap(m.bytes)); size > have {
		larger := make([]byte, size, max(size, min(have+have/5, m.host.maxMemory)))
		copy(larger, m.bytes)
		m.bytes = larger
	}
	m.bytes = m.bytes[:size]
	return m.bytes
}

// Free does nothing: the collector frees.
func (m *memory) Free() {}

// instance is one running copy of HiGHS. The first failure of a call is kept, and every later call does
// nothing.
type instance struct {
	host
	module api.Module
	ctx    context.Context
	err    error
}

// newInstance starts a copy of HiGHS with at most maxMemory bytes. The caller closes it.
func (m *machine) newInstance(maxMemory int64) (*instance, error) {
	in := &instance{}
	in.maxMemory = uint64(min(maxMemory, 2<<30))
	in.maxReads = math.MaxInt64
	in.ctx = context.WithValue(context.Background(), hostKey{}, &in.host)
	allocate := func(_, _ uint64) experimental.LinearMemory { return &memory{host: &in.host} }
	ctx := experimental.WithMemoryAllocator(in.ctx, experimental.MemoryAllocatorFunc(allocate))
	module, err := m.runtime.InstantiateModule(ctx, m.code,
		wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, fmt.Errorf("milp: starting HiGHS: %w", err)
	}
	in.module = module
	in.call("_initialize") // static constructors
	return in, nil
}

func (in *instance) close() { _ = in.module.Close(in.ctx) }

// call calls an export of HiGHS and returns its result, or 0 if it has none.
func (in *instance) call(name string, args ...uint64) uint64 {
	if in.err != nil {
		return 0
	}
	result, err := in.module.ExportedFunction(name).Call(in.ctx, args...)
	switch {
	case errors.Is(err, errMemory), err != nil && in.exhausted:
		in.err = errMemory
	case errors.Is(err, errStopped):
		in.err = errStopped
	case errors.Is(err, errUnsupported):
		in.err = errUnsupported
	case err != nil:
		in.err = fmt.Errorf("milp: HiGHS crashed: %w", err)
	case len(result) > 0:
		return result[0]
	}
	return 0
}

// alloc returns the address of n bytes of the instance's memory.
func (in *instance) alloc(n int) uint64 {
	p := in.call("malloc", uint64(max(n, 8)))
	if p == 0 && in.err == nil {
		in.err = errMemory
	}
	return p
}

func (in *instance) free(ps ...uint64) {
	for _, p := range ps {
		in.call("free", p)
	}
}

// view returns n bytes of the instance's memory, valid until it next grows, or nil if the call chain has
// failed.
func (in *instance) view(p uint64, n int) []byte {
	if in.err != nil {
		return nil
	}
	b, ok := in.module.Memory().Read(uint32(p), uint32(n))
	if !ok {
		in.err = fmt.Errorf("milp: HiGHS crashed: address %#x out of range", p)
	}
	return b
}

// putFloats copies values, each multiplied by its scale if scale is not nil, into the instance's memory.
func (in *instance) putFloats(values []float64, scale func(i int) float64) uint64 {
	p := in.alloc(8 * len(values))
	b := in.view(p, 8*len(values))
	if b == nil {
		return p
	}
	for i, v := range values {
		if scale != nil {
			v *= scale(i)
		}
		binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(v))
	}
	return p
}

func (in *instance) putInts(values []int32) uint64 {
	p := in.alloc(4 * len(values))
	b := in.view(p, 4*len(values))
	if b == nil {
		return p
	}
	for i, v := range values {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(v))
	}
	return p
}

func (in *instance) putString(s string) uint64 {
	p := in.alloc(len(s) + 1)
	if b := in.view(p, len(s)+1); b != nil {
		copy(b, s)
		b[len(s)] = 0
	}
	return p
}

func (in *instance) floats(p uint64, n int) []float64 {
	b := in.view(p, 8*n)
	if b == nil {
		return nil
	}
	values := make([]float64, n)
	for i := range values {
		values[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return values
}

func (in *instance) ints(p uint64, n int) []int32 {
	b := in.view(p, 4*n)
	if b == nil {
		return nil
	}
	values := make([]int32, n)
	for i := range values {
		values[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return values
}
