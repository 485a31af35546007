package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The first ctrl-c while managers plan ends planning, not the command: it shows what there is, says that it
// was stopped early, and ends as an interrupted command does. Then ctrl-c is no longer held back.
func TestCtrlCWhilePlanningShowsWhatThereIs(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"compare", "--network", "vgg16", "--batch", "64", "--budget", "5GiB", "--managers", "joint",
			"--work", "1000000000000"},
		{"plan", "--network", "vgg16", "--batch", "64", "--budget", "5GiB", "--manager", "joint",
			"--work", "1000000000000"},
	} {
		file, err := os.Create(filepath.Join(t.TempDir(), "streams"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		a := newApp(file, file, file, nil)
		ended := make(chan int)
		go func() { ended <- a.execute(t.Context(), args) }()
		for held := false; !held; time.Sleep(time.Millisecond) {
			held = true
			a.Handle(os.Interrupt, func() { held = false })
		}
		if code := <-ended; code != exitInterrupted {
			t.Errorf("%s: exit code %d", args[0], code)
		}
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte("stopped early")) &&
			!bytes.Contains(text, []byte("was stopped before")) {
			t.Errorf("%s printed %q", args[0], text)
		}
		over := false
		if a.Handle(os.Interrupt, func() { over = true }); !over {
			t.Errorf("%s: a further ctrl-c is held back", args[0])
		}
	}
}
