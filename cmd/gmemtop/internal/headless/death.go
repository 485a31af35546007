package headless

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
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

// death explains in a few lines why a job ran out of memory or was killed, what would help and where to find
// more. It returns nil if the job ended otherwise.
func death(j *job.Job, units timeline.Units) []string {
	for _, p := range j.Processes() {
		end := p.History.Snapshot().End
		if !end.OutOfMemory {
			continue
		}
		cause, fix := "The process died: out of memory.", ""
		m, ok, _ := report.ReadMessage(strings.NewReader(end.Detail))
		if ok {
			cause, fix = m.Sentences(units)
		}
		if ok && !m.OnGPU() { // a recording of the GPU's memory does not show it
			return []string{cause, fix, resident(j, units)}
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
	return killed(j, units)
}

// killed explains the end of a job by SIGKILL, nil if it ended otherwise.
func killed(j *job.Job, units timeline.Units) []string {
	const code = 128 + 9
	end, _ := j.Over()
	was := end.Code.Or(0) == code
	for _, p := range j.Processes() {
		was = was || p.History.Snapshot().End.Code.Or(0) == code
	}
	if !was {
		return nil
	}
	m := report.Killed()
	cause, fix := m.Sentences(units)
	return []string{cause, fix, resident(j, units)}
}

// resident says how much of the host's memory the processes held.
func resident(j *job.Job, units timeline.Units) string {
	var sum int64
	list := j.Processes()
	for _, p := range list {
		v := p.History.Snapshot()
		for i := len(v.Steps) - 1; i >= 0; i-- {
			if n, known := v.Steps[i].RSS.Value(); known {
				sum += n
				break
			}
		}
	}
	if sum == 0 {
		return "gmemtop saw no step, so it does not know how much of the host's memory the job held."
	}
	who := "the job"
	if len(list) > 1 {
		who = fmt.Sprintf("the %d processes that trained", len(list))
	}
	return fmt.Sprintf("At the last step that was seen, %s held %s of the host's memory, workers not "+
		"counted.", who, units.Bytes(sum))
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
