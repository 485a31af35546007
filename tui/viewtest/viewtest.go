// Package viewtest drives a view in tests as the root model does, without a terminal: it runs commands
// immediately, applies the messages that views send, and compares the result with golden files.
package viewtest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// Update is the flag that has golden files written again.
var Update = flag.Bool("update", false, "write the golden files again")

// sizes are the sizes of goldens: a narrow, a usual and a wide terminal, less the root's lines.
var sizes = [][2]int{{80, 20}, {120, 36}, {200, 56}}

// Screen is a view with a state of its own.
type Screen struct {
	T     *testing.T
	View  leaf.View
	State *leaf.State
	// Sent are the messages that the view sent since the last call of Send, in order.
	Sent []tea.Msg
}

// Open shows a view of the timelines at the main device's peak, as the root does.
func Open(t *testing.T, v leaf.View, tls ...*timeline.Timeline) *Screen {
	t.Helper()
	sc := &Screen{T: t, View: v, State: State(tls...)}
	sc.Send(leaf.ChangedMsg{})
	return sc
}

// State returns the state that the root begins with: the main device of the first timeline, the cursor at its
// peak.
func State(tls ...*timeline.Timeline) *leaf.State {
	s := &leaf.State{
		Open: leaf.Open{Timelines: tls}, Place: leaf.Place{Selected: timeline.NoAlloc},
		Display: leaf.Display{Theme: theme.Dark()}, Version: 1,
	}
	if len(tls) > 0 {
		s.Timeline = tls[0]
		s.Device = tls[0].Main()
	}
	if d := s.Device; d != nil {
		s.Cursor = d.Totals.PeakAt
		s.Window = d.Full(timeline.AxisTime)
	}
	return s
}

// Send gives the view a message, runs its commands until there are none left, and applies what it sends to
// the shared state.
func (sc *Screen) Send(msg tea.Msg) {
	sc.Sent = nil
	sc.deliver(msg, 0)
}

// Press gives the view keys by name: "down", "enter", "s".
func (sc *Screen) Press(keys ...string) {
	for _, k := range keys {
		sc.Send(Key(k))
	}
}

// Hold presses the left button.
func (sc *Screen) Hold(x, y int) { sc.Send(tea.MouseClickMsg{X: x, Y: y, Button: tea.MouseLeft}) }

// Click clicks the left button at a cell of the view.
func (sc *Screen) Click(x, y int) {
	sc.Hold(x, y)
	sc.Send(tea.MouseReleaseMsg{X: x, Y: y, Button: tea.MouseLeft})
}

// ClickOn clicks the first cell of a text that is on the screen.
func (sc *Screen) ClickOn(w, h int, text string) {
	sc.T.Helper()
	for y, line := range strings.Split(sc.Text(w, h), "\n") {
		if i := strings.Index(line, text); i >= 0 {
			sc.Click(canvas.Width(line[:i]), y)
			return
		}
	}
	sc.T.Fatalf("there is no %q to click on", text)
}

func (sc *Screen) deliver(msg tea.Msg, depth int) {
	if depth > 1000 {
		sc.T.Fatalf("the view never comes to rest; last message %T", msg)
	}
	if cmds, ok := Commands(msg); ok {
		for _, cmd := range cmds {
			if cmd != nil {
				sc.deliver(cmd(), depth+1)
			}
		}
		return
	}
	switch msg.(type) {
	case nil:
		return
	case leaf.CursorMsg, leaf.SelectMsg, leaf.WindowMsg, leaf.QueryMsg, leaf.ShowMsg, leaf.MarkMsg,
		leaf.OpenRankMsg, leaf.ShowRankMsg, leaf.CaptureRanksMsg, leaf.ToastMsg,
		leaf.CopyMsg, leaf.KeyMsg, leaf.FollowMsg, leaf.DeviceMsg, leaf.TimelineMsg, leaf.PickMsg,
		leaf.AskMsg, leaf.SaveMsg:
		sc.Sent = append(sc.Sent, msg)
		if sc.apply(msg) {
			sc.State.Version++
			sc.deliver(leaf.ChangedMsg{}, depth+1)
		}
		return
	}
	if cmd := sc.View.Update(sc.State, msg); cmd != nil {
		sc.deliver(cmd(), depth+1)
	}
}

// Commands returns the commands of a batch or of a sequence, whose type Bubble Tea keeps to itself.
func Commands(msg tea.Msg) ([]tea.Cmd, bool) {
	v := reflect.ValueOf(msg)
	if !v.IsValid() || v.Kind() != reflect.Slice || v.Type().Elem() != reflect.TypeFor[tea.Cmd]() {
		return nil, false
	}
	cmds, ok := v.Convert(reflect.TypeFor[[]tea.Cmd]()).Interface().([]tea.Cmd)
	return cmds, ok
}

