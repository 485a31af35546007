package perfetto

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// life is one block's lifetime on a device.
type life struct {
	start, end int64
	size       int64
	addr       uint64
	// the row of its alloc, or of its free if the alloc is older than the trace; -1 for neither
	event       int32
	older, left bool // it lives from before the trace, or to after its end
}

// lifetimes pairs the allocs and frees of a device. A freed block, or one of the final state, that has no
// alloc lives from the start.
func lifetimes(t *traces.Trace, d traces.DeviceID, last int64) []life {
	first, end := t.DeviceEvents(d)
	start := last
	if end > first {
		start = t.Events.Time[first]
	}
	var out []life
	open := map[uint64]int{}
	for i := first; i < end; i++ {
		e := t.Events.At(i)
		switch {
		case e.Action == traces.Alloc:
			open[e.Addr] = len(out)
			out = append(out, life{start: e.Time, end: last, size: e.Size, addr: e.Addr, event: int32(i),
				left: true})
		case e.Action.IsFreeRequest():
			if k, ok := open[e.Addr]; ok {
				out[k].end, out[k].left = max(e.Time, out[k].start), false
				delete(open, e.Addr)
				continue
			}
			out = append(out, life{start: start, end: max(e.Time, start), size: e.Size, addr: e.Addr,
				event: int32(i), older: true})
		}
	}
	if !t.Final.Known {
		return out
	}
	for _, s := range t.Final.Segments {
		if s.Device != d {
			continue
		}
		for _, b := range t.Final.Blocks[s.FirstBlock:s.EndBlock] {
			if _, ok := open[b.Address]; ok || b.State != traces.BlockAllocated {
				continue
			}
			out = append(out, life{start: start, end: last, size: b.Requested.Or(b.Size), addr: b.Address,
				event: -1, older: true, left: true})
		}
	}
	return out
}

// usage writes allocated bytes, and reserved bytes if the final state tells what they began with.
func (p *writer) usage(group track, d traces.DeviceID, lives []life) {
	allocated := int64(0)
	for i := range lives {
		if lives[i].older {
			allocated += lives[i].size
		}
	}
	reserved, known := int64(0), false
	for _, s := range p.t.Final.Segments {
		if s.Device == d {
			reserved, known = reserved+s.TotalSize, true
		}
	}
	first, end := p.t.DeviceEvents(d)
	for i := first; i < end; i++ {
		reserved -= reservedDelta(p.t.Events.At(i))
	}
	a := p.newTrack(group, "allocated", bytesTrack)
	p.count(a, 0, allocated)
	r := track(0)
	if known {
		r = p.newTrack(group, "reserved", bytesTrack)
		p.count(r, 0, reserved)
	}
	for i := first; i < end && !p.cancelled(); i++ {
		e := p.t.Events.At(i)
		switch delta := reservedDelta(e); {
		case e.Action == traces.Alloc:
			allocated += e.Size
			p.count(a, e.Time-p.zero, allocated)
		case e.Action.IsFreeRequest():
			allocated -= e.Size
			p.count(a, e.Time-p.zero, allocated)
		case delta != 0 && known:
			reserved += delta
			p.count(r, e.Time-p.zero, reserved)
		}
	}
}

func reservedDelta(e traces.Event) int64 {
	switch e.Action {
	case traces.SegmentAlloc, traces.SegmentMap:
		return e.Size
	case traces.SegmentFree, traces.SegmentUnmap:
		return -e.Size
	}
	return 0
}

const maxLanes = 256 // of one size class

// blocks writes the lifetimes, a group for each power of two.
func (p *writer) blocks(group track, lives []life) {
	var classes [64][]life
	for _, l := range lives {
		if l.size > 0 {
			k := bits.Len64(uint64(l.size)) - 1
			classes[k] = append(classes[k], l)
		}
	}
	all := track(0)
	for k := len(classes) - 1; k >= 0; k-- {
		if len(classes[k]) == 0 || p.cancelled() {
			continue
		}
		if all == 0 {
			all = p.newTrack(group, "blocks", groupTrack)
		}
		p.class(all, k, classes[k])
	}
}

