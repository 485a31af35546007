package timelinetest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// script is the tiny text form in which tests write traces, one statement a line, # begins a comment:
//
//	gpu 0 [capacity]                        the device of the lines below; cpu, host and arena likewise
//	clock none                              the source has no clock
//	stack NAME func file:line < func file:line ...      innermost frame first
//	tick NS                                 time that every event takes (default 1000)
//	at NS                                   sets the time
//	seg ADDR SIZE [small] [pool=N] [stream=N]           the driver gives a segment
//	unseg ADDR SIZE                         the segment goes back to the driver
//	+ BLOCK SIZE [STACK] [addr=ADDR] [stream=N] [cat=NAME]    an allocation
//	- BLOCK                                 its free, requested and completed
//	-? BLOCK                                its free, requested only
//	oom SIZE FREE [STACK] [stream=N] [pool=N]           a request that failed; pool=0 is the default pool
//	snapshot
//	mark iteration|annotation|forward|backward|optimizer START END NAME
//	rank N WORLD
//	setting KEY JSON                        a setting of the allocator
//	empty                                   the final state is known and holds the live blocks:
//	                                        the recording is complete
//	repeat N                                the lines up to the matching end, N times; $i counts from 0
//	end
//
// Sizes and addresses take k, m and g (binary); BLOCK names may be reused once free.
type script struct {
	b      *traces.Builder
	dev    traces.DeviceID
	now    int64
	tick   int64
	next   uint64
	stacks map[string]traces.StackID
	blocks map[string]traces.Event
	segs   []traces.Segment
	final  bool
}

func newScript() *script {
	s := &script{b: traces.NewBuilder(), tick: 1000, next: 0x7f0000000000,
		stacks: map[string]traces.StackID{"": traces.NoStack}, blocks: map[string]traces.Event{}}
	s.dev = s.b.Device(traces.DeviceGPU, 0)
	s.b.T.Source = traces.Source{Format: "script", Path: "script"}
	return s
}

// Script runs a script and builds its timeline.
func Script(t testing.TB, text string) *timeline.Timeline {
	t.Helper()
	s := newScript()
	if err := s.run(strings.Split(text, "\n")); err != nil {
		t.Fatalf("script: %v", err)
	}
	s.finish()
	tl, err := timeline.Build(context.Background(), s.b.Finish(), nil)
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	return tl
}

func (s *script) run(lines []string) error {
	for i := 0; i < len(lines); i++ {
		f := strings.Fields(strings.SplitN(lines[i], "#", 2)[0])
		if strings.HasPrefix(lines[i], "mark") || strings.HasPrefix(lines[i], "stack") {
			f = strings.Fields(lines[i])
		}
		if len(f) == 0 {
			continue
		}
		if f[0] == "repeat" {
			depth, end := 1, i+1
			for ; end < len(lines); end++ {
				switch w := strings.Fields(lines[end] + " ."); w[0] {
				case "repeat":
					depth++
				case "end":
					depth--
				}
				if depth == 0 {
					break
				}
			}
			n, err := strconv.Atoi(f[1])
			if err != nil {
				return err
			}
			for k := range n {
				body := make([]string, 0, end-i)
				for _, l := range lines[i+1 : end] {
					body = append(body, strings.ReplaceAll(l, "$i", strconv.Itoa(k)))
				}
				if err := s.run(body); err != nil {
					return err
				}
			}
			i = end
			continue
		}
		if err := s.statement(f); err != nil {
			return fmt.Errorf("%q: %w", lines[i], err)
		}
	}
	return nil
}

