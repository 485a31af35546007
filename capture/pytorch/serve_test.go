package pytorch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// TestOtherViewersSeeWhatTheFirstSees has two guests that come late, give orders, and leave at different
// times.
func TestOtherViewersSeeWhatTheFirstSees(t *testing.T) {
	a, host := hosted(t, capture.Limits{})
	a.step(1500) // more than a frame holds
	a.window()
	a.say(frameNotice, `{"key":"ops","text":"cannot be seen"}`)
	a.say(frameNotice, `{"key":"asked","text":"waiting","state":true}`)
	a.say(frameLost, `{"name":"rows","n":3,"detail":"why"}`)
	first := host.until(t, "the host", func(v capture.View) bool {
		return len(v.Losses) > 0 && len(v.Windows) == 1
	})

	guests := []*viewer{view(t, capture.Limits{}), view(t, capture.Limits{})}
	for _, g := range guests {
		if g.source.Host() != os.Getpid() {
			t.Fatalf("watches alongside %d", g.source.Host())
		}
		v := g.until(t, "a guest", func(v capture.View) bool {
			return len(v.Steps) == 1500 && len(v.Windows) == 1 && len(v.Losses) > 0
		})
		if !reflect.DeepEqual(v.Steps, first.Steps) {
			t.Error("the steps differ")
		}
		want, got := first.Windows[0], v.Windows[0]
		if !reflect.DeepEqual(want.Trace, got.Trace) {
			t.Errorf("the captured step differs: %+v and %+v", want.Trace, got.Trace)
		}
		want.Trace, got.Trace = nil, nil
		if !reflect.DeepEqual(want, got) || got.Cost != 5 || !got.Partial {
			t.Errorf("%+v becomes %+v", want, got)
		}
		if !reflect.DeepEqual(v.Info, first.Info) {
			t.Errorf("%+v becomes %+v", first.Info, v.Info)
		}
		if !reflect.DeepEqual(v.Losses, first.Losses) {
			t.Errorf("%v becomes %v", first.Losses, v.Losses)
		}
		along := ""
		for _, n := range v.Notices {
			if n.Key == "along" {
				along = n.Text
			}
		}
		if !strings.Contains(along, fmt.Sprintf("watching alongside process %d", os.Getpid())) ||
			len(v.Notices) != len(first.Notices)+1 {
			t.Errorf("%+v next to %+v", v.Notices, first.Notices)
		}
	}

	// A guest's orders reach the agent, and their results reach everybody.
	if err := guests[0].source.Order(context.Background(),
		capture.Order{ID: 5, Do: capture.Describe, Steps: 3}); err != nil {
		t.Fatal(err)
	}
	if got := a.order(); got != `70 {"id":5,"do":"describe","steps":3}` {
		t.Errorf("the agent receives %s", got)
	}
	err := guests[1].source.Order(context.Background(), capture.Order{Do: capture.Every, Steps: 7})
	if err != nil {
		t.Fatal(err)
	}
	if got := a.order(); got != `70 {"do":"every","steps":7}` {
		t.Errorf("the agent receives %s", got)
	}
	if err := guests[1].source.Order(context.Background(),
		capture.Order{Do: capture.Depth, How: capture.HowHistory}); err != nil {
		t.Fatal(err)
	}
	if got := a.order(); got != `70 {"do":"depth","how":"history"}` {
		t.Errorf("the agent receives %s", got)
	}
	a.say(frameNotice, `{"key":"asked","text":""}`)
	a.window()
	a.say(frameAnswer, `{"order":5,"state":"done"}`)
	for _, g := range guests {
		g.until(t, "the second window", func(v capture.View) bool {
			for _, n := range v.Notices {
				if n.Key == "asked" {
					return false
				}
			}
			answer, _ := v.Answered(5)
			return len(v.Windows) == 2 && answer.State == capture.OrderDone
		})
	}

	// One detaches: only its own session ends.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := guests[0].source.Detach(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-guests[0].done; err != nil {
		t.Error(err)
	}
	if e := guests[0].Snapshot().End; e.Reason != capture.Detached ||
		!strings.Contains(e.Detail, "keeps watching") {
		t.Errorf("%+v", e)
	}
	a.step(10)
	host.until(t, "the host's further steps", seenSteps(1510))
	guests[1].until(t, "the guest's further steps", seenSteps(1510))

	// The real end reaches those that stayed.
	a.say(frameBye, `{"reason":"OutOfMemoryError","detail":"CUDA out of memory"}`)
	want := host.until(t, "the end", ended).End
	if got := guests[1].until(t, "the end for the guest", ended).End; got != want || !got.OutOfMemory ||
		got.Reason != capture.Exited {
		t.Errorf("%+v becomes %+v", want, got)
	}
	if err := <-guests[1].done; err != nil {
		t.Error(err)
	}
}

