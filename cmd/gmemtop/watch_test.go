package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
)

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
	headless.OncePerText(c.complain)(capture.Info{}, "no history here")
	text, err := os.ReadFile(said.Name())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text); strings.Contains(got, "well") || !strings.Contains(got, "the disk is gone") ||
		!strings.Contains(got, "no history here") {
		t.Errorf("said: %s", got)
	}
}
