package pool_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/pool"
	"github.com/gmemtop/gmemtop/traces"
)

// script reads a recording: "+a 640" allocates, "-a" frees, "|" ends a step; a name's first letter is its
// address, "+a 640 2" is of thread 2.
func script(text string) pool.Recording {
	r := pool.Recording{Device: "cpu", Thread: 1}
	for i, line := range strings.Split(text, ",") {
		e := pool.Event{Time: int64(100 + i/3), Thread: 1} // times repeat
		var name string
		switch line = strings.TrimSpace(line); line[0] {
		case '+':
			_, _ = fmt.Sscanf(line[1:], "%s %d %d", &name, &e.Size, &e.Thread)
		case '-':
			e.Kind, name, e.Thread = pool.Free, line[1:], 3 // any thread may free
		case '|':
			e.Kind, name = pool.Step, "\x00"
		}
		e.Address = uint64(name[0])
		r.Events = append(r.Events, e)
	}
	return r
}

func TestARecordingBecomesATrace(t *testing.T) {
	tr, err := pool.FromEvents(script("+a 640, +b 100, +c 900 2, -a, -b, -c, |, +a 700, +d 800, |, -a, +a " +
		"640, |, -d"))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for i := range tr.Events.Len() {
		e := tr.Events.At(i)
		said = append(said, fmt.Sprintf("%s %c %d", e.Action, rune(e.Addr), e.Size))
		if i > 0 && e.Time <= tr.Events.Time[i-1] {
			t.Errorf("event %d is at %d, after one at %d", i, e.Time, tr.Events.Time[i-1])
		}
	}
	want := []string{"alloc a 640", "free a 640", "alloc a 700", "alloc d 800", "free a 700", "alloc a 640",
		"free d 800"}
	if !slices.Equal(said, want) {
		t.Errorf("events %q, not %q", said, want)
	}
	if tr.Kind() != traces.Lifetimes || len(tr.Marks) != 3 || tr.Marks[0].End != tr.Marks[1].Start ||
		len(tr.Losses) != 0 || tr.Devices[0].Kind != traces.DeviceCPU {
		t.Errorf("%v, %+v, %+v, %+v", tr.Kind(), tr.Marks, tr.Losses, tr.Devices)
	}
}

func TestADamagedRecordingIsAnErrorOrALoss(t *testing.T) {
	for _, c := range []struct {
		r    pool.Recording
		want string
	}{
		{pool.Recording{Device: "cpu"}, "record until one has ended"},
		{pool.Recording{Device: "xpu:0", Events: script("|").Events}, `device "xpu:0"`},
		{pool.Recording{Device: "cuda:-1", Events: script("|").Events}, "cuda:-1"},
		{pool.Recording{Device: "cuda:999", Events: script("|").Events}, "cuda:999"},
		{pool.Recording{Device: "cpu", Events: []pool.Event{{Size: -5}}}, "allocates -5 bytes"},
		{pool.Recording{Device: "cpu", Events: []pool.Event{{Size: 1 << 60}}}, "record again"},
		{pool.Recording{Device: "cpu", Events: []pool.Event{{Size: 640, Time: -1}}}, "at -1 ns"},
	} {
		if _, err := pool.FromEvents(c.r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, not %q", err, c.want)
		}
	}
	r := script("+a 640, +a 700, -z, |")
	r.Lost = 7
	tr, err := pool.FromEvents(r)
	if err != nil || len(tr.Losses) != 2 || tr.Events.Len() != 3 {
		t.Errorf("%v, %+v", err, tr)
	}
}

func FuzzRecording(f *testing.F) {
	f.Add(`{"device":"cpu","thread":1,"lost":0,"events":[[0,640,0,1,4096,5],[1,0,0,1,4096,6],[2,0,0,1,0,7]]}`)
	f.Add(`{"device":"cuda:3","events":[[0,640,18446744073709551615,1,4096,9223372036854775807],` +
		`[2,0,0,1,0,-9223372036854775808],[0,1,0,1,4096,5]]}`)
	f.Add(`{"device":"cpu","events":[[3,0,0,0,0,0]]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var r pool.Recording
		if json.Unmarshal([]byte(text), &r) != nil {
			return
		}
		tr, err := pool.FromEvents(r)
		if err != nil {
			return
		}
		for i := range tr.Events.Len() {
			if i > 0 && tr.Events.Time[i] <= tr.Events.Time[i-1] {
				t.Fatalf("event %d is not after the previous one", i)
			}
		}
	})
}
