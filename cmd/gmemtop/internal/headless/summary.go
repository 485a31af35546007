package headless

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/hub"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// summary sums up in one line what was seen of a process, or says in several lines why nothing was seen.
func summary(p *job.Process, f *feed.Process, units timeline.Units) []string {
	l, v := f.Look(), p.History.Snapshot()
	n := v.Seen()
	if n == 0 {
		why := ""
		switch {
		case v.Info.Torch != "":
			why = ": no optimizer of torch stepped in the command"
		case len(l.Notices) == 0:
			why = ": the command did not load torch, or ended before the agent could report"
		}
		return append([]string{"no training step was seen" + why}, l.Notices...)
	}
	text := fmt.Sprintf("%d training steps", n)
	if l.Report.Duration > 0 {
		text += ", " + timeline.Duration(l.Report.Duration) + " a step"
	}
	if l.Report.Top >= 0 {
		text += fmt.Sprintf(", %s at most %s", l.Figure, units.Bytes(l.Steps[l.Report.Top].Bytes.Or(0)))
		if peak := v.PeakAllocated().Or(0); peak > 0 {
			text += fmt.Sprintf(" at a step's end and %s at its peak", units.Bytes(peak))
		}
	}
	files, _ := p.Files()
	lines := []string{text + replayed(files)}
	if len(v.Windows) > 0 && !slices.ContainsFunc(v.Windows, func(w capture.Window) bool {
		return w.How != capture.HowOps
	}) {
		lines = append(lines, say.NoLines.Text())
	}
	return lines
}

// untriggered says that no trigger of a recording fired, so that its file holds no captured step.
func untriggered(triggers []string) string {
	return fmt.Sprintf("no step met --trigger %s: the file has the totals of every step, but no captured "+
		"step", strings.Join(triggers, " or "))
}

// SummaryOfProbes sums up the intervals of a recording by probes.
func SummaryOfProbes(v capture.View, files []string, units timeline.Units) string {
	began := v.Steps[0].Start
	if len(v.Rolled) > 0 {
		began = v.Rolled[0].Start
	}
	took := timeline.Duration(v.Steps[len(v.Steps)-1].End - began)
	return fmt.Sprintf("%s, at most %s allocated since attaching", took,
		units.Bytes(v.PeakAllocated().Or(0))) + replayed(files)
}

// replayed says how to open files.
func replayed(files []string) (text string) {
	for _, f := range files {
		text += "; gmemtop replay " + f
	}
	return text
}

// ranks is what became of a job's processes.
type ranks struct {
	text     string   // sums all processes up in one line, "" if the job had only one
	unsaved  []string // a line for each process that could not be recorded
	recorded bool     // at least one was
}

// summaryOfRanks sums up a job of several processes. output is the path to which the first one was recorded.
func summaryOfRanks(j *job.Job, output string) (r ranks) {
	list := j.Processes()
	if len(list) < 2 {
		return r
	}
	var files, steps []string
	for _, p := range list {
		name := p.Info().Name()
		v := p.History.Snapshot()
		steps = append(steps, fmt.Sprintf("%s %d", name, v.Seen()))
		own, unsaved := p.Files()
		switch {
		case unsaved != nil:
			r.unsaved = append(r.unsaved, name+" was not recorded: "+
				report.Printable(strings.TrimSpace(unsaved.Error())))
		case p.ID == 0 && len(own) > 0:
			files = append([]string{fmt.Sprintf("%s (%s)", strings.Join(own, ", "), name)}, files...)
		default:
			files = append(files, own...)
		}
	}
	r.recorded = len(files) > 0
	r.text = fmt.Sprintf("%d processes trained, with steps: %s", len(list), few(steps))
	if len(files) > 1 {
		run := filepath.Dir(output)
		if ext := filepath.Ext(output); len(files) > 2 {
			run = output + " " + strings.TrimSuffix(output, ext) + "-*" + ext
		}
		r.text += fmt.Sprintf("; recorded to %s; as one run: gmemtop replay %s", few(files), run)
	}
	return r
}

// few joins the first few words of a list.
func few(list []string) string {
	const most = 8
	if n := len(list) - most; n > 1 {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(list, ", ")
}

// Where says who can connect to a hub, and the command that shows its run.
func Where(o *hub.Options, join bus.Join) string {
	shows := "gmemtop view --join-file " + console.ShellWord(o.JoinFile)
	switch {
	case o.URL != "":
		return fmt.Sprintf("run %s: %s carries it; %s --creds FILE shows it", o.Run, o.URL, shows)
	case o.Listen != "":
		return fmt.Sprintf("run %s: listening at %s; %s shows it", o.Run, join.Addresses[0], shows)
	}
	return fmt.Sprintf("run %s: listening for programs on this machine; %s shows it", o.Run, shows)
}

// Sealed sums up what a hub wrote to a folder at the end of a run.
func Sealed(s fleet.Sealed, dir string) string {
	processes := "1 process"
	if n := len(s.Files); n != 1 {
		processes = fmt.Sprintf("%d processes", n)
	}
	text := fmt.Sprintf("%d steps of %s recorded", s.Steps, processes)
	if s.Summed > 0 {
		text += fmt.Sprintf(", and %d older ones as one sum a minute", s.Summed)
	}
	text += fmt.Sprintf("; gmemtop view %s shows them", console.ShellWord(dir))
	if s.Lost > 0 {
		text += fmt.Sprintf("; %d steps never reached the hub", s.Lost)
	}
	if s.Gone > 0 {
		text += fmt.Sprintf("; the hub no longer had the first %d", s.Gone)
	}
	return text
}
