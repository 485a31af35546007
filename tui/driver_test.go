package tui

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/managers"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

// driver is a model with a stopped clock and commands that run at once.
type driver struct {
	t testing.TB
	m *model
	// quit is set when the model asks to quit; ran has the commands' messages that bubbletea handles itself,
	// by their type's name.
	quit   bool
	ran    map[string]int
	frames []string // the last few, oldest first
}

func loaderOf(tls ...*timeline.Timeline) Loader {
	return func(context.Context, func(string, int64, int64)) (Loaded, error) {
		return Loaded{Timelines: tls}, nil
	}
}

// start opens the model at a size and runs it until it rests.
func start(t testing.TB, opts Options, w, h int) *driver {
	t.Helper()
	if opts.Theme == "" {
		opts.Theme = "dark"
	}
	if opts.StateDir == "" {
		opts.StateDir = t.TempDir()
	}
	d := &driver{t: t, m: newModel(opts), ran: map[string]int{}}
	at := time.Unix(1700000000, 0)
	d.m.now = func() time.Time { return at }
	quick(d.m)
	d.m.after = func(time.Duration, func(time.Time) tea.Msg) tea.Cmd { return nil }
	d.send(tea.WindowSizeMsg{Width: w, Height: h})
	d.run(d.m.Init())
	return d
}

// quick makes short waits end at once, such as the one after a budget changes, and waits of a second never.
func quick(m *model) {
	v, ok := m.tabs.of(leaf.Managers).(*managers.View)
	if !ok {
		return
	}
	v.After = func(d time.Duration, say func(time.Time) tea.Msg) tea.Cmd {
		if d >= time.Second {
			return nil
		}
		return func() tea.Msg { return say(time.Time{}) }
	}
}

func (d *driver) send(msg tea.Msg) {
	_, cmd := d.m.Update(msg)
	d.run(cmd)
	d.frames = append(d.frames[max(0, len(d.frames)-8):], ansi.Strip(d.m.View().Content))
}

// run runs a command and all that follow from it.
func (d *driver) run(cmd tea.Cmd) {
	d.each(cmd, func(msg tea.Msg) {
		if _, ok := msg.(tea.QuitMsg); ok {
			d.quit = true
			return
		}
		d.ran[reflect.TypeOf(msg).Name()]++
		d.send(msg)
	})
}

// each runs a command and passes on its messages. Batches and sequences are slices of commands.
func (d *driver) each(cmd tea.Cmd, f func(tea.Msg)) {
	if cmd == nil {
		return
	}
	msg := cmd()
	if msg == nil {
		return
	}
	if v := reflect.ValueOf(msg); v.Kind() == reflect.Slice &&
		v.Type().Elem() == reflect.TypeOf(tea.Cmd(nil)) {
		for i := range v.Len() {
			d.each(v.Index(i).Interface().(tea.Cmd), f)
		}
		return
	}
	f(msg)
}

func (d *driver) press(keys ...string) {
	for _, k := range keys {
		d.send(keyPress(k))
	}
}

// typeText presses the keys of a text.
func (d *driver) typeText(text string) {
	for _, r := range text {
		if r == ' ' {
			d.press("space")
			continue
		}
		d.press(string(r))
	}
}

// own returns the keys of the view in front.
func (d *driver) own() []key.Binding { return d.m.tabs.bindings(&d.m.state, d.m.loader.idle()) }

func (d *driver) screen() string { return ansi.Strip(d.m.View().Content) }

// click clicks the first place of a text on the screen.
func (d *driver) click(text string) {
	d.t.Helper()
	for y, line := range strings.Split(d.screen(), "\n") {
		if i := strings.Index(line, text); i >= 0 {
			x := canvas.Width(line[:i])
			d.send(tea.MouseClickMsg{X: x, Y: y, Button: tea.MouseLeft})
			d.send(tea.MouseReleaseMsg{X: x, Y: y, Button: tea.MouseLeft})
			return
		}
	}
	d.t.Fatalf("there is no %q to click on:\n%s", text, d.screen())
}

func (d *driver) wants(texts ...string) {
	d.t.Helper()
	for _, text := range texts {
		if !strings.Contains(d.screen(), text) {
			d.t.Errorf("%q is not on the screen:\n%s", text, d.screen())
		}
	}
}

// golden compares the screen with its golden file.
func (d *driver) golden(name string) {
	d.t.Helper()
	d.goldenText(name, d.screen()+"\n")
}

// goldenText compares a text with its golden file.
func (d *driver) goldenText(name, got string) {
	d.t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *viewtest.Update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			d.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			d.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatalf("%v (write it with go test ./tui -update)", err)
	}
	if got != string(want) {
		d.t.Errorf("%s differs (accept it with go test ./tui -update):\n--- got\n%s--- want\n%s",
			path, got, want)
	}
}

// errDamaged is a reader's error for a damaged file.
var errDamaged = &traces.FormatError{
	Format: "torch_snapshot", Offset: 4711, Reason: "the pickle ends inside a string",
	Advice: "the file was cut: copy it again",
	Err:    errors.New("unexpected end of file"),
}