// apply changes the state as the root would and reports whether it changed.
func (sc *Screen) apply(msg tea.Msg) bool {
	s := sc.State
	switch m := msg.(type) {
	case leaf.CursorMsg:
		s.Cursor = m.To
	case leaf.SelectMsg:
		s.Selected = m.Alloc
	case leaf.WindowMsg:
		s.Window = m.Window
	case leaf.DeviceMsg:
		s.Device = m.Device
	case leaf.QueryMsg:
		q, err := sites.ParseQuery(m.Text)
		if err != nil {
			sc.T.Fatalf("parse the filter %q: %v", m.Text, err)
		}
		s.Query, s.QueryText = q, m.Text
	default:
		return false
	}
	return true
}

// Text returns what the view draws in w by h cells, without styles.
func (sc *Screen) Text(w, h int) string {
	c := canvas.New(w, h, canvas.TrueColor, false)
	sc.View.Draw(sc.State, c)
	return ansi.Strip(c.String())
}

// ASCII returns what the view draws with only ASCII and no colours.
func (sc *Screen) ASCII(w, h int) string { return sc.mono(w, h, true) }

func (sc *Screen) mono(w, h int, ascii bool) string {
	colour := sc.State.Theme
	sc.State.Theme = theme.Mono()
	defer func() { sc.State.Theme = colour }()
	c := canvas.New(w, h, canvas.NoColor, ascii)
	sc.View.Draw(sc.State, c)
	return ansi.Strip(c.String())
}

// Mono returns what the view draws without colours: glyphs stand for categories, so that the text shows
// everything.
func (sc *Screen) Mono(w, h int) string { return sc.mono(w, h, false) }

// Golden compares the view at every size, with its footer keys and status line, with the golden files of a
// situation.
func (sc *Screen) Golden(situation string) {
	sc.T.Helper()
	for _, w := range []int{0, 1, 7, 30, 60, 139, 300} { // no room is too small or too odd to draw in
		for _, h := range []int{0, 1, 2, 4, 7, 11, 17, 90} {
			sc.Text(w, h)
		}
	}
	for _, size := range sizes {
		w, h := size[0], size[1]
		sc.State.Width, sc.State.Height = w, h
		sc.Mono(w, h)
		sc.Send(leaf.ChangedMsg{}) // what the first frame found out about its room
		text := sc.Mono(w, h)
		for y, line := range strings.Split(text, "\n") {
			if n := canvas.Width(line); n > w {
				sc.T.Errorf("%s at %dx%d: row %d is %d cells wide", situation, w, h, y, n)
			}
		}
		if ascii := sc.ASCII(w, h); strings.Count(ascii, "?") > strings.Count(text, "?") {
			sc.T.Errorf("%s at %dx%d: a rune has no ASCII to stand for it in\n%s", situation, w, h, ascii)
		}
		var hints []string
		for _, b := range sc.View.Bindings(sc.State) {
			if b.Enabled() {
				hints = append(hints, b.Help().Key+" "+b.Help().Desc)
			}
		}
		text = strings.TrimRight(text, "\n") + "\n-- status --\n" + sc.View.Status(sc.State) +
			"\n-- keys --\n" + strings.Join(hints, "  ") + "\n"
		compare(sc.T, fmt.Sprintf("%s-%dx%d", situation, w, h), text)
	}
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *Update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Errorf("%v; write it with go test -update", err)
		return
	}
	if got != string(want) {
		t.Errorf("%s differs from its golden file; look, then go test -update\n%s", name,
			firstDifference(got, string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		var a, b string
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			return fmt.Sprintf("row %d\n got %q\nwant %q", i, a, b)
		}
	}
	return "no row differs"
}

// AtOnce replaces tea.Tick: delays shorter than a second are over at once, longer ones never.
func AtOnce(d time.Duration, say func(time.Time) tea.Msg) tea.Cmd {
	if d >= time.Second {
		return nil
	}
	return func() tea.Msg { return say(time.Time{}) }
}

// Key returns the message of a key by its name.
func Key(name string) tea.KeyPressMsg {
	named := map[string]rune{
		"up": tea.KeyUp, "down": tea.KeyDown, "left": tea.KeyLeft, "right": tea.KeyRight,
		"pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp,
		"home": tea.KeyHome, "end": tea.KeyEnd, "enter": tea.KeyEnter, "tab": tea.KeyTab,
		"esc": tea.KeyEscape, "space": tea.KeySpace,
	}
	if code, ok := named[name]; ok {
		return tea.KeyPressMsg{Code: code}
	}
	if name == "shift+tab" {
		return tea.KeyPressMsg{Code: tea.KeyTab, Mod: tea.ModShift}
	}
	r := []rune(name)[0]
	return tea.KeyPressMsg{Code: r, Text: name}
}
