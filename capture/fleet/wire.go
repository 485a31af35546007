package fleet

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// wireVersion is the first byte of a batch, and a field of a hello. A reader refuses others.
const wireVersion = 1

// errWire is wrapped by every error about a message.
var errWire = errors.New("not a message of a gmemtop node")

var errVersion = fmt.Errorf("%w: another version: use the same gmemtop on all nodes", errWire)

// hello says what a node is and how its ranks are. A node sends it regularly and whenever something changes;
// the hub keeps the newest of each node.
type hello struct {
	Version int    `json:"v"`
	Host    string `json:"host"`
	// Ranks are all processes of the node that have stepped, including those that have ended.
	Ranks []rank `json:"ranks"`
	// Counts are those of the node's ring.
	Counts bus.Counts `json:"counts"`
	// Over says that the command has ended, with Code if known.
	Over bool      `json:"over,omitempty"`
	Code maybe.Int `json:"code,omitzero"`
}

// rank is a process of a node.
type rank struct {
	// ID tells the processes of a node apart.
	ID int `json:"id"`
	// Attempt counts from 0 how often this rank has been started again.
	Attempt int `json:"attempt,omitempty"`
	PID     int `json:"pid"`
	// Started is when the process began, in the kernel's ticks since boot; 0 if unknown.
	Started   int64         `json:"started,omitempty"`
	Rank      maybe.Int     `json:"rank,omitzero"`
	LocalRank maybe.Int     `json:"local_rank,omitzero"`
	WorldSize maybe.Int     `json:"world_size,omitzero"`
	Axes      []traces.Axis `json:"axes,omitempty"`
	Argv      []string      `json:"argv,omitempty"`
	Python    string        `json:"python,omitempty"`
	Torch     string        `json:"torch,omitempty"`
	Device    string        `json:"device,omitempty"`
	GPUs      []device      `json:"gpus,omitempty"`
	// First is the index of the first step that the node had of it, unknown before that. Step is the index
	// of its newest one.
	First maybe.Int `json:"first,omitzero"`
	Step  int64     `json:"step"`
	// Dropped is how many steps the node had to drop, and Lost which ones, in order. Where there were many
	// gaps, the spans of Lost hold some that it sent.
	Dropped int64  `json:"dropped,omitempty"`
	Lost    []span `json:"lost,omitempty"`
	// End is how it ended, nil while it runs.
	End *end `json:"end,omitempty"`
}

// span is the steps from index From to index To.
type span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// addStep adds a step that comes after those in the list. Where the list has become too long, its first two
// spans become one.
func addStep(list []span, index int64) []span {
	if n := len(list); n > 0 && index == list[n-1].To+1 {
		list[n-1].To = index
		return list
	}
	if list = append(list, span{index, index}); len(list) > maxLost {
		list[1].From = list[0].From
		list = list[1:]
	}
	return list
}

// before returns how many steps before an index the spans hold.
func before(list []span, index int64) (n int64) {
	for _, s := range list {
		n += max(min(s.To+1, index)-s.From, 0)
	}
	return n
}

type device struct {
	Ordinal int    `json:"ordinal"`
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
}

type end struct {
	Reason      string    `json:"reason"`
	Code        maybe.Int `json:"code,omitzero"`
	Detail      string    `json:"detail,omitempty"`
	OutOfMemory bool      `json:"out_of_memory,omitempty"`
	// Unsent is how many steps a process that was killed had probably not sent. Recovered is how many were
	// read from the memory that it left behind: then none is missing unnoticed.
	Unsent    int64     `json:"unsent,omitempty"`
	Recovered maybe.Int `json:"recovered,omitzero"`
}

// Limits of what a hello repeats.
const (
	maxArgv   = 32
	maxText   = 500
	maxRanks  = 512 // of a node
	maxDetail = 4000
	maxLost   = 8 // of a rank
)

