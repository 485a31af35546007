package headless

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// TestAnUnmetTriggerIsTold: the file then has no step to look at, and nothing else would say why.
func TestAnUnmetTriggerIsTold(t *testing.T) {
	for allocated, want := range map[int64]string{
		1000: "no step met --trigger allocated>1KiB or oom: the file has the totals of every step, but no " +
			"captured step",
		2000: "",
	} {
		k := Keeping{Triggers: []string{"allocated>1KiB", "oom"}}
		o, err := k.parsed(filepath.Join(t.TempDir(), "run.gmt"))
		if err != nil {
			t.Fatal(err)
		}
		w := job.NewWatch(job.Options{})
		p := w.Process
		if err := p.Record(o); err != nil {
			t.Fatal(err)
		}
		p.Begin(capture.Info{PID: 1, Torch: "2.15"})
		p.Step(capture.Step{Index: 0, End: 1, Allocated: maybe.Known(allocated)})
		var said []string
		teller := Teller{Note: func(text string) { said = append(said, text) }, Units: timeline.IEC,
			Triggers: k.Triggers}
		f := feed.NewProcess(p, "")
		stop := f.Start()
		for len(f.Look().Steps) == 0 {
			runtime.Gosched()
		}
		stop()
		teller.Process(p, f)
		if got := said[len(said)-1]; strings.HasPrefix(got, "no step met") != (want != "") ||
			want != "" && got != want {
			t.Errorf("%d bytes: it says %q", allocated, said)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
