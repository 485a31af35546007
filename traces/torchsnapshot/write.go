package torchsnapshot

import (
	"context"
	"fmt"
	"io"

	"github.com/gmemtop/gmemtop/traces"
)

// Write writes t as a snapshot that memory_viz loads: a pickle of protocol 4 with PyTorch's keys in PyTorch's
// order, in which equal frames and stacks are shared objects. A trace read from a snapshot, written and read
// again is equal, table by table.
//
// A snapshot has no place for ops, accesses and counters, which are left out, and times only to the
// microsecond. Memory that is neither an accelerator's nor pinned gets the next free place in device_traces.
// What PyTorch has no key for (host, rank, the absence of a final state) goes under the key gmemtop, which
// other readers ignore.
//
// When ctx is cancelled Write stops with its error and leaves an incomplete pickle.
func Write(ctx context.Context, w io.Writer, t *traces.Trace) error {
	s := &snapshotWriter{
		pickler: newPickler(w), ctx: ctx, t: t,
		strings: make([]uint32, len(t.Strings)), frames: make([]uint32, len(t.Frames)),
		stacks: make([]uint32, t.Stacks.Len()), forward: map[traces.StackID]*uint32{},
	}
	err := s.write()
	if flushErr := s.w.Flush(); err == nil {
		err = flushErr
	}
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

func (s *snapshotWriter) write() error {
	s.op(opProto)
	s.op(4)
	s.op(opEmptyDict)
	s.op(opMark)
	steps := []func() error{
		func() error { return s.segments(tSegments, false) },
		func() error { return s.traces(tDeviceTraces, s.deviceLists()) },
		s.settings, s.annotations, s.host, s.extra, s.own,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	s.op(opSetItems)
	s.op(opStop)
	return nil
}
