package timelinetest

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// The text form of a trace, for tests. A line is one of
//
//	[time] action addr size [sN] [stack=NAME] [cat=NAME] [name=NAME]
//	                                                        an event of gpu 0; time in ns, else last + 1
//	stack NAME: func file:line | func file:line ...         a stack, innermost first
//	final addr size [sN] [expandable] [pool=1,0]: state addr size requested [stack=NAME] | ...
//	final                                                   a known final state without segments
//	setting key json
//	counter name value                                      a sample after the last event
//	op NAME PHASE [in=MODULE] [r=ADDR,ADDR] [w=ADDR]        an op after the last event and what it touches
//	device kind                                             gpu, cpu, host or arena, before all else
//	# comment
type textTrace struct {
	b      *traces.Builder
	t      testing.TB
	device traces.DeviceID
	stacks map[string]traces.StackID
	now    int64
}

// parse reads the text form.
func parse(t testing.TB, text string) *traces.Trace {
	t.Helper()
	p := textTrace{b: traces.NewBuilder(), t: t, stacks: map[string]traces.StackID{"": traces.NoStack},
		now: -1}
	sc := bufio.NewScanner(strings.NewReader(text))
	kind := traces.DeviceGPU
	for sc.Scan() {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if name, ok := strings.CutPrefix(line, "device "); ok {
			for k := traces.DeviceGPU; k <= traces.DeviceArena; k++ {
				if k.String() == name {
					kind = k
				}
			}
			continue
		}
		p.device = p.b.Device(kind, 0)
		p.line(line)
	}
	p.b.Device(kind, 0)
	return p.b.Finish()
}

func (p *textTrace) line(line string) {
	p.t.Helper()
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "stack":
		p.stack(rest)
	case "final":
		p.final(rest)
	case "setting":
		key, value, _ := strings.Cut(rest, " ")
		p.b.T.Settings = append(p.b.T.Settings, traces.Setting{Key: key, Value: value})
	case "counter":
		p.counter(strings.Fields(rest))
	case "op":
		p.op(strings.Fields(rest))
	default:
		p.event(strings.Fields(line))
	}
}

func (p *textTrace) stack(s string) {
	name, frames, _ := strings.Cut(s, ":")
	var ids []traces.FrameID
	for _, f := range strings.Split(frames, "|") {
		f = strings.TrimSpace(f)
		i := strings.LastIndexByte(f, ' ')
		if i < 0 || !strings.ContainsAny(f[i:], ".?") {
			ids = append(ids, p.b.Frame(traces.Frame{Func: p.b.String(f)}))
			continue
		}
		file, n := f[i+1:], 0
		if c := strings.LastIndexByte(file, ':'); c > 0 {
			n, _ = strconv.Atoi(file[c+1:])
			file = file[:c]
		}
		ids = append(ids, p.b.Frame(traces.Frame{Func: p.b.String(f[:i]), File: p.b.String(file),
			Line: int32(n)}))
	}
	p.stacks[name] = p.b.Stack(ids)
}

func (p *textTrace) counter(words []string) {
	name := p.b.String(map[string]string{"allocated": traces.CounterAllocated,
		"reserved": traces.CounterReserved}[words[0]])
	cs := &p.b.T.Counters
	at := -1
	for i := range *cs {
		if (*cs)[i].Name == name {
			at = i
		}
	}
	if at < 0 {
		at = len(*cs)
		*cs = append(*cs, traces.Counter{Name: name, Device: p.device})
	}
	c := &(*cs)[at]
	c.Time, c.Value = append(c.Time, p.now), append(c.Value, p.number(words[1]))
	c.Event = append(c.Event, int32(p.b.T.Events.Len()-1))
}

func (p *textTrace) op(words []string) {
	phases := map[string]traces.Phase{"forward": traces.PhaseForward, "backward": traces.PhaseBackward,
		"optimizer": traces.PhaseOptimizer}
	op := traces.Op{Start: p.now, Duration: 1, Name: p.b.String(words[0]), Phase: phases[words[1]],
		Stack: traces.NoStack, Parent: traces.NoOp}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		mode := map[string]traces.AccessMode{"r": traces.Read, "w": traces.Write, "m": traces.Mutate}[key]
		if key == "in" {
			op.Module = p.b.String(value)
			continue
		}
		for _, addr := range strings.Split(value, ",") {
			p.b.T.Accesses = append(p.b.T.Accesses,
				traces.Access{Time: p.now, Addr: uint64(p.number(addr)), Size: 1, Mode: mode,
					Op: traces.OpID(len(p.b.T.Ops)), Event: int32(p.b.T.Events.Len()), Device: p.device})
		}
	}
	p.b.T.Ops = append(p.b.T.Ops, op)
}

