package kineto

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// The raw output of export_memory_timeline (names that end in .raw.json.gz;
// torch/profiler/_memory_profiler.py): a JSON array of [nanoseconds, action, bytes, category]. Actions are 1
// preexisting (at time -1), 2 create, 3 increment_version and 4 destroy. A new version of a tensor is two
// rows, the old version's bytes with a minus and the new one's, which may have another category; it allocates
// nothing. Blocks have no names, so a row that ends or changes one applies to the latest live block of its
// size and category.
//
// The same exporter's other outputs hold sums by category, which have no lifetimes; they are refused.

const timelineFormat = "memory_timeline"

// categories are the exporter's category indices (_CATEGORY_TO_INDEX), as torch.profiler's names in lower
// case.
var categories = [...]string{
	"parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail",
	"unknown",
}

const (
	rowPreexisting = 1
	rowCreate      = 2
	rowVersion     = 3
	rowDestroy     = 4
)

// isTimeline reports whether head begins with an array of an array that begins with a number.
func isTimeline(head []byte) bool {
	c := cursor{b: head}
	for range 2 {
		if c.expect('[') != nil {
			return false
		}
	}
	b, err := c.peek()
	return err == nil && (b == '-' || b >= '0' && b <= '9')
}

var errCoalesced = &traces.UnsupportedError{
	Reason: "this memory timeline holds sums over categories, and no blocks",
	Advice: "export it under a name that ends in .raw.json.gz"}

// row is one element of the raw timeline.
type row struct{ time, action, bytes, category int64 }

func (r *row) parse(c *cursor) error {
	if err := c.expect('['); err != nil {
		return err
	}
	fields := [4]*int64{&r.time, &r.action, &r.bytes, &r.category}
	for i, f := range fields {
		if i > 0 {
			if err := c.expect(','); err != nil {
				return errCoalesced
			}
		}
		raw, err := c.scalar()
		if err != nil {
			return err
		}
		v, ok := integer(raw)
		if !ok {
			return fmt.Errorf("%.40q is not an integer", raw)
		}
		*f = v
	}
	if b, err := c.peek(); err != nil || b != ']' {
		if err != nil {
			return err
		}
		return errCoalesced
	}
	c.i++
	return nil
}

// liveKey identifies the live blocks that a row can mean.
type liveKey struct{ bytes, category int64 }

// timeline collects the raw timeline.
type timeline struct {
	b       *traces.Builder
	live    map[liveKey][]uint64
	next    uint64
	device  traces.DeviceID
	pending *version // the block whose new version's row comes next
}

type version struct {
	addr     uint64
	category int64
}

func readTimeline(s *scanner) (*traces.Trace, error) {
	rows, err := readRows(s)
	if errors.Is(err, errCoalesced) {
		return nil, errCoalesced
	}
	if s.ctx.Err() != nil {
		return nil, s.ctx.Err()
	}
	if len(rows) == 0 {
		return nil, err
	}
	t := &timeline{b: traces.NewBuilder(), live: map[liveKey][]uint64{}, next: 1 << 12}
	t.b.T.Source.Format = timelineFormat
	t.b.T.Source.Tool = "torch.profiler export_memory_timeline"
	t.b.T.Source.SyntheticAddresses = true
	t.b.Lose("addresses_inferred", traces.Info, int64(len(rows)),
		"a memory timeline has no addresses: a row is taken for the latest live block of its size and "+
			"category")
	t.device = t.b.Device(deviceOf(rows), 0)
	zero := startOf(rows)
	t.b.T.Clock = traces.Clock{HasTime: true, Resolution: 1}
	if zero > 1e18 {
		t.b.T.Clock.Epoch = zero
	}
	for _, r := range rows {
		r.time = max(r.time-zero, 0)
		t.add(r)
	}
	if err != nil {
		t.b.Lose("torn_tail", traces.DataLoss, 1,
			"the file is cut or damaged; everything after that place is missing")
	}
	return t.b.Finish(), err
}

