package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/tui"
)

// opened loads the trace of a made-up training as replay would with flags, and chooses what opens.
func opened(t *testing.T, from, to, device string) (tui.Loaded, error) {
	t.Helper()
	run, err := newTraining([]string{"steps=5"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run.json")
	if err := os.WriteFile(path, run.json(), 0o666); err != nil {
		t.Fatal(err)
	}
	a := newApp(os.Stdin, os.Stdout, os.Stderr, nil)
	a.flags = flags{from: from, to: to, device: device, units: "iec", color: "auto", noCache: true}
	if err := a.flags.check(); err != nil {
		t.Fatal(err)
	}
	c := replayCommand{a, []string{path}}
	l, err := c.loaded(context.Background(), func(string, int64, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	return l, c.choose(&l)
}

func TestFromAndToChooseWhatTheScreenOpensAt(t *testing.T) {
	whole, err := opened(t, "", "", "")
	if err != nil || whole.End != 0 {
		t.Errorf("without flags: %d to %d, %v", whole.First, whole.End, err)
	}
	l, err := opened(t, "10", "20", "0")
	if err != nil || l.First != 10 || l.End != 20 || l.Device != nil {
		t.Errorf("events 10 to 20: %d to %d, device %v, %v", l.First, l.End, l.Device, err)
	}
	l, err = opened(t, "it1", "it2", "")
	its := steps.Of(l.Timelines[0].Main()).List
	if err != nil || l.First != its[1].First || l.End != its[2].First {
		t.Errorf("ProfilerStep#1, the second iteration: %d to %d, %v", l.First, l.End, err)
	}
	for _, bad := range [][3]string{{"20", "10", ""}, {"it99", "", ""}, {"", "", "7"}} {
		if _, err := opened(t, bad[0], bad[1], bad[2]); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestTheScreenIsASCIIWhereTheTerminalIsSaidToBe(t *testing.T) {
	for env, want := range map[string]bool{
		"": false, "LANG=C": true, "LANG=C.UTF-8": false, "LANG=en_US.utf8": false, "LANG=de_DE.ISO-8859-1": true, "LC_ALL=POSIX": true,
		"TERM=linux": true, "TERM=screen": false,
	} {
		if got := newApp(os.Stdin, os.Stdout, os.Stderr, []string{env}).onlyASCII(); got != want {
			t.Errorf("%s: %v", env, got)
		}
	}
}

// rankTrace is a recording of two events, from one time to another.
func rankTrace(epoch, from, to int64) load.Found {
	b := traces.NewBuilder()
	d := b.Device(traces.DeviceGPU, 0)
	b.T.Clock.Epoch = epoch
	for _, at := range []int64{from, to - 1} {
		b.Event(traces.Event{Time: at, Device: d, Action: traces.Alloc, Addr: uint64(at), Size: 1, Stack: traces.NoStack})
	}
	return load.Found{Trace: b.Finish()}
}

func TestRanksThatHaveNoTimeInCommonAreDrawnFromTheirOwnBeginnings(t *testing.T) {
	spans, apart := runSpans([]load.Found{rankTrace(1000, 0, 50), rankTrace(1000, 20, 90)})
	if apart || spans[0] != (clockSpan{1000, 1090}) || spans[1] != spans[0] {
		t.Errorf("together: %v, apart %v", spans, apart)
	}
	spans, apart = runSpans([]load.Found{rankTrace(1000, 0, 50), rankTrace(90000, 0, 70), rankTrace(0, 0, 10)})
	if want := (clockSpan{90000, 90070}); !apart || spans[1] != want || spans[0] != (clockSpan{1000, 1070}) || spans[2] != (clockSpan{0, 70}) {
		t.Errorf("hours apart: %v, apart %v", spans, apart)
	}
}