// lookAt is a guest that only reads when the test says so.
func lookAt(t *testing.T, path string, version int) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	b, _ := frame(frameLook, look{Version: version, PID: os.Getpid()})
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestAViewerThatDoesNotReadOnlyMissesSteps fills the guest's socket and goes on for many times what the host
// keeps.
func TestAViewerThatDoesNotReadOnlyMissesSteps(t *testing.T) {
	const kept, all = 4000, 60001
	a, host := hosted(t, capture.Limits{Steps: kept, WindowBytes: 1})
	a.step(1)
	host.until(t, "the host", seenSteps(1))
	conn := lookAt(t, host.source.listener.Path(), lookVersion)
	if k, _, err := readFrame(conn, maxHello); err != nil || k != frameHello {
		t.Fatal(k, err)
	}
	for a.index < all {
		a.step(1000)
		a.window()
		host.until(t, "the host, which nothing slows", func(v capture.View) bool {
			return v.Steps[len(v.Steps)-1].Index == a.index-1
		})
	}
	a.say(frameBye, `{"reason":"exit"}`)
	host.until(t, "the end", ended)

	s := newSession(conn, hello{})
	s.host = os.Getpid()
	seen := capture.NewHistory(capture.Limits{})
	if err := s.Run(context.Background(), seen); err != nil {
		t.Fatal(err)
	}
	v := seen.Snapshot()
	missed := map[string]int64{}
	for _, l := range v.Losses {
		missed[l.Name] = l.Count
	}
	if got := int64(len(v.Steps)) + missed["steps"]; got != all || missed["steps"] == 0 {
		t.Errorf("%d steps and %d missed, want %d together", len(v.Steps), missed["steps"], all)
	}
	if got := int64(len(v.Windows)) + missed["windows"]; got != all/1000 || missed["windows"] == 0 {
		t.Errorf("%d captured steps and %d missed, want %d together",
			len(v.Windows), missed["windows"], all/1000)
	}
	if last := v.Steps[len(v.Steps)-1].Index; last != all-1 || v.End.Reason != capture.Exited {
		t.Errorf("it ends with step %d, %+v", last, v.End)
	}
}

func TestAViewerOfAnotherVersionGetsAReason(t *testing.T) {
	_, host := hosted(t, capture.Limits{})
	conn := lookAt(t, host.source.listener.Path(), lookVersion+1)
	k, payload, err := readFrame(conn, maxHello)
	if err != nil || k != frameWatched ||
		!strings.Contains(string(payload), fmt.Sprintf(`"looks":%d`, lookVersion)) {
		t.Errorf("%d %s %v", k, payload, err)
	}
}

// TestAViewerThatDoesNotShareIsNamed has listeners of another version, that do not share, or that speak
// another protocol.
func TestAViewerThatDoesNotShareIsNamed(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		is           error
		says         string
	}{
		{"of another version", fmt.Sprintf(`{"pid":77,"looks":%d}`, lookVersion+1), ErrVersion,
			"use the gmemtop that watches it"},
		{"who shows nothing", fmt.Sprintf(`{"pid":77,"looks":%d}`, lookVersion), ErrWatched, "by process 77"},
		{"who says nothing that is understood", `[`, ErrWatched, "watched already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("unix", markSelf(t))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _, _ = readFrame(conn, maxHello)
					_, _ = conn.Write(raw(frameWatched, c.answer))
					_ = conn.Close()
				}
			}()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if _, err := Connect(ctx, os.Getpid()); !errors.Is(err, c.is) ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestTheNextViewerTakesOverWhenTheFirstIsKilled kills the viewer that holds the agent: the other viewer says
