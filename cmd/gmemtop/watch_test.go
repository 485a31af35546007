package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
)

func TestScreenSaysHowLongTheJobWasStoppedAndWhy(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		stops []inject.Stop
		want  string
	}{
		{[]inject.Stop{{Took: ms / 2}, {Took: ms / 4}},
			"attached by ptrace; the job paused for 750 µs"},
		{[]inject.Stop{{Took: 2 * ms, Starved: ms / 2}, {Took: ms}},
			"attached by ptrace; the job paused for 3.00 ms"},
		{[]inject.Stop{{Took: 8 * ms, Starved: 7 * ms}, {Took: 2 * ms, Starved: ms}},
			"attached by ptrace; the job paused for 10.0 ms, 8.00 ms of it waiting for a " +
				"processor: this machine is overloaded"},
	} {
		got := attachedBy(inject.Report{Mechanism: inject.Ptrace, Stops: c.stops}).Text
		if got != c.want {
			t.Errorf("%v\n%q, want\n%q", c.stops, got, c.want)
		}
	}
}

// -q leaves out what only says how it goes. What went wrong is said nevertheless: a recording that stopped, a
// step that is not captured as the command line asks.
func TestQuietWatchersSayWhatWentWrong(t *testing.T) {
	said, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	c := runCommand{watcher: watcher{app: newApp(nil, said, said, nil)}}
	c.flags.quiet = true
	w, err := c.watch()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	o, err := c.recordOptions("run.gmt", false, "", w.Process)
	if err != nil {
		t.Fatal(err)
	}
	o.Fired(&capture.Trigger{}, capture.Step{}, "all is well")
	o.Failed(errors.New("the disk is gone"))
	c.tellUnmet()(capture.Target{}, "no history here")
	text, err := os.ReadFile(said.Name())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text); strings.Contains(got, "well") || !strings.Contains(got, "the disk is gone") ||
		!strings.Contains(got, "no history here") {
		t.Errorf("said: %s", got)
	}
}
