package pytorch

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// fakeAgent speaks like agent.py, from this process, and writes its marker. It needs no Python.
type fakeAgent struct {
	net.Conn
	t     testing.TB
	index int64
}

// markSelf writes the marker of an agent in this process, with a socket in the test's folder.
func markSelf(t *testing.T) string {
	t.Helper()
	dir := folder(t)
	path := filepath.Join(dir, "x.sock")
	started := startedAt(t, os.Getpid())
	b, _ := json.Marshal(marker{Version: protocolVersion, PID: os.Getpid(), Start: started, Socket: path})
	if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(os.Getpid())+".json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startedAt returns when a process started, as its marker has it.
func startedAt(t testing.TB, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip("needs Linux: agents are found through /proc: ", err)
	}
	n, err := strconv.ParseInt(strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))[19], 10,
		64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// connectAgent retries until a viewer listens and welcomes it.
func connectAgent(t testing.TB, path string) *fakeAgent {
	for begin := time.Now(); time.Since(begin) < torchtest.Patience(t); {
		conn, err := net.Dial("unix", path)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		hello := fmt.Sprintf(`{"version":2,"pid":%d,"start":%d,"host":"h","argv":["python","train.py"],`+
			`"torch":"2.9","rank":1,"world_size":2,"device":"cpu"}`, os.Getpid(), startedAt(t, os.Getpid()))
		_, _ = conn.Write(raw(frameHello, hello))
		if k, _, err := readFrame(conn, maxHello); err == nil && k == frameWelcome {
			return &fakeAgent{Conn: conn, t: t}
		}
		_ = conn.Close()
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the agent got no welcome")
	return nil
}

func (a *fakeAgent) say(k kind, payload string) {
	if _, err := a.Write(raw(k, payload)); err != nil {
		a.t.Error(err)
	}
}

// step reports n steps.
func (a *fakeAgent) step(n int) {
	for range n {
		at := a.index * 1000
		a.say(frameSteps, fmt.Sprintf(`[[%d,%d,%d,5,3,2,-1,-1,-1,-1,4096,-1,-1,100,50,25,7,1]]`, a.index,
			at, at+900))
		a.index++
	}
}

func (a *fakeAgent) window() {
	a.say(frameWindow, fmt.Sprintf(`{"first":%d,"last":%d,"how":"ops","partial":true}`, a.index, a.index))
	a.say(frameData, deflate(aWindow))
	a.say(frameWhole, `{"cost":5,"lost":2}`)
}

// order waits for a frame from the viewer.
func (a *fakeAgent) order() string {
	_ = a.SetReadDeadline(time.Now().Add(20 * time.Second))
	k, payload, err := readFrame(a, maxHello)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", k, payload)
}

// viewer is a viewer, the first or one beside another.
type viewer struct {
	*capture.History
	source *Session
	relay  *Relay
	done   chan error
}

// view connects to this process and watches it.
func view(t *testing.T, limits capture.Limits) *viewer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := Connect(ctx, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	v := &viewer{History: capture.NewHistory(limits), source: s, done: make(chan error, 1)}
	v.relay = NewRelay(v.History, s)
	s.Share(v.relay)
	go func() { v.done <- s.Run(context.Background(), v.relay) }()
	t.Cleanup(func() {
		_ = s.Close()
		v.relay.Close()
	})
	return v
}

func (v *viewer) until(t testing.TB, what string, f func(capture.View) bool) capture.View {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var x capture.View
	if err := v.Until(ctx, func(now *capture.View) (bool, error) { x = *now; return f(x), nil }); err != nil {
		t.Fatalf("waiting for %s: %v: %d steps, %d windows, %v, %v, %+v", what, err, len(x.Steps),
			len(x.Windows), x.Notices, x.Losses, x.End)
	}
	return x
}

func seenSteps(n int) func(capture.View) bool {
	return func(v capture.View) bool { return len(v.Steps) >= n }
}

func ended(v capture.View) bool { return v.Ended }

// hosted is an agent with a viewer.
func hosted(t *testing.T, limits capture.Limits) (*fakeAgent, *viewer) {
	t.Helper()
	path := markSelf(t)
	var a *fakeAgent
	var connected sync.WaitGroup
	connected.Go(func() { a = connectAgent(t, path) })
	host := view(t, limits)
	connected.Wait()
	t.Cleanup(func() { _ = a.Close() })
	return a, host
}
