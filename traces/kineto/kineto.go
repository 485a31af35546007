// Package kineto reads profiles of torch.profiler: Chrome traces with [memory] events, in PyTorch's present
// schema (address and totals in each event) and that of 2021 (sizes only), and the raw output of
// export_memory_timeline.
//
// How they are translated:
//   - [memory] instants: Alloc for positive Bytes, Free for negative ones; a profile does not tell a free's
//     request from its completion. The totals that stand in them become the counters CounterAllocated and
//     CounterReserved. [OutOfMemory] becomes OOM.
//   - cpu_op and Operator ranges, kernels, copies and sets become ops; nesting on one thread gives each op
//     its parent.
//   - python_function ranges become the frames of stacks, nn.Module ones module paths.
//   - ProfilerStep#N becomes MarkIteration, Optimizer.step MarkPhase, other annotations MarkAnnotation.
//
// A profile does not say which op reads or writes which block, so the trace's kind is Lifetimes.
package kineto

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gmemtop/gmemtop/traces"
)

const formatName = "kineto"

// topLevel are members by which a profile's object is recognised; one is enough if there are no members of a
// snapshot.
var topLevel = [][]byte{
	[]byte(`"traceEvents"`), []byte(`"schemaVersion"`), []byte(`"deviceProperties"`),
	[]byte(`"distributedInfo"`), []byte(`"displayTimeUnit"`), []byte(`"traceName"`),
	[]byte(`"baseTimeNanoseconds"`), []byte(`"torch_profiler_kwargs"`),
}

// Sniff reports whether head, the first bytes of a file (64 KiB are enough), is the start of a profile: an
// object with a profile's members, a bare array of Chrome events, or an array of the number lists that
// export_memory_timeline writes.
func Sniff(head []byte) bool {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \n\r\t")
	if len(head) == 0 {
		return false
	}
	switch head[0] {
	case '{':
		if bytes.Contains(head, []byte(`"segments"`)) || bytes.Contains(head, []byte(`"device_traces"`)) {
			return false
		}
		for _, k := range topLevel {
			if bytes.Contains(head, k) {
				return true
			}
		}
	case '[':
		return isTimeline(head) || isEvents(head)
	}
	return false
}

// isEvents reports whether an array's first element is an object with a ph member, or may be one.
func isEvents(head []byte) bool {
	c := cursor{b: head}
	if c.expect('[') != nil {
		return false
	}
	found := false
	err := c.eachMember(func(k []byte) error {
		found = found || string(k) == "ph"
		return c.skip()
	})
	return found && (err == nil || errors.Is(err, errShort))
}

// Read reads a profile. progress, if not nil, is called with the number of bytes read so far. It
// distinguishes Sniff's three kinds again. A profile without [memory] events is ErrUnsupported. A cut or
// damaged one gives the part before the damage, and an error that wraps ErrFormat.
func Read(ctx context.Context, r io.Reader, progress func(done int64)) (*traces.Trace, error) {
	s := newScanner(ctx, r, progress)
	b, err := s.peek()
	if err != nil {
		return nil, err
	}
	if b == 0xEF && bytes.HasPrefix(s.buf[s.pos:], []byte("\xef\xbb\xbf")) {
		s.pos += 3
		if b, err = s.peek(); err != nil {
			return nil, err
		}
	}
	p := newProfile(s)
	switch b {
	case '{':
		s.take()
		err = p.readObject()
	case '[':
		if isTimeline(s.buf[s.pos:]) {
			return readTimeline(s)
		}
		s.take()
		p.bare = true
		err = p.readEvents()
	default:
		return nil, s.fail("a profile begins with { or [")
	}
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return p.finish(err)
}

// readObject reads the members of the profile's object; the opening brace is consumed.
func (p *profile) readObject() error {
	s := p.s
	for first := true; ; first = false {
		b, err := s.peek()
		if err != nil {
			return err
		}
		switch {
		case b == '}':
			s.take()
			return nil
		case b == 0:
			return s.fail("the file ends before the profile does")
		case b == ',' && !first:
			s.take()
			if b, err = s.peek(); err != nil {
				return err
			}
			if b == '}' {
				continue
			}
		case !first:
			return s.fail(fmt.Sprintf("%q found where a comma is expected", b))
		}
		key, err := s.key()
		if err != nil {
			return err
		}
		if err := p.readMember(key); err != nil {
			return err
		}
	}
}

// readEvents reads the elements of traceEvents; the opening bracket is consumed. A bare array may lack its
// end, as Chrome allows.
func (p *profile) readEvents() error {
	s := p.s
	var e event
	parse := e.parse
	for first := true; ; first = false {
		b, err := s.peek()
		if err != nil {
			return err
		}
		if b == ',' && !first {
			s.take()
			if b, err = s.peek(); err != nil {
				return err
			}
		} else if !first && b != ']' && b != 0 {
			return s.fail(fmt.Sprintf("%q found where a comma is expected", b))
		}
		switch b {
		case ']':
			s.take()
			return nil
		case 0:
			if p.bare {
				return nil
			}
			return s.fail("the file ends inside traceEvents")
		case '{':
			if err := s.parse(parse); err != nil {
				return err
			}
			p.add(&e)
		default:
			p.b.Lose("events_malformed", traces.DataLoss, 1, "elements of traceEvents that are not events")
			if err := s.skip(); err != nil {
				return err
			}
		}
	}
}
