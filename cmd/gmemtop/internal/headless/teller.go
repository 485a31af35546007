package headless

import (
	"fmt"
	"io"

	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/timeline"
)

// Teller says at the end of a command what it watched.
type Teller struct {
	// Note says something unless the user wants to hear less, Complain says it anyway.
	Note, Complain func(text string)
	Units          timeline.Units
	// Triggers are those of --trigger: only steps around them are captured.
	Triggers []string
	// Terminal says that the output goes to a terminal: a summary is printed even if no file was written.
	Terminal bool
}

// Process sums up in one line what was seen of a process. That its file holds no step is a complaint.
func (t *Teller) Process(p *job.Process, f *feed.Process) {
	if !p.Recorded() && !t.Terminal {
		return
	}
	tell := t.Note
	if v := p.History.Snapshot(); p.Recorded() && v.Seen() == 0 {
		tell = t.Complain
	}
	for _, text := range summary(p, f, t.Units) {
		tell(text)
	}
	if p.Recorded() && len(t.Triggers) > 0 && !p.Triggered() {
		t.Note(untriggered(t.Triggers))
	}
}

// Ranks sums up a job of several processes, the first of which was recorded to output. It complains about a
// process that could not be recorded.
func (t *Teller) Ranks(j *job.Job, output string) {
	r := summaryOfRanks(j, output)
	for _, text := range r.unsaved {
		t.Complain(text)
	}
	if r.text != "" && (r.recorded || t.Terminal) {
		t.Note(r.text)
	}
}

// Death explains below the traceback, which stands on w, why a job ran out of memory.
func (t *Teller) Death(w io.Writer, j *job.Job) {
	for i, text := range death(j, t.Units) {
		if i == 0 {
			fmt.Fprintln(w)
		}
		t.Complain(text)
	}
}
