package report

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

func TestEveryWordingOfPyTorchsMessageIsUnderstood(t *testing.T) {
	text, err := os.ReadFile("testdata/messages.txt") // release, part of the sentence, message
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		c := strings.Split(strings.TrimSpace(line), "\t")
		name, want := c[0], c[1]

		m, ok, err := ReadMessage(strings.NewReader("step 1\n" + c[2] + "\nexit 1\n"))
		if err != nil || !ok || m.Tried == nil || m.Total == nil || m.Free == nil || m.Allocated == nil {
			t.Errorf("%s: %+v, %v", name, m, err)
			continue
		}
		cause, fix := m.Sentences(timeline.IEC)
		if !strings.Contains(cause, want) {
			t.Errorf("%s: %s", name, cause)
		}
		if name == "2.15" && (*m.Allowed != 7<<30+1<<29 || *m.PoolsIdle != 1<<20 || m.Device.Or(-1) != 0) {
			t.Errorf("%s: %+v", name, m)
		}
		old := strings.HasPrefix(name, "1.") || strings.HasPrefix(name, "2.0")
		if strings.Contains(fix, "expandable_segments") && strings.Contains(fix, "Update torch") != old {
			t.Errorf("%s: expandable segments came with torch 2.1: %s", name, fix)
		}
		if strings.Contains(c[2], "cached") &&
			(m.Reserved != nil || m.Unallocated == nil || *m.Unallocated == 0) {
			t.Errorf("%s: cached is what is reserved and not allocated: %+v", name, m)
		}
	}
	if _, ok, _ := ReadMessage(strings.NewReader("MemoryError: out of memory\n")); ok {
		t.Error("a message without figures is taken for PyTorch's")
	}
}

func TestAMessageInARecordingWithoutTheFailedRequestIsExplained(t *testing.T) {
	for _, died := range []bool{true, false} {
		b := traces.NewBuilder()
		if died {
			b.Lose(traces.LossOutOfMemory, traces.Info, 1, "the process died: OutOfMemoryError: CUDA out of "+
				"memory. Tried to allocate 250.00 MiB. GPU 0 has a total capacity of 6.00 GiB of which "+
				"24.00 MiB is free.")
		}
		tl, err := timeline.Build(context.Background(), b.Finish(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewOOM(context.Background(), tl, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var text, json strings.Builder
		if err := errors.Join(r.WriteText(&text, Options{}), WriteJSON(&json, r)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), "24.0 MiB free of 6.00 GiB") != died || r.Found {
			t.Errorf("died %t, found %t: %s", died, r.Found, text.String())
		}
		if strings.Contains(json.String(), `"tried_bytes": 262144000`) != died ||
			strings.Contains(json.String(), `"message": null`) == died {
			t.Errorf("died %t: %s", died, json.String())
		}
	}
}

func TestAMessageWithoutADeviceHasNumberMinusOneInJSON(t *testing.T) {
	const tried = "out of memory. Tried to allocate 20.00 MiB"
	for line, want := range map[string]string{
		"CUDA " + tried + ".":                        `"device":-1,`,
		"CUDA " + tried + ". GPU 0 has a total":      `"device":0,`,
		"CUDA " + tried + " (GPU 3; 2.00 GiB total)": `"device":3,`,
	} {
		m, ok := ParseMessage(line)
		text, err := json.Marshal(m)
		if !ok || err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%q: %s, %v, want %s", line, text, err, want)
		}
		var back Message
		if err := json.Unmarshal(text, &back); err != nil || back.Device != m.Device {
			t.Errorf("%s is read as device %v, %v", text, back.Device, err)
		}
	}
}