// so, and the next one connects to the agent itself.
func TestTheNextViewerTakesOverWhenTheFirstIsKilled(t *testing.T) {
	const asHost, in = "TEST_HOST_OF", "TEST_HOST_IN"
	if pid, _ := strconv.Atoi(os.Getenv(asHost)); pid != 0 { // the process that is killed
		t.Setenv("XDG_RUNTIME_DIR", os.Getenv(in))
		s, err := Connect(context.Background(), pid)
		if err != nil {
			t.Fatal(err)
		}
		r := NewRelay(capture.NewHistory(capture.Limits{}), s)
		s.Share(r)
		_ = s.Run(context.Background(), r)
		return
	}
	path := markSelf(t)
	host := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	host.Env = append(os.Environ(), fmt.Sprintf("%s=%d", asHost, os.Getpid()),
		in+"="+os.Getenv("XDG_RUNTIME_DIR"))
	var said bytes.Buffer
	host.Stdout, host.Stderr = &said, &said
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = host.Process.Kill()
		_ = host.Wait()
	})
	a := connectAgent(t, path)
	if a == nil {
		_ = host.Process.Kill()
		_ = host.Wait()
		t.Fatalf("%s", said.String())
	}
	a.step(5)
	guest := view(t, capture.Limits{})
	guest.until(t, "the steps", seenSteps(5))
	if guest.source.Host() != host.Process.Pid {
		t.Errorf("watches alongside %d, not %d", guest.source.Host(), host.Process.Pid)
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-guest.done; !errors.Is(err, ErrLost) || !strings.Contains(err.Error(),
		fmt.Sprintf("with process %d, which watched it and is gone", host.Process.Pid)) {
		t.Errorf("%v", err)
	}
	_ = a.Close() // as the agent does, which then tries again
	var again sync.WaitGroup
	again.Go(func() { a = connectAgent(t, path) })
	next := view(t, capture.Limits{})
	again.Wait()
	if next.source.Host() != 0 {
		t.Errorf("watches alongside %d, which is gone", next.source.Host())
	}
	a.step(3)
	next.until(t, "the agent's own steps", seenSteps(3))
	_ = a.Close()
}

