package nsys

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// call is a call of the CUDA runtime or driver.
type call struct {
	start  int64
	thread int64
	chain  int64 // its backtrace, -1 for none
	name   string
	frames []traces.FrameID // of the backtrace, innermost first
}

// outOfMemory is cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY.
const outOfMemory = 2

// readCalls reads the calls that memory events name, and those that found no memory.
func (x *reader) readCalls() error {
	x.calls = map[int64]*call{}
	for i := range x.memory {
		if c := x.memory[i].correlation; c >= 0 {
			x.calls[c] = nil
		}
	}
	chains := map[int64][]*call{}
	columns := []string{"correlationId", "start", "nameId", "globalTid", "returnValue", "callchainId"}
	err := x.db.each("CUPTI_ACTIVITY_KIND_RUNTIME", columns, 3, func(r row) {
		id := r.id(0)
		was, wanted := x.calls[id]
		failed := r.int(4) == outOfMemory
		if !wanted && !failed || was != nil || !x.ours(r.id(3)) || !sound(r.int(1), r.int(1)) {
			return
		}
		c := &call{start: r.int(1), thread: r.id(3), chain: r.id(5), name: apiName(x.named(r.int(2)))}
		if failed {
			x.failed = append(x.failed, *c)
			return
		}
		x.calls[id] = c
		if c.chain > 0 {
			chains[c.chain] = append(chains[c.chain], c)
		}
	})
	if err != nil || len(chains) == 0 {
		return err
	}
	return x.readBacktraces(chains)
}

// apiName returns a function's name without the version that CUPTI adds: cudaMalloc for cudaMalloc_v3020.
func apiName(s string) string {
	name, version, ok := cutLast(s, "_v")
	if ok && version != "" && strings.Trim(version, "0123456789") == "" {
		return name
	}
	return s
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// depthFrame is a frame of a backtrace while it is read; depth 0 is the innermost.
type depthFrame struct {
	depth int64
	frame traces.FrameID
}

// readBacktraces reads the frames of the calls' backtraces.
func (x *reader) readBacktraces(calls map[int64][]*call) error {
	found := map[int64][]depthFrame{}
	columns := []string{"id", "symbol", "stackDepth", "module"}
	err := x.db.each("CUDA_CALLCHAINS", columns, 3, func(r row) {
		id := r.int(0)
		if calls[id] == nil || len(found[id]) == maxStack {
			return
		}
		name := x.named(r.int(1))
		if module := x.strings[r.int(3)]; strings.HasPrefix(name, "0x") && module != "" {
			name = module[strings.LastIndexAny(module, `/\`)+1:] // an address differs from run to run
		}
		found[id] = append(found[id], depthFrame{r.int(2), x.b.Frame(traces.Frame{Func: x.b.String(name)})})
	})
	for id, frames := range found {
		slices.SortStableFunc(frames, func(a, b depthFrame) int { return cmp.Compare(a.depth, b.depth) })
		for _, c := range calls[id] {
			for _, f := range frames {
				c.frames = append(c.frames, f.frame)
			}
		}
	}
	return err
}

// maxStack bounds the frames of one stack.
const maxStack = 1000

// stacks returns the stack of each call that memory events name: its backtrace, and outside of it the NVTX
// ranges that were open on its thread; the call's own name where there is neither.
func (x *reader) stacks() map[int64]traces.StackID {
	type place struct {
		id int64
		c  *call
	}
	threads := map[int64][]place{}
	for id, c := range x.calls {
		if c != nil {
			threads[c.thread] = append(threads[c.thread], place{id, c})
		}
	}
	open := x.recurring()
	out := map[int64]traces.StackID{}
	// In order, so that ids do not differ from run to run.
	for _, thread := range slices.Sorted(maps.Keys(threads)) {
		calls := threads[thread]
		slices.SortFunc(calls, func(a, b place) int {
			return cmp.Or(cmp.Compare(a.c.start, b.c.start), cmp.Compare(a.id, b.id))
		})
		ranges := open[thread]
		var in []nvtxRange // the ranges around the call, outermost first
		for _, p := range calls {
			for len(ranges) > 0 && ranges[0].start <= p.c.start {
				in = within(in, ranges[0].start)
				in, ranges = append(in, ranges[0]), ranges[1:]
			}
			in = within(in, p.c.start)
			ids := slices.Clone(p.c.frames)
			for i := len(in) - 1; i >= 0 && len(ids) < maxStack; i-- {
				ids = append(ids, x.b.Frame(traces.Frame{Func: x.b.String(in[i].name)}))
			}
			if len(ids) == 0 {
				ids = append(ids, x.b.Frame(traces.Frame{Func: x.b.String(p.c.name)}))
			}
			out[p.id] = x.b.Stack(ids)
		}
	}
	return out
}

// within returns the ranges that are still open at a time.
func within(in []nvtxRange, at int64) []nvtxRange {
	for len(in) > 0 && in[len(in)-1].end <= at {
		in = in[:len(in)-1]
	}
	return in
}

// recurring returns each thread's push-pop ranges in start order, without those whose names differ only in a
// number and come once each: they count steps, and a frame of each would split every site by step.
func (x *reader) recurring() map[int64][]nvtxRange {
	count, kinds := map[string]int{}, map[string]int{}
	for _, r := range x.ranges {
		if count[r.name]++; count[r.name] == 1 {
			kinds[withoutNumbers(r.name)]++
		}
	}
	threads := map[int64][]nvtxRange{}
	for _, r := range x.ranges {
		if op, is := opName(r.name); is {
			r.name = op
		} else if count[r.name] == 1 && kinds[withoutNumbers(r.name)] > 1 {
			continue
		}
		if r.nested {
			threads[r.thread] = append(threads[r.thread], r)
		}
	}
	for _, ranges := range threads {
		slices.SortStableFunc(ranges, func(a, b nvtxRange) int {
			return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
		})
	}
	return threads
}

// withoutNumbers returns s with every run of digits replaced by one 0.
func withoutNumbers(s string) string {
	var b strings.Builder
	digit := false
	for _, c := range s {
		if was := digit; c >= '0' && c <= '9' {
			if digit = true; was {
				continue
			}
			c = '0'
		} else {
			digit = false
		}
		b.WriteRune(c)
	}
	return b.String()
}