func cut(text string, most int) string {
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

// rankOf describes a process.
func rankOf(s *sentRank, v *capture.View) rank {
	t := v.Info
	r := rank{ID: s.id, Attempt: s.attempt, PID: t.PID, Started: t.Started, Rank: t.Rank,
		LocalRank: t.LocalRank, WorldSize: t.WorldSize, Axes: t.Axes,
		Python: cut(t.Python, maxText), Torch: cut(t.Torch, maxText), Device: cut(t.Device, maxText),
		Step: -1}
	for _, a := range t.Argv[:min(len(t.Argv), maxArgv)] {
		r.Argv = append(r.Argv, cut(a, maxText))
	}
	for _, g := range t.GPUs {
		if g.Kind == traces.DeviceGPU {
			r.GPUs = append(r.GPUs, device{g.Ordinal, cut(g.Name, maxText), g.TotalBytes})
		}
	}
	if n := len(v.Steps); n > 0 {
		r.Step = v.Steps[n-1].Index
	}
	r.First = s.first
	if v.Ended {
		r.End = &end{Reason: v.End.Reason, Code: v.End.Code, Detail: cut(v.End.Detail, maxDetail),
			OutOfMemory: v.End.OutOfMemory, Unsent: s.unsent, Recovered: v.End.Recovered}
	}
	return r
}

const (
	// sentWithin is how long a step may wait in its process: an agent rests for up to two seconds after it
	// has sent steps, where that is slow.
	sentWithin = 2500 * time.Millisecond
	// pacedBy is how many of the newest steps the pace is taken from.
	pacedBy = 16
)

// unsent infers how many steps a process that ended now had not sent, from how long its steps took. A process
// that says goodbye has sent all, and of one that leaves its ring the rest was read. One whose last step was
// too long ago to be still unsent hung.
func unsent(v *capture.View, now time.Time) int64 {
	const signal = 128 // an exit code above this is of a signal
	killed := v.End.Detail == say.Vanished.Text() || v.End.Code.Or(0) > signal
	if v.End.Reason != capture.Exited || !killed || v.End.Recovered.IsKnown() || len(v.Steps) < 2 {
		return 0
	}
	steps := v.Steps[max(len(v.Steps)-pacedBy-1, 0):]
	var took []int64
	for i := range steps[1:] {
		took = append(took, (steps[i+1].End-steps[i].End)/max(steps[i+1].Index-steps[i].Index, 1))
	}
	slices.Sort(took)
	pace := took[len(took)/2]
	since := now.UnixNano() - steps[len(steps)-1].End
	if pace <= 0 || since < 0 || since > int64(sentWithin)+2*pace {
		return 0
	}
	return since / pace
}

// info returns the process as the viewer sees it.
func (r *rank) info(host string) capture.Info {
	t := capture.Info{PID: r.PID, Host: host, Remote: true, Rank: r.Rank, LocalRank: r.LocalRank,
		WorldSize: r.WorldSize, Axes: traces.SoundAxes(r.Axes), Argv: r.Argv,
		Python: r.Python, Torch: r.Torch, Device: r.Device}
	for _, g := range r.GPUs {
		t.GPUs = append(t.GPUs, traces.Device{Kind: traces.DeviceGPU, Ordinal: g.Ordinal, Name: g.Name,
			TotalBytes: g.Bytes})
	}
	return t
}

// check reports an error for steps that no node counts.
func (r *rank) check() error {
	end := int64(-1)
	if r.Dropped < 0 || r.End != nil && r.End.Unsent < 0 {
		return fmt.Errorf("%w: damaged counts of lost steps", errWire)
	}
	for _, s := range r.Lost {
		if s.From <= end || s.To < s.From || s.To == math.MaxInt64 {
			return fmt.Errorf("%w: damaged counts of lost steps", errWire)
		}
		end = s.To
	}
	return nil
}

func readHello(data []byte) (hello, error) {
	var h hello
	if err := json.Unmarshal(data, &h); err != nil {
		return h, fmt.Errorf("%w: %w", errWire, err)
	}
	switch {
	case h.Version != wireVersion:
		return h, fmt.Errorf("%w: version %d, and this gmemtop reads version %d: use the same gmemtop on "+
			"all nodes",
			errWire, h.Version, wireVersion)
	case len(h.Ranks) > maxRanks:
		return h, fmt.Errorf("%w: a node with %d ranks", errWire, len(h.Ranks))
	}
	for i := range h.Ranks {
		if err := h.Ranks[i].check(); err != nil {
			return h, err
		}
	}
	return h, nil
}

// A batch is the version, then for each process its head and its steps. Both are rows: a number of columns,
// then each column as a zigzag varint, -1 for what is unknown. A row only ever grows at its end, so a reader
// skips columns that it does not know. A step's columns are those of a frame of steps (docs/wire.md).

// head says whose steps follow, so that each batch can be understood by itself.
type head struct {
	id, attempt, pid int
	rank, worldSize  maybe.Int
}

func (h head) row() []int64 {
	return []int64{int64(h.id), int64(h.attempt), int64(h.pid), h.rank.Or(-1), h.worldSize.Or(-1)}
}

const (
	headColumns = 5
	maxColumns  = 256
)

type batch struct {
	head
	steps []capture.Step
}

func appendRow(b []byte, row []int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(row)))
	for _, v := range row {
		b = binary.AppendVarint(b, v)
	}
	return b
}

