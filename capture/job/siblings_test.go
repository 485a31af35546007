package job

import (
	"errors"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// rankOf is a process that trains with others.
func rankOf(pid int, rank, world int64) capture.Info {
	return capture.Info{PID: pid, Rank: maybe.Known(rank), WorldSize: maybe.Known(world)}
}

func TestTheAgentSaysWhichTrainingARankBelongsTo(t *testing.T) {
	of := rankOf(100, 0, 3)
	with := func(info capture.Info, steps int, end *capture.End) *sibling {
		s := &sibling{pid: info.PID, watch: NewWatch(Options{}), stop: func() {}}
		if info.PID != 0 {
			s.watch.History.Begin(info)
		}
		for i := range steps {
			s.watch.History.Step(capture.Step{Index: int64(i)})
		}
		if end != nil {
			s.watch.History.End(*end)
		}
		return s
	}
	for _, c := range []struct {
		what string
		of   *sibling
		name string
		err  string
	}{
		{"another rank", with(rankOf(101, 1, 3), 1, nil), "rank 1", ""},
		{"one that has not answered", with(capture.Info{}, 0, nil), "", ""},
		{"one that has not joined the others yet", with(capture.Info{PID: 101}, 0, nil), "", ""},
		{"one that trains alone", with(capture.Info{PID: 101}, 1, nil), "", ""},
		{"a rank of another training", with(rankOf(101, 1, 2), 1, nil), "", ""},
		{"the same rank of another training", with(rankOf(101, 0, 3), 1, nil),
			"", ""},
		{"one that has ended", with(rankOf(101, 1, 3), 1, &capture.End{Reason: capture.Exited}), "", ""},
		{"one that does not take the agent in", with(capture.Info{}, 0,
			&capture.End{Reason: capture.Refused, Detail: "traced by another"}), "process 0",
			"cannot attach to it: traced by another"},
		{"one that may not be attached to", &sibling{pid: 7, err: errors.New("not permitted")}, "process 7",
			"not permitted"},
	} {
		m, ok := c.of.candidate(of)
		switch {
		case ok != (c.name != "") || ok && m.Name != c.name:
			t.Errorf("%s: %+v", c.what, m)
		case ok && (m.Err == nil) != (c.err == ""), ok && m.Err != nil && m.Err.Error() != c.err:
			t.Errorf("%s: %v", c.what, m.Err)
		}
		if ok && m.Err == nil && m.rank() != 1 {
			t.Errorf("%s is rank %d", c.what, m.rank())
		}
	}
}

func TestTheAgentLeavesNonRanksBeforeGmemtopEnds(t *testing.T) {
	s := &sibling{pid: 101, watch: NewWatch(Options{}), stop: func() {}}
	s.watch.History.Begin(rankOf(101, 1, 2))
	out := make(chan struct{})
	s.watch.running.Go(func() { <-out })
	if m, ok := s.candidate(rankOf(100, 0, 3)); ok {
		t.Fatalf("a rank of another training is %+v", m)
	}
	k := siblings{known: map[int]*sibling{101: s}}
	left := make(chan error, 1)
	go func() { left <- k.leave() }()
	select {
	case <-left:
		t.Error("it was left before the agent was gone")
	case <-time.After(100 * time.Millisecond):
		close(out)
		if err := <-left; err != nil {
			t.Error(err)
		}
	}
}