func readRows(s *scanner) ([]row, error) {
	s.take()
	var rows []row
	for {
		b, err := s.peek()
		if err != nil {
			return rows, err
		}
		switch {
		case b == ']':
			return sortRows(rows), nil
		case b == 0:
			return sortRows(rows), s.fail("the file ends before the timeline does")
		case b == ',' && len(rows) > 0:
			s.take()
		}
		var r row
		if err := s.parse(r.parse); err != nil {
			if len(rows) == 1 && b == ',' {
				if first, _ := s.peek(); first == '[' && nested(s) {
					return nil, errCoalesced
				}
			}
			return sortRows(rows), err
		}
		rows = append(rows, r)
	}
}

// nested reports whether an array of arrays comes next: the second half of a coalesced timeline of four
// times.
func nested(s *scanner) bool {
	c := cursor{b: s.buf, i: s.pos}
	if c.expect('[') != nil {
		return false
	}
	b, err := c.peek()
	return err == nil && b == '['
}

func sortRows(rows []row) []row {
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.time, b.time) })
	return rows
}

// deviceOf infers the kind of device, which the file does not name: PyTorch's allocators of GPUs give
// multiples of 512 bytes, and that of the CPU gives what was asked for. Preexisting blocks have the sizes of
// their tensors.
func deviceOf(rows []row) traces.DeviceKind {
	for _, r := range rows {
		if r.action == rowCreate && r.bytes%512 != 0 {
			return traces.DeviceCPU
		}
	}
	return traces.DeviceGPU
}

// startOf returns the first real time. Preexisting blocks are at -1 and are shown as alive from the start.
func startOf(rows []row) int64 {
	for _, r := range rows {
		if r.time >= 0 {
			return r.time
		}
	}
	return 0
}

func (t *timeline) add(r row) {
	if r.category < 0 || r.category >= int64(len(categories)) || r.bytes == math.MinInt64 {
		t.b.Lose("rows_unknown", traces.DataLoss, 1,
			"rows of an action or category that this version does not know")
		return
	}
	e := traces.Event{Time: r.time, Size: max(r.bytes, -r.bytes), Stack: traces.NoStack, Device: t.device}
	e.Detail = t.b.Detail(traces.Detail{Category: t.b.String(categories[r.category]),
		ForwardStack: traces.NoStack})
	key := liveKey{e.Size, r.category}
	switch r.action {
	case rowPreexisting, rowCreate:
		e.Action, e.Addr = traces.Alloc, t.next
		t.next += uint64(torchalloc.Rounded(e.Size))
		t.live[key] = append(t.live[key], e.Addr)
		if r.action == rowPreexisting {
			t.b.Lose("blocks_preexisting", traces.Info, 1,
				"blocks older than the recording are shown as allocated at its start")
		}
	case rowDestroy:
		e.Action, e.Addr = traces.Free, t.pop(key)
	case rowVersion:
		t.version(r, key, e)
		return
	default:
		t.b.Lose("rows_unknown", traces.DataLoss, 1,
			"rows of an action or category that this version does not know")
		return
	}
	t.b.Event(e)
}

// version moves a block from one category to another: the row with a minus takes it, the next row puts it
// back, and an Annotate event records a change of category.
func (t *timeline) version(r row, key liveKey, e traces.Event) {
	if r.bytes < 0 {
		t.pending = &version{t.pop(key), r.category}
		return
	}
	was := t.pending
	t.pending = nil
	if was == nil {
		return
	}
	t.live[key] = append(t.live[key], was.addr)
	if was.category != r.category {
		e.Addr, e.Action, e.Size = was.addr, traces.Annotate, 0
		t.b.Event(e)
	}
}

// pop takes the latest live block of the key; a block that was never seen gets an address of its own.
func (t *timeline) pop(key liveKey) uint64 {
	live := t.live[key]
	if len(live) == 0 {
		t.b.Lose("rows_unmatched", traces.DataLoss, 1, "rows about a block that the timeline never showed")
		t.next += 512
		return t.next - 512
	}
	t.live[key] = live[:len(live)-1]
	return live[len(live)-1]
}