func (s *script) statement(f []string) error {
	opt := s.options(f)
	switch f[0] {
	case "gpu", "cpu", "host", "arena":
		kind := map[string]traces.DeviceKind{"gpu": traces.DeviceGPU, "cpu": traces.DeviceCPU,
			"host": traces.DeviceHost, "arena": traces.DeviceArena}[f[0]]
		ordinal, _ := strconv.Atoi(f[1])
		if s.b.T.Events.Len() == 0 && len(s.b.T.Devices) == 1 {
			old := s.b.T.Devices[0]
			if old.Kind != kind || old.Ordinal != ordinal { // drop the unused default device
				path := s.b.T.Source
				s.b = traces.NewBuilder()
				s.b.T.Source = path
			}
		}
		s.dev = s.b.Device(kind, ordinal)
		if len(f) > 2 {
			s.b.T.Devices[s.dev].TotalBytes = size(f[2])
		}
	case "clock":
		s.b.T.Clock.HasTime = false
	case "tick":
		s.tick = size(f[1])
	case "at":
		s.now = size(f[1])
	case "rank":
		s.b.T.Process.Rank = maybe.NonNegative(size(f[1]))
		s.b.T.Process.WorldSize = maybe.NonNegative(size(f[2]))
	case "setting":
		s.b.T.Settings = append(s.b.T.Settings, traces.Setting{Key: f[1], Value: strings.Join(f[2:], " ")})
	case "stack":
		s.stack(f[1], strings.Join(f[2:], " "))
	case "seg":
		s.emit(traces.Event{Action: traces.SegmentAlloc, Addr: uint64(size(f[1])), Size: size(f[2]),
			Stack: traces.NoStack, Stream: opt.stream})
		s.segs = append(s.segs, traces.Segment{Address: uint64(size(f[1])), TotalSize: size(f[2]),
			Small: opt.small, Pool: opt.pool,
			HasPool: opt.pool != traces.Pool{}, Stream: opt.stream, Device: s.dev, Stack: traces.NoStack})
	case "unseg":
		s.emit(traces.Event{Action: traces.SegmentFree, Addr: uint64(size(f[1])), Size: size(f[2]),
			Stack: traces.NoStack})
	case "+":
		return s.alloc(f, opt)
	case "-", "-?":
		ev, ok := s.blocks[f[1]]
		if !ok {
			return fmt.Errorf("no block %s", f[1])
		}
		ev.Action, ev.Detail = traces.FreeRequested, 0
		s.emit(ev)
		if f[0] == "-" {
			ev.Action = traces.FreeCompleted
			s.now -= s.tick
			s.emit(ev)
			delete(s.blocks, f[1])
		}
	case "oom":
		st := traces.NoStack
		if len(f) > 3 && !strings.Contains(f[3], "=") {
			st = s.stacks[f[3]]
		}
		ev := traces.Event{Action: traces.OOM, Size: size(f[1]), Addr: uint64(size(f[2])), Stack: st,
			Stream: opt.stream}
		if opt.hasPool {
			ev.Detail = s.b.Detail(traces.Detail{Pool: opt.pool, HasPool: true, ForwardStack: traces.NoStack})
		}
		s.emit(ev)
	case "snapshot":
		s.emit(traces.Event{Action: traces.Snapshot, Stack: traces.NoStack})
	case "mark":
		return s.mark(f)
	case "empty":
		s.final = true
	default:
		return fmt.Errorf("unknown statement")
	}
	return nil
}

func (s *script) alloc(f []string, opt scriptOptions) error {
	if _, ok := s.blocks[f[1]]; ok {
		return fmt.Errorf("block %s is live", f[1])
	}
	ev := traces.Event{Action: traces.Alloc, Addr: s.next, Size: size(f[2]), Stack: traces.NoStack,
		Stream: opt.stream}
	if opt.addr != 0 {
		ev.Addr = opt.addr
	} else {
		s.next += uint64(torchalloc.Rounded(ev.Size))
	}
	if len(f) > 3 && !strings.Contains(f[3], "=") {
		st, ok := s.stacks[f[3]]
		if !ok {
			return fmt.Errorf("no stack %s", f[3])
		}
		ev.Stack = st
	}
	if opt.category != "" {
		ev.Detail = s.b.Detail(traces.Detail{Category: s.b.String(opt.category),
			ForwardStack: traces.NoStack})
	}
	s.emit(ev)
	s.blocks[f[1]] = ev
	return nil
}