func (p *textTrace) number(s string) int64 {
	p.t.Helper()
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		if n, err = timeline.ParseBytes(s); err != nil {
			p.t.Fatal(err)
		}
	}
	return n
}

// options reads the optional words at the end of a line.
func (p *textTrace) options(words []string) (stack traces.StackID, stream traces.StreamID, d traces.Detail,
	expandable bool) {
	p.t.Helper()
	stack, d.ForwardStack = traces.NoStack, traces.NoStack
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch {
		case key == "stack":
			id, ok := p.stacks[value]
			if !ok {
				p.t.Fatalf("no stack %q", value)
			}
			stack = id
		case key == "name":
			d.UserMetadata = p.b.String(value)
		case key == "cat":
			d.Category = p.b.String(value)
		case key == "pool":
			d.HasPool = true
			if _, err := fmt.Sscanf(value, "%d,%d", &d.Pool.First, &d.Pool.Second); err != nil {
				p.t.Fatal(err)
			}
		case key == "expandable":
			expandable = true
		case key[0] == 's':
			stream = p.b.Stream(uint64(p.number(key[1:])))
		default:
			p.t.Fatalf("unknown word %q", w)
		}
	}
	return stack, stream, d, expandable
}

func (p *textTrace) event(words []string) {
	p.t.Helper()
	if n, err := strconv.ParseInt(words[0], 10, 64); err == nil {
		p.now, words = n, words[1:]
	} else {
		p.now++
	}
	e := traces.Event{Time: p.now, Action: traces.ParseAction(words[0]), Device: p.device}
	if e.Action == traces.ActionUnknown {
		p.t.Fatalf("unknown action %q", words[0])
	}
	if len(words) > 2 {
		e.Addr, e.Size = uint64(p.number(words[1])), p.number(words[2])
	}
	var d traces.Detail
	e.Stack, e.Stream, d, _ = p.options(words[min(3, len(words)):])
	e.Detail = p.b.Detail(d)
	p.b.Event(e)
}

func (p *textTrace) final(s string) {
	p.t.Helper()
	st := &p.b.T.Final
	st.Known = true
	if s == "" {
		return
	}
	head, blocks, _ := strings.Cut(s, ":")
	words := strings.Fields(head)
	seg := traces.Segment{
		Address: uint64(p.number(words[0])), TotalSize: p.number(words[1]), Device: p.device,
		FirstBlock: int32(len(st.Blocks)),
	}
	var d traces.Detail
	seg.Stack, seg.Stream, d, seg.Expandable = p.options(words[2:])
	seg.Pool, seg.HasPool = d.Pool, d.HasPool
	for _, b := range strings.Split(blocks, "|") {
		w := strings.Fields(b)
		if len(w) == 0 {
			continue
		}
		blk := traces.Block{Address: uint64(p.number(w[1])), Size: p.number(w[2]), Count: 1}
		switch w[0] {
		case "active":
			blk.State = traces.BlockAllocated
		case "pending":
			blk.State = traces.BlockPendingFree
		}
		if len(w) > 3 {
			blk.Requested = maybe.Known(p.number(w[3]))
		}
		blk.Stack, _, _, _ = p.options(w[min(4, len(w)):])
		if blk.State == traces.BlockAllocated {
			seg.AllocatedSize += blk.Size
		}
		if blk.State != traces.BlockInactive {
			seg.ActiveSize += blk.Size
		}
		st.Blocks = append(st.Blocks, blk)
	}
	seg.EndBlock = int32(len(st.Blocks))
	st.Segments = append(st.Segments, seg)
}

// Text returns the timeline of a text.
func Text(t testing.TB, text string) *timeline.Timeline {
	t.Helper()
	tl, err := timeline.Build(context.Background(), parse(t, text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}
