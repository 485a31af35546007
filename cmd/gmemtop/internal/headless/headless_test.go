package headless_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
)

func TestCommandOutputIsPassedOnUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := job.New(job.NewWatch(job.Options{}))
		j.Begin(capture.Info{PID: 1})
		j.Output([]byte("on the screen\n"))
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		printed := func() string {
			b, _ := os.ReadFile(out.Name())
			return string(b)
		}
		streamed := make(chan struct{})
		go func() {
			headless.CopyOutput(t.Context(), out, j)
			close(streamed)
		}()
		synctest.Wait()
		j.Output([]byte("one\n"))
		synctest.Wait()
		if got := printed(); got != "one\n" {
			t.Errorf("while it runs: %q", got)
		}
		j.Output([]byte("two\n"))
		j.End(capture.End{Reason: capture.Exited})
		<-streamed
		if got := printed(); got != "one\ntwo\n" {
			t.Errorf("in all: %q", got)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSealingNamesWhatIsMissing(t *testing.T) {
	for want, s := range map[string]fleet.Sealed{
		"40 steps of 1 process recorded; gmemtop view r1 shows them": {Files: []string{"a"}, Steps: 40},
		"40 steps of 1 process recorded, and 900 older ones as one sum a minute; gmemtop view r1 " +
			"shows them": {Files: []string{"a"}, Steps: 40, Summed: 900},
		"40 steps of 2 processes recorded; gmemtop view r1 shows them; 3 steps never reached the hub; " +
			"the hub " +
			"no longer had the first 7": {Files: []string{"a", "b"}, Steps: 40, Lost: 3, Gone: 7},
	} {
		if got := headless.Sealed(s, "r1"); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}

func TestACaptureSaysWhatShowsIt(t *testing.T) {
	ranks := func(paths ...string) (all []fleet.CapturedRank) {
		for _, path := range paths {
			all = append(all, fleet.CapturedRank{Path: path})
		}
		return all
	}
	for want, all := range map[string][]fleet.CapturedRank{
		"gmemtop replay d/a d/b compares them": ranks("d/a", "", "d/b"),
		"gmemtop replay d shows them":          ranks("d/a", "d/b", "d/c"),
	} {
		table := headless.CapturesOf(fleet.Captured{Dir: "d", Ranks: all})
		if got := table.Next(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
