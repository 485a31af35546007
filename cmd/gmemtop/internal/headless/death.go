package headless

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/replay/whatif"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces/load"
)

const (
	autopsyTime  = 10 * time.Second // at most, before the job's exit code is returned
	autopsyBytes = 1 << 30          // largest recording that is analysed for it
)

// death explains in a few lines why a job ran out of memory, what would help and where to find more. It
// returns nil if the job did not run out of memory.
func death(j *job.Job, units timeline.Units) []string {
	for _, p := range j.Processes() {
		end := p.History.Snapshot().End
		if !end.OutOfMemory {
			continue
		}
		cause, fix := "The process died: out of memory.", ""
		if m, ok := report.ParseMessage(end.Detail); ok {
			cause, fix = m.Sentences(units)
		}
		next := report.RecordNext + ", then " + report.ReadNext
		if files, err := p.Files(); err == nil && len(files) > 0 {
			next, fix = "see what held the memory: gmemtop oom "+files[0], ""
			if s := recordedCause(files[0], units); s != "" {
				cause = s
			}
		}
		// the other processes died of the same cause, or because this one died
		return slices.DeleteFunc([]string{cause, fix, next}, func(line string) bool { return line == "" })
	}
	return nil
}

// recordedCause returns the autopsy's sentence for a recording, "" if it holds no failed request.
func recordedCause(path string, u timeline.Units) string {
	if info, err := os.Stat(path); err != nil || info.Size() > autopsyBytes {
		return ""
	}
	ctx, done := context.WithTimeout(context.Background(), autopsyTime)
	defer done()
	tr, err := load.Open(ctx, path, load.Options{NoCache: true})
	if err != nil {
		return ""
	}
	load.AttachCode(tr)
	t, err := timeline.Build(ctx, tr, nil)
	if err != nil {
		return ""
	}
	r, err := report.NewOOM(ctx, t, report.Options{Units: u})
	if err != nil || !r.Found {
		return ""
	}
	if whatif.Explain(ctx, t, r, u, whatif.Listener{}) != nil {
		return ""
	}
	for _, d := range r.Devices {
		if d.OOM || d.Inferred {
			return d.Sentence
		}
	}
	return ""
}
