package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/wholefile"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// exportJob is one export: what writes it and where.
type exportJob struct {
	name, path string
	overwrite  bool
	write      func(ctx context.Context, w io.Writer) error
}

// sharing hands things to other programs: the clipboard, the editor, files.
type sharing struct {
	post      func(tea.Msg)
	editor    string // the user's command, "" for none
	exporters []Exporter
	copied    string // the last copied text, for tests
}

// exportedMsg ends an export.
type exportedMsg struct {
	path  string
	bytes int64
	err   error
}

// existsMsg says that the export's file exists, and carries the job that would overwrite it.
type existsMsg struct{ job exportJob }

// saveMsg starts an export.
type saveMsg struct{ job exportJob }

// followedMsg ends a visit to the editor.
type followedMsg struct{ err error }

// shot is the view in front, drawn without a dialog over it.
type shot struct{ view, coloured, picture string }

func (x *sharing) say(text string, bad bool) { x.post(leaf.ToastMsg{Text: text, Error: bad}) }

// update handles everything about sharing, and its results; ok is false for anything else.
func (x *sharing) update(s *leaf.State, msg tea.Msg) (cmd tea.Cmd, ok bool) {
	switch msg := msg.(type) {
	case leaf.CopyMsg:
		return x.copy(msg.Text, msg.What), true
	case leaf.FollowMsg:
		return x.open(msg.File, msg.Line), true
	case leaf.SaveMsg:
		x.post(openMsg{askPath(exportBase(s.Timeline), msg)})
	case followedMsg:
		if msg.err == nil {
			return tea.ClearScreen, true
		}
		x.say("the editor failed: "+msg.err.Error(), true)
	case saveMsg:
		return export(msg.job), true
	case existsMsg:
		x.post(openMsg{confirmOverwrite(msg.job)})
	case exportedMsg:
		if msg.err != nil {
			x.say("export "+msg.path+": "+msg.err.Error(), true)
			break
		}
		x.say(fmt.Sprintf("wrote %s, %s", msg.path, timeline.IEC.Bytes(msg.bytes)), false)
	default:
		return nil, false
	}
	return nil, true
}

// longestBase is how much of a file's name the dialog shows, so that the rest of the line fits in 80 columns.
const longestBase = 26

// exports lists what can be written to a file.
func (x *sharing) exports(s *leaf.State, screen shot) *dialog.List {
	l := dialog.NewList("Export", "type to search", x.entries(s, screen))
	l.Careful = true
	name := canvas.Truncate(exportBase(s.Timeline), longestBase)
	l.Footer = "written to this folder as " + name + " with the ending on the right"
	return l
}

// entries offers the screen as text, plain and coloured, and the formats that cmd handed in.
func (x *sharing) entries(s *leaf.State, screen shot) []dialog.Entry {
	base := exportBase(s.Timeline)
	job := func(name, ext string, write func(ctx context.Context, w io.Writer) error) dialog.Entry {
		path := base + ext
		return dialog.Entry{
			Group: "Export", Title: name, Detail: ext,
			Msg: saveMsg{exportJob{name: name, path: path, write: write}},
		}
	}
	name := fmt.Sprintf(".%s", strings.ToLower(strings.ReplaceAll(screen.view, " ", "-")))
	entries := []dialog.Entry{
		job("this screen as text", name+".txt", write(ansi.Strip(screen.coloured)+"\n")),
		job("this screen with its colours", name+".ans", write(screen.coloured+"\n")),
		job("this screen as a picture", name+".svg", write(screen.picture)),
	}
	t, d := s.Timeline, s.Device
	for _, e := range x.exporters {
		entries = append(entries, job(e.Name, e.Extension, func(ctx context.Context, w io.Writer) error {
			return e.Write(ctx, w, t, d)
		}))
	}
	if d == nil {
		return entries
	}
	proposed := momentInView(s)
	for _, e := range x.exporters {
		if e.Moment == nil {
			continue
		}
		name, _, _ := strings.Cut(e.Name, ":")
		entries = append(entries, dialog.Entry{
			Group: "One moment", Title: name + ": what is allocated then",
			Detail: "." + proposed + e.Extension, Msg: openMsg{askMoment(base, proposed, name, e, d)},
		})
	}
	return entries
}

// momentInView is the moment under the cursor, in the words of export --at.
func momentInView(s *leaf.State) string {
	if s.Cursor == s.Device.Totals.PeakAt {
		return "peak"
	}
	return strconv.Itoa(max(int(s.Cursor), 0))
}

// askMoment asks which moment to write, and proposes one.
func askMoment(base, proposed, name string, e Exporter, d *timeline.Device) *dialog.Question {
	return dialog.Ask(leaf.AskMsg{
		Title: "moment", Text: proposed, Hint: "peak, end, a time (1.5s), a step (it3), an event (1200)",
		Answer: func(at string) (tea.Msg, error) {
			write, err := e.Moment(d, at)
			if err != nil {
				return nil, err
			}
			path := base + "." + strings.ToLower(strings.ReplaceAll(at, " ", "")) + e.Extension
			return saveMsg{exportJob{name: name, path: path, write: write}}, nil
		},
	})
}

// exportBase is the source's name without its extensions, and without the colon of an embedded sample, since
// scp takes what comes before a colon for a host. Exports go to the current folder.
func exportBase(t *timeline.Timeline) string {
	if t == nil || t.Trace.Source.Path == "" || t.Trace.Source.Path == "-" {
		return "gmemtop"
	}
	name := leaf.Base(t.Trace.Source.Path)
	for {
		i := strings.LastIndexByte(name, '.')
		if i <= 0 || !slices.Contains(traceExtensions, strings.ToLower(name[i+1:])) {
			return strings.ReplaceAll(name, ":", "-")
		}
		name = name[:i]
	}
}

// traceExtensions are the extensions of traces, of which a name may have several: run.pt.trace.json.gz. Other
// dots are part of the name: llama-1.3b.pickle.
var traceExtensions = []string{
	"csv", "gmt", "gz", "html", "json", "pb", "pickle", "pkl", "prof", "pt", "sqlite", "text", "trace", "txt",
	"zip", "zst",
}

func write(text string) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

// export writes a job. A failed export leaves nothing half written.
func export(job exportJob) tea.Cmd {
	return func() tea.Msg {
		if _, err := os.Lstat(job.path); err == nil && !job.overwrite {
			return existsMsg{job}
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return exportedMsg{path: job.path, err: err}
		}
		var size int64
		err := wholefile.Write(job.path, 0o644, func(f *os.File) error {
			if err := job.write(context.Background(), f); err != nil {
				return err
			}
			info, err := f.Stat()
			if err == nil {
				size = info.Size()
			}
			return err
		})
		return exportedMsg{path: job.path, bytes: size, err: err}
	}
}

// askPath asks where to write what a view saves.
func askPath(base string, msg leaf.SaveMsg) *dialog.Question {
	return dialog.Ask(leaf.AskMsg{
		Title: "write " + msg.What + " to", Text: base + msg.Suffix,
		Answer: func(path string) (tea.Msg, error) {
			if path == "" || strings.HasSuffix(path, "/") {
				return nil, errors.New("name a file")
			}
			return saveMsg{exportJob{name: msg.What, path: path, write: msg.Write}}, nil
		},
	})
}

// confirmOverwrite asks before a file is replaced.
func confirmOverwrite(job exportJob) *dialog.List {
	again := job
	again.overwrite = true
	return dialog.NewList(job.path+" exists", "enter chooses", []dialog.Entry{
		{Title: "keep it"},
		{Title: "replace it", Msg: saveMsg{again}},
	})
}
