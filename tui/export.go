package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// exportJob is one export: what writes it and where to.
type exportJob struct {
	name, path string
	overwrite  bool
	write      func(ctx context.Context, w io.Writer) error
}

// exports lists what can be written to a file.
func (m *Model) exports() *dialog.List {
	l := dialog.NewList("Export", "type to search", m.exportEntries())
	l.Footer = "files are written to the current folder"
	return l
}

// exportEntries offers the screen as text, plain and coloured, and the formats that cmd handed in.
func (m *Model) exportEntries() []dialog.Entry {
	base := exportBase(m.state.Timeline)
	job := func(name, ext string, write func(ctx context.Context, w io.Writer) error) dialog.Entry {
		path := base + ext
		return dialog.Entry{
			Group: "Export", Title: name, Detail: path, Msg: saveMsg{exportJob{name: name, path: path, write: write}},
		}
	}
	screen := fmt.Sprintf(".%s", strings.ToLower(strings.ReplaceAll(m.tabs.view().Name(), " ", "-")))
	coloured := m.bare(m.screen.canvas.String)
	entries := []dialog.Entry{
		job("this screen as text", screen+".txt", write(ansi.Strip(coloured)+"\n")),
		job("this screen with its colours", screen+".ans", write(coloured+"\n")),
		job("this screen as a picture", screen+".svg", write(m.picture())),
	}
	t, d := m.state.Timeline, m.state.Device
	for _, x := range m.opts.Exporters {
		entries = append(entries, job(x.Name, x.Extension, func(ctx context.Context, w io.Writer) error {
			return x.Write(ctx, w, t, d)
		}))
	}
	return entries
}

// exportBase is the source's name without its extensions: exports lie beside each other in the current
// folder.
func exportBase(t *timeline.Timeline) string {
	name := "gmemtop"
	if t != nil && t.Trace.Source.Path != "" && t.Trace.Source.Path != "-" {
		name = leaf.Base(t.Trace.Source.Path)
		if i := strings.IndexByte(name, '.'); i > 0 {
			name = name[:i]
		}
	}
	return name
}

// picture is the view as SVG.
func (m *Model) picture() string {
	fore, back := m.state.Theme.Ground()
	return m.bare(func() string { return m.screen.canvas.SVG(fore, back) })
}

// bare takes the view as it is drawn without a dialog over it. The frame is drawn when the export starts.
func (m *Model) bare(take func() string) string {
	dialogs := m.dialogs
	m.dialogs = dialog.Stack{}
	m.draw()
	text := take()
	m.dialogs = dialogs
	return text
}

func write(text string) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

// export writes a job to a file beside its place first, so that an export that fails leaves nothing half
// written.
func export(job exportJob) tea.Cmd {
	return func() tea.Msg {
		if _, err := os.Lstat(job.path); err == nil && !job.overwrite {
			return existsMsg{job}
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return exportedMsg{path: job.path, err: err}
		}
		f, err := os.CreateTemp(filepath.Dir(job.path), ".gmemtop-*")
		if err != nil {
			return exportedMsg{path: job.path, err: err}
		}
		defer os.Remove(f.Name())
		err = job.write(context.Background(), f)
		info, statErr := f.Stat()
		if err = errors.Join(err, statErr, f.Close()); err == nil {
			err = errors.Join(os.Chmod(f.Name(), 0o644), os.Rename(f.Name(), job.path))
		}
		if err != nil {
			return exportedMsg{path: job.path, err: err}
		}
		return exportedMsg{path: job.path, bytes: info.Size()}
	}
}

func (m *Model) onExported(msg exportedMsg) tea.Cmd {
	if msg.err != nil {
		return m.toast.say("export "+msg.path+": "+msg.err.Error(), true)
	}
	return m.toast.say(fmt.Sprintf("wrote %s, %s", msg.path, timeline.IEC.Bytes(msg.bytes)), false)
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