// appendBatch appends one process with its steps.
func appendBatch(b []byte, x batch) []byte {
	if len(b) == 0 {
		b = append(b, wireVersion)
	}
	b = appendRow(b, x.head.row())
	b = binary.AppendUvarint(b, uint64(len(x.steps)))
	for _, s := range x.steps {
		row := pytorch.RowOf(s)
		b = appendRow(b, row[:])
	}
	return b
}

// A roll-up is a batch with the row of a span in place of steps, one for each process: see
// [capture.Span.Row].

type rolled struct {
	head
	span capture.Span
}

// appendRolled appends one process with its span.
func appendRolled(b []byte, x rolled) []byte {
	if len(b) == 0 {
		b = append(b, wireVersion)
	}
	b = appendRow(b, x.head.row())
	row := x.span.Row()
	return appendRow(b, row[:])
}

// readRolled calls f for each process in a message of roll-ups, up to a damaged part.
func readRolled(data []byte, f func(rolled)) error {
	if len(data) == 0 || data[0] != wireVersion {
		return errVersion
	}
	c := cursor{data[1:]}
	var row []int64
	for len(c.rest) > 0 {
		var x rolled
		var err error
		if x.head, row, err = c.head(row); err != nil {
			return err
		}
		if row, err = c.row(row); err != nil {
			return err
		}
		if x.span, err = capture.SpanOfRow(row); err != nil {
			return fmt.Errorf("%w: %w", errWire, err)
		}
		f(x)
	}
	return nil
}

// cursor reads numbers from a message.
type cursor struct{ rest []byte }

func (c *cursor) count(most uint64) (int, error) {
	n, size := binary.Uvarint(c.rest)
	if size <= 0 || n > most {
		return 0, fmt.Errorf("%w: a damaged count", errWire)
	}
	c.rest = c.rest[size:]
	return int(n), nil
}

// row reads a row into buffer, which is returned longer if need be.
func (c *cursor) row(buffer []int64) ([]int64, error) {
	n, err := c.count(maxColumns)
	if err != nil {
		return nil, err
	}
	buffer = buffer[:0]
	for range n {
		v, size := binary.Varint(c.rest)
		if size <= 0 {
			return nil, fmt.Errorf("%w: it ends within a row", errWire)
		}
		c.rest = c.rest[size:]
		buffer = append(buffer, v)
	}
	return buffer, nil
}

// head reads a head, with a buffer as row does.
func (c *cursor) head(buffer []int64) (head, []int64, error) {
	row, err := c.row(buffer)
	if err == nil && (len(row) < headColumns || row[0] < 0 || row[0] > 1<<31 || row[1] < 0 ||
		row[1] > 1<<31) {
		err = fmt.Errorf("%w: a damaged head", errWire)
	}
	if err != nil {
		return head{}, nil, err
	}
	return head{int(row[0]), int(row[1]), int(row[2]), maybe.NonNegative(row[3]), maybe.NonNegative(row[4])},
		row, nil
}

// readBatches calls f for each process in a message, up to a damaged part.
func readBatches(data []byte, f func(batch)) error {
	if len(data) == 0 || data[0] != wireVersion {
		return errVersion
	}
	c := cursor{data[1:]}
	var row []int64
	for len(c.rest) > 0 {
		var x batch
		var err error
		if x.head, row, err = c.head(row); err != nil {
			return err
		}
		n, err := c.count(uint64(len(c.rest))) // a step takes more than a byte
		if err != nil {
			return err
		}
		for range n {
			if row, err = c.row(row); err != nil {
				break
			}
			var s capture.Step
			if s, err = pytorch.StepOf(row); err != nil {
				err = fmt.Errorf("%w: %w", errWire, err)
				break
			}
			x.steps = append(x.steps, s)
		}
		f(x)
		if err != nil {
			return err
		}
	}
	return nil
}