// class puts the blocks of one size class on lanes, each on the lowest one that is free at its start.
func (p *writer) class(parent track, k int, list []life) {
	slices.SortStableFunc(list, func(a, b life) int { return cmp.Compare(a.start, b.start) })
	at := make([]int32, len(list)) // lane of each block, -1 for none
	free, busy := &lowest{}, &ending{}
	slots := make([]taken, len(list)) // the heap holds pointers: an interface of one costs no allocation
	count, over := int32(0), 0
	for i := range list {
		for busy.Len() > 0 && (*busy)[0].end <= list[i].start {
			heap.Push(free, heap.Pop(busy).(*taken).lane)
		}
		switch {
		case free.Len() > 0:
			at[i] = heap.Pop(free).(int32)
		case count < maxLanes:
			at[i] = count
			count++
		default:
			at[i] = -1
			over++
			continue
		}
		slots[i] = taken{list[i].end, at[i]}
		heap.Push(busy, &slots[i])
	}
	title := fmt.Sprintf("%s and more: %d blocks", sizeText(k), len(list))
	if over > 0 {
		title += fmt.Sprintf(", %d of them not shown", over)
	}
	group := p.newTrack(parent, title, groupTrack)
	lanes := make([]track, count)
	for l := range lanes {
		lanes[l] = p.newTrack(group, sizeText(k), plainTrack)
	}
	order := make([]int32, len(list))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(at[a], at[b]) })
	for _, i := range order {
		if at[i] < 0 {
			continue
		}
		if p.cancelled() {
			return
		}
		p.block(lanes[at[i]], &list[i])
	}
}

func (p *writer) block(on track, l *life) {
	name := "block"
	notes := append(make([]note, 0, 6), note{key: "bytes", number: l.size},
		note{key: "address", number: int64(l.addr), pointer: true})
	if l.event >= 0 {
		d := p.t.DetailOf(int(l.event))
		s := p.stack(p.t.Events.Stack[l.event])
		name = cmp.Or(p.t.Text(d.Category), p.t.Text(d.Op), s.inner, p.t.Text(d.UserMetadata), name)
		if s.id != 0 {
			notes = append(notes, note{key: "stack", id: s.id})
		}
		if d.UserMetadata != 0 {
			notes = append(notes, note{key: "note", text: p.t.Text(d.UserMetadata)})
		}
	}
	if l.older {
		notes = append(notes, note{key: "allocated", text: "before the recording began"})
	}
	if l.left {
		notes = append(notes, note{key: "freed", text: "not before the recording ended"})
	}
	p.event(on, l.start-p.zero, typeBegin, name, notes...)
	p.event(on, l.end-p.zero, typeEnd, "")
}

// stack interns a call stack, one line for each frame, innermost first. The id of no stack is 0.
func (p *writer) stack(id traces.StackID) stack {
	frames := p.t.Stacks.At(id)
	if len(frames) == 0 {
		return stack{}
	}
	if s, ok := p.stacks[id]; ok {
		return s
	}
	var b strings.Builder
	for _, f := range frames {
		fn, file, line := p.t.FrameText(f)
		b.WriteString(fn)
		if file != "" {
			fmt.Fprintf(&b, " (%s:%d)", file, line)
		}
		b.WriteByte('\n')
	}
	text := strings.TrimSuffix(b.String(), "\n")
	inner, _, _ := strings.Cut(text, "\n")
	s := stack{p.intern(p.strings, internedStrings, text), inner}
	p.stacks[id] = s
	return s
}

// sizeText writes 2 to the power of k.
func sizeText(k int) string {
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	return fmt.Sprintf("%d %s", 1<<(k%10), units[k/10])
}

// lowest is a heap of lanes.
type lowest []int32

func (h lowest) Len() int           { return len(h) }
func (h lowest) Less(i, j int) bool { return h[i] < h[j] }
func (h lowest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *lowest) Push(x any)        { *h = append(*h, x.(int32)) }
func (h *lowest) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// taken is a lane that a block occupies until a time.
type taken struct {
	end  int64
	lane int32
}

// ending is a heap of lanes by the time they become free.
type ending []*taken

func (h ending) Len() int { return len(h) }
func (h ending) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].end, h[j].end), cmp.Compare(h[i].lane, h[j].lane)) < 0
}
func (h ending) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *ending) Push(x any)   { *h = append(*h, x.(*taken)) }
func (h *ending) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
