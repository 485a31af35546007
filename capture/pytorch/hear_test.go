package pytorch

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
)

// hearer is a Python process that reads streams as the agent does.
type hearer struct {
	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
	err bytes.Buffer
}

// heard is the result of reading a stream.
type heard struct {
	HungUp  bool   `json:"hung_up"`
	Leaving bool   `json:"leaving"`
	Sent    string `json:"sent"`
}

// newHearer starts one. It ends with this process, or when its input is closed.
var newHearer = sync.OnceValues(func() (*hearer, error) {
	dir, err := os.MkdirTemp("", "gm")
	if err != nil {
		return nil, err
	}
	agent := filepath.Join(dir, "agent.py")
	if err := os.WriteFile(agent, []byte(Agent()), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("python3", filepath.Join("testdata", "hears.py"), agent)
	h := &hearer{}
	cmd.Stderr = &h.err
	if h.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.out = bufio.NewReader(out)
	return h, cmd.Start()
})

// hear makes the agent read a stream.
func (h *hearer) hear(stream []byte) (x heard, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := fmt.Fprintf(h.in, "%x\n", stream); err != nil {
		return x, err
	}
	line, err := h.out.ReadBytes('\n')
	if err != nil {
		return x, err
	}
	return x, json.Unmarshal(line, &x)
}

// anOrder returns the frame of an order.
func anOrder(order string) []byte { return raw(frameOrder, order) }

// FuzzOrders feeds the agent's own code hostile input in place of a viewer's messages. The agent hangs up or
// takes the orders, and a viewer must understand its answers. It needs a Python and no torch.
func FuzzOrders(f *testing.F) {
	if _, err := exec.LookPath("python3"); err != nil {
		f.Skip("needs python3")
	}
	h, err := newHearer()
	if err != nil {
		f.Fatal(err)
	}
	for _, order := range []string{
		`{"id":7,"do":"describe","steps":2,"how":"ops","saves":true,"library":"/l.so"}`,
		`{"id":7,"do":"describe","steps":-1,"how":["ops"]}`,
		`{"id":8,"do":"every","steps":10}`, `{"id":8,"do":"every","steps":1e400}`, `{"id":null,"do":"every"}`,
		`{"id":9,"do":"depth","how":"profile"}`, `{"id":10,"do":"depth","how":"probes"}`,
		`{"id":11,"do":"carry","number":1,"plan":{"version":1}}`, `{"id":12,"do":"carry","plan":[1]}`,
		`{"id":13,"do":"keep"}`, `{"id":14,"do":"dance"}`, `{"id":15,"do":"\ud800"}`, `{"do":{}}`,
		`[]`, `{`, "\xff",
		`{"id":100000000000000000000000000000,"do":"every","steps":1}`,
		`{"id":16,"do":"carry","number":100000000000000000000000000000,"plan":{}}`,
	} {
		f.Add(anOrder(order))
	}
	f.Add(slices.Concat(raw(frameWelcome, `{"version":2}`), anOrder(`{"id":1,"do":"keep"}`),
		anOrder(`{"id":2,"do":"carry","plan":{}}`), raw(frameDetach, "{}")))
	f.Add(slices.Concat(raw(frameWelcome, `{"version":1}`), anOrder(`{"id":1,"do":"keep"}`)))
	f.Add(slices.Concat(raw(250, "later"), raw(frameDetach, "")))
	f.Add([]byte{0, 0, 0, 0, 70})
	f.Add([]byte{255, 255, 255, 255, 70})
	f.Fuzz(func(t *testing.T, stream []byte) {
		x, err := h.hear(stream)
		if err != nil {
			t.Fatalf("the agent met an error: %v\n%s", err, &h.err)
		}
		sent, err := hex.DecodeString(x.Sent)
		if err != nil {
			t.Fatal(err)
		}
		to := receiver{s: &Session{}, sink: capture.NewHistory(capture.Limits{})}
		for r := bytes.NewReader(sent); ; {
			k, payload, err := readFrame(r, maxFrame)
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil {
				err = to.take(t.Context(), k, payload)
			}
			if err != nil {
				t.Fatalf("the agent sends what no viewer reads: %v: %s", err, payload)
			}
		}
	})
}

// TestTheAgentReadsKnownStreams has a few streams with known outcomes.
func TestTheAgentReadsKnownStreams(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	h, err := newHearer()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		stream          []byte
		hungUp, leaving bool
	}{
		"an order":                     {anOrder(`{"id":1,"do":"every","steps":1}`), false, false},
		"a frame of a later version":   {raw(250, "later"), false, false},
		"a goodbye":                    {raw(frameDetach, "{}"), false, true},
		"a viewer of version 1":        {raw(frameWelcome, `{"version":1}`), true, false},
		"no JSON":                      {anOrder("{"), true, false},
		"a plan that is not an object": {anOrder(`{"id":1,"do":"carry","plan":[1]}`), true, false},
		"an empty frame":               {[]byte{0, 0, 0, 0, 70}, true, false},
		"an endless frame":             {[]byte{255, 255, 255, 255, 70}, true, false},
	} {
		if x, err := h.hear(c.stream); err != nil || x.HungUp != c.hungUp || x.Leaving != c.leaving {
			t.Errorf("%s: %+v, %v\n%s", name, x, err, &h.err)
		}
	}
}
