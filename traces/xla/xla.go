// Package xla reads the buffer assignments that XLA writes for each program that it compiles
// (XLA_FLAGS=--xla_dump_to=FOLDER, files that end in buffer-assignment.txt): which allocations the program
// makes, how large they are, and which values share them.
//
//	BufferAssignment:
//	allocation 4: size 1048576, parameter 0, shape |f32[512,512]| at ShapeIndex {}:
//	 value: <84 p_0_.1 @0> (size=1048576,offset=0): f32[512,512]{1,0}
//	allocation 10: size 2621440, preallocated-temp:
//	 value: <87 fusion.2 @0> (size=524288,offset=0): f32[256,512]{1,0}
//
// The file says what one run of the program needs, without times: the trace has no events, and a Final state
// with a block for each allocation, under two frames: what the allocation is for, and its largest value. It
// does not say which device the program runs on. Addresses are made up. Thread-local allocations are left
// out. What follows the allocations (statistics, live ranges) is not read.
//
// Source: BufferAssignment::ToString in xla/service/buffer_assignment.cc, and dumps of jaxlib for the CPU.
package xla

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

const heading = "BufferAssignment:"

// Limits of one file.
const (
	maxLine  = 1 << 20
	maxTotal = 1 << 50 // bytes of all allocations
	maxName  = 400     // bytes of a value's name and shape that are kept
)

// Sniff reports whether head begins a buffer assignment.
func Sniff(head []byte) bool {
	return bytes.HasPrefix(head, []byte(heading+"\n")) || bytes.HasPrefix(head, []byte(heading+"\r\n"))
}

var (
	allocationLine = regexp.MustCompile(`^allocation (\d+): size (\d+)(?:, (.*))?:\s*$`)
	valueLine      = regexp.MustCompile(`^ value: <\d+ (.*) @\d+> \(size=(\d+),offset=(\d+)\): (.*)$`)
)

// allocation is one allocation while its values are read.
type allocation struct {
	size    int64
	about   string
	largest int64
	name    string // of the largest value, with its shape
	values  int64
}

type reader struct {
	b     *traces.Builder
	top   uint64
	total int64
	now   *allocation
}

// Read reads a buffer assignment. progress, if not nil, is called now and then with the number of bytes read.
// For damaged input it returns the allocations before the damage with an error that names the line.
func Read(ctx context.Context, r io.Reader, progress func(done int64)) (*traces.Trace, error) {
	x := &reader{b: traces.NewBuilder(), top: 1 << 48}
	x.b.T.Source = traces.Source{Format: traces.FormatXLA, Tool: "XLA", SyntheticAddresses: true}
	x.b.T.Clock = traces.Clock{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	n, done := 0, int64(0)
	var broken error
	for lines.Scan() && broken == nil {
		n++
		done += int64(len(lines.Bytes())) + 1
		if n%1024 == 0 {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if progress != nil {
				progress(done)
			}
		}
		over, err := x.line(n, lines.Text())
		if broken = err; over {
			break
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := lines.Err(); broken == nil && err != nil {
		if !errors.Is(err, bufio.ErrTooLong) {
			return nil, err
		}
		broken = fail(n+1, "the line is longer than 1 MiB")
	}
	t := x.finish()
	if t == nil && broken == nil {
		broken = fail(n, "there is no allocation up to here")
	}
	return t, broken
}

func fail(line int, reason string) error {
	return &traces.FormatError{Format: traces.FormatXLA, Offset: -1, Line: line, Reason: reason,
		Advice: "have XLA dump the program again"}
}

// line takes a line; over says that the allocations end with it.
func (x *reader) line(n int, s string) (over bool, err error) {
	s = strings.TrimRight(s, "\r")
	switch {
	case n == 1:
		if s != heading {
			return true, fail(1, "the file does not begin with "+heading)
		}
	case strings.HasPrefix(s, "allocation "):
		return false, x.begin(n, s)
	case strings.HasPrefix(s, " value: "):
		return false, x.value(n, s)
	case x.now != nil: // statistics or live ranges
		return true, nil
	}
	return false, nil
}

func (x *reader) begin(n int, s string) error {
	x.end()
	m := allocationLine.FindStringSubmatch(s)
	if m == nil {
		return fail(n, fmt.Sprintf("%.60q is not an allocation", s))
	}
	size, err := strconv.ParseInt(m[2], 10, 64)
	if err != nil || size > maxTotal-x.total {
		return fail(n, fmt.Sprintf("an allocation of %.30s bytes", m[2]))
	}
	x.total += size
	x.now = &allocation{size: size, about: m[3]}
	return nil
}

func (x *reader) value(n int, s string) error {
	m := valueLine.FindStringSubmatch(s)
	if m == nil || x.now == nil {
		return fail(n, fmt.Sprintf("%.60q is not a value of an allocation", s))
	}
	size, err := strconv.ParseInt(m[2], 10, 64)
	offset, err2 := strconv.ParseInt(m[3], 10, 64)
	if err != nil || err2 != nil || size > x.now.size || offset > x.now.size-size {
		return fail(n, "a value reaches beyond its allocation")
	}
	x.now.values++
	if size > x.now.largest || x.now.name == "" {
		x.now.largest, x.now.name = size, fmt.Sprintf("%.*s", maxName, m[1]+" "+m[4])
	}
	return nil
}

// purpose names what an allocation is for, by the words of its line.
func (a *allocation) purpose() string {
	switch {
	case strings.Contains(a.about, "parameter "):
		return "parameters of the program"
	case strings.Contains(a.about, "constant"):
		return "constants"
	case strings.Contains(a.about, "live-out"), strings.Contains(a.about, "output shape"):
		return "results of the program"
	case strings.Contains(a.about, "temp"):
		return "temporary values"
	}
	return "other allocations"
}

// end makes a block of the allocation that was read.
func (x *reader) end() {
	a := x.now
	x.now = nil
	if a == nil {
		return
	}
	if strings.Contains(a.about, "thread-local") {
		x.b.Lose("thread_local", traces.Info, 1, "thread-local allocations are left out")
		return
	}
	if a.size == 0 {
		return
	}
	frame := func(name string) traces.FrameID { return x.b.Frame(traces.Frame{Func: x.b.String(name)}) }
	name := a.name
	if a.values > 1 {
		name = fmt.Sprintf("%s and %d more in its place", name, a.values-1)
	}
	ids := []traces.FrameID{frame(a.purpose())}
	if name != "" {
		ids = append([]traces.FrameID{frame(name)}, ids...)
	}
	final := &x.b.T.Final
	final.Blocks = append(final.Blocks, traces.Block{Address: x.top, Size: a.size,
		Requested: maybe.Known(a.size), Stack: x.b.Stack(ids), State: traces.BlockAllocated, Count: 1})
	x.top += uint64(a.size)
}

func (x *reader) finish() *traces.Trace {
	x.end()
	final := &x.b.T.Final
	if len(final.Blocks) == 0 {
		return nil
	}
	final.Known = true
	size := int64(x.top - 1<<48)
	final.Segments = []traces.Segment{{Address: 1 << 48, Device: x.b.Device(traces.DeviceProgram, 0),
		TotalSize: size, AllocatedSize: size, ActiveSize: size, Wanted: size, Stack: traces.NoStack,
		EndBlock: int32(len(final.Blocks))}}
	return x.b.Finish()
}