// TestACommandsOutputAndEndReachOtherViewers needs neither Python nor torch.
func TestACommandsOutputAndEndReachOtherViewers(t *testing.T) {
	folder(t)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	gate := filepath.Join(t.TempDir(), "gate")
	job, err := Start(Launch{Argv: []string{"sh", "-c",
		"echo before; while [ ! -e " + gate + " ]; do sleep 0.05; done; echo after; exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	host := &viewer{History: capture.NewHistory(capture.Limits{}), done: make(chan error, 1)}
	host.relay = NewRelay(host.History, job)
	job.Share(host.relay)
	go func() { host.done <- job.Run(context.Background(), host.relay) }()
	host.until(t, "the first word", func(v capture.View) bool { return len(v.Output) > 0 })
	s, err := lookAlong(job.PID(), job.listener.Path())
	if err != nil {
		t.Fatal(err)
	}
	guest := &viewer{History: capture.NewHistory(capture.Limits{}), done: make(chan error, 1)}
	go func() { guest.done <- s.Run(context.Background(), guest) }()
	v := guest.until(t, "the first word for the guest", func(v capture.View) bool {
		return string(v.Output) == "before\n"
	})
	if v.Info.PID != job.PID() || v.Info.Argv[0] != "sh" {
		t.Errorf("%+v", v.Info)
	}
	err = s.Order(context.Background(), capture.Order{ID: 6, Do: capture.Describe, Steps: 1})
	if err != nil {
		t.Fatal(err)
	}
	guest.until(t, "the answer", func(v capture.View) bool {
		a, _ := v.Answered(6)
		return a.State == capture.OrderRefused && a.Reason == capture.ReasonUnreachable &&
			strings.Contains(a.Text, ErrNotConnected.Error()) &&
			slices.Contains(v.Notices, capture.Notice{Key: "order", Text: a.Text})
	})
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-host.done; err != nil {
		t.Fatal(err)
	}
	host.relay.Close()
	if err := <-guest.done; err != nil {
		t.Fatal(err)
	}
	if v := guest.Snapshot(); string(v.Output) != "before\nafter\n" || v.End.Code != maybe.Known(3) ||
		v.End.Reason != capture.Exited {
		t.Errorf("%q, %+v", v.Output, v.End)
	}
}

// TestAStepsRowRoundTrips also holds for unknown figures.
func TestAStepsRowRoundTrips(t *testing.T) {
	want := []capture.Step{
		{Index: 1, Start: 2, End: 3, Forward: maybe.Known(4), Backward: maybe.Known(5),
			Optimizer: maybe.Known(6),
			Allocated: maybe.Known(7), Reserved: maybe.Known(8), PeakAllocated: maybe.Known(9),
			PeakReserved: maybe.Known(10), RSS: maybe.Known(0), Parameters: maybe.Known(12),
			Gradients: maybe.Known(13), OptimizerState: maybe.Known(14), Retries: maybe.Known(15),
			OOMs: maybe.Known(16), Cost: 17, Skipped: true},
		{},
	}
	b, err := frame(frameSteps, rows(want))
	if err != nil {
		t.Fatal(err)
	}
	if n := binary.LittleEndian.Uint32(b); int(n) != len(b)-4 {
		t.Errorf("a frame of %d bytes says %d", len(b)-4, n)
	}
	got, err := steps(b[5:])
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestAHelloRoundTrips has a viewer tell another one of a process: of one that trains alone, of one that was
// told its rank and nothing else, and of the first of four.
func TestAHelloRoundTrips(t *testing.T) {
	for _, c := range []struct {
		rank, local, world, room maybe.Int
		wire                     string
	}{
		{wire: `"rank":-1,"local_rank":-1,"world_size":-1`},
		{rank: maybe.Known(3), wire: `"rank":3,"local_rank":-1,"world_size":-1`},
		{maybe.Known(0), maybe.Known(0), maybe.Known(4), maybe.Known(1 << 30),
			`"rank":0,"local_rank":0,"world_size":4`},
	} {
		want := capture.Info{PID: 7, Started: 5, Host: "h", Argv: []string{"python", "train.py"},
			Python: "3.12", Torch: "2.9", Device: "cuda:0",
			Rank: c.rank, LocalRank: c.local, WorldSize: c.world, Agent: protocolVersion,
			Axes:         []traces.Axis{{Name: traces.Pipeline, At: 1, Of: 2}},
			Capabilities: []string{"steps"}, Depth: capture.HowOps, Offloads: true, Room: c.room,
			GPUs: []traces.Device{{Kind: traces.DeviceGPU, Name: "a GPU", TotalBytes: 2 << 30}}}
		b, err := new(guest).words(capture.View{Info: want}, nil)
		if err != nil {
			t.Fatal(err)
		}
		k, payload, err := readFrame(bytes.NewReader(b), maxHello)
		if err != nil || k != frameHello || !strings.Contains(string(payload), c.wire) {
			t.Errorf("frame %d, %v: %s has no %s", k, err, payload, c.wire)
		}
		h, err := read[hello](payload)
		here, _ := net.Pipe()
		if got := info(here, h); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v becomes %+v, %v", want, got, err)
		}
	}
}

func TestAnEndRoundTrips(t *testing.T) {
	for _, want := range []capture.End{
		{Reason: capture.Exited, Code: maybe.Known(0)}, {Reason: capture.Exited, Code: maybe.Known(137),
			Detail: "x", OutOfMemory: true}, {Reason: capture.Exited},
		{Reason: capture.Disarmed, Detail: "an error"}, {Reason: capture.Detached, Detail: "enough"},
		{Reason: capture.Refused, Detail: "no"},
	} {
		b, err := frame(frameBye, lastWord(want))
		if err != nil {
			t.Fatal(err)
		}
		word, err := read[bye](b[5:])
		if got := ending(word); err != nil || got != want {
			t.Errorf("%+v becomes %+v, %v", want, got, err)
		}
	}
}

// FuzzOtherViewer reads hostile input in place of another viewer's messages.
func FuzzOtherViewer(f *testing.F) {
	var native bytes.Buffer
	if err := gmt.Write(context.Background(), &native, traces.NewBuilder().Finish()); err != nil {
		f.Fatal(err)
	}
	window := append(raw(frameWindow, `{"how":"ops","encoding":"gmt"}`),
		plainFrame(frameData, native.Bytes())...)
	f.Add(append(window, raw(frameWhole, "{}")...))
	f.Add(append(raw(frameWindow, `{"how":"ops","encoding":"later"}`), raw(frameWhole, "{}")...))
	f.Add(append(raw(frameOutput, "text"), raw(frameBye, `{"reason":"exited","code":3}`)...))
	f.Fuzz(func(t *testing.T, stream []byte) {
		to := receiver{s: &Session{host: 1, ended: make(chan struct{}), gone: make(chan struct{})},
			sink: capture.NewHistory(capture.Limits{})}
		for r := bytes.NewReader(stream); ; {
			k, payload, err := readFrame(r, maxFrame)
			if err != nil {
				return
			}
			if err := to.take(context.Background(), k, payload); err != nil {
				return
			}
		}
	})
}

// TestAWindowOfAnotherEncodingIsALoss has a viewer of a later version.
func TestAWindowOfAnotherEncodingIsALoss(t *testing.T) {
	b := append(raw(frameWindow, `{"how":"ops","encoding":"later"}`),
		append(raw(frameWhole, "{}"), raw(frameBye, `{"reason":"exit"}`)...)...)
	v, err := run(t, b)
	if err != nil || len(v.Losses) != 1 || !strings.Contains(v.Losses[0].Detail, "later") ||
		v.End.Reason != capture.Exited {
		t.Errorf("%v, %+v", err, v)
	}
}