func (s *script) mark(f []string) error {
	m := traces.Mark{Start: size(f[2]), End: size(f[3]), Name: s.b.String(strings.Join(f[4:], " ")),
		Device: s.dev, Kind: traces.MarkPhase}
	switch f[1] {
	case "iteration":
		m.Kind = traces.MarkIteration
	case "annotation":
		m.Kind = traces.MarkAnnotation
	case "forward":
		m.Phase = traces.PhaseForward
	case "backward":
		m.Phase = traces.PhaseBackward
	case "optimizer":
		m.Phase = traces.PhaseOptimizer
	default:
		return fmt.Errorf("unknown mark")
	}
	s.b.T.Marks = append(s.b.T.Marks, m)
	return nil
}

func (s *script) emit(e traces.Event) {
	s.now += s.tick
	e.Time, e.Device = s.now, s.dev
	s.b.Event(e)
}

func (s *script) stack(name, text string) {
	var ids []traces.FrameID
	for _, part := range strings.Split(text, " < ") {
		f := strings.Fields(part)
		if len(f) == 0 {
			continue
		}
		fr := traces.Frame{Func: s.b.String(f[0])}
		if len(f) > 1 {
			file, line, _ := strings.Cut(f[1], ":")
			n, _ := strconv.Atoi(line)
			fr.File, fr.Line = s.b.String(file), int32(n)
		}
		ids = append(ids, s.b.Frame(fr))
	}
	s.stacks[name] = s.b.Stack(ids)
}

// finish writes the final state that the events lead to, if the script asked for it: each segment tiled by
// its live blocks.
func (s *script) finish() {
	if !s.final {
		return
	}
	st := &s.b.T.Final
	st.Known = true
	for _, g := range s.segs {
		g.FirstBlock = int32(len(st.Blocks))
		at, end := g.Address, g.Address+uint64(g.TotalSize)
		for at < end {
			next, found := end, traces.Event{}
			for _, b := range s.blocks {
				if b.Addr >= at && b.Addr < next {
					next, found = b.Addr, b
				}
			}
			if next > at {
				st.Blocks = append(st.Blocks, traces.Block{Address: at, Size: int64(next - at),
					Requested: maybe.Known(0), Stack: traces.NoStack, Count: 1})
				at = next
			}
			if next < end {
				n := torchalloc.Rounded(found.Size)
				st.Blocks = append(st.Blocks, traces.Block{Address: at, Size: n,
					Requested: maybe.Known(found.Size), Stack: found.Stack, Count: 1,
					State: traces.BlockAllocated})
				g.AllocatedSize += n
				g.ActiveSize += n
				g.Wanted += found.Size
				at += uint64(n)
			}
		}
		g.EndBlock = int32(len(st.Blocks))
		st.Segments = append(st.Segments, g)
	}
}

type scriptOptions struct {
	addr     uint64
	stream   traces.StreamID
	pool     traces.Pool
	hasPool  bool
	small    bool
	category string
}

func (s *script) options(f []string) (o scriptOptions) {
	for _, w := range f[1:] {
		k, v, ok := strings.Cut(w, "=")
		switch {
		case w == "small":
			o.small = true
		case !ok:
		case k == "addr":
			o.addr = uint64(size(v))
		case k == "stream":
			o.stream = s.b.Stream(uint64(size(v)))
		case k == "pool":
			o.pool, o.hasPool = traces.Pool{First: size(v)}, true
		case k == "cat":
			o.category = v
		}
	}
	return o
}

// size reads a number with an optional k, m or g; hexadecimal with 0x.
func size(s string) int64 {
	shift := 0
	switch {
	case strings.HasPrefix(s, "0x"):
	case strings.HasSuffix(s, "k"):
		shift = 10
	case strings.HasSuffix(s, "m"):
		shift = 20
	case strings.HasSuffix(s, "g"):
		shift = 30
	}
	if shift > 0 {
		v, err := strconv.ParseFloat(s[:len(s)-1], 64)
		if err != nil {
			panic(err)
		}
		return int64(v * float64(int64(1)<<shift))
	}
	v, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		panic(err)
	}
	return v
}
