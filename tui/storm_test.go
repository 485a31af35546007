package tui

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/managers/plannertest"
)

// The storm: somebody leans on the keyboard, waves the mouse and drags the window's corner, while answers
// to slow questions come late and out of order. Whatever happens, nothing panics, no line is longer than the
// terminal is wide, no frame has more lines than it is high, and a frame is drawn from what is known, without
// waiting for anything.

// storm is a driver whose commands are answered at random times, as in bubbletea.
type storm struct {
	*driver
	rng     *rand.Rand
	waiting []tea.Cmd
	log     []string
}

func newStorm(t testing.TB, seed uint64, opts Options) *storm {
	opts.StateDir = t.TempDir()
	s := &storm{driver: &driver{t: t, m: newModel(opts), ran: map[string]int{}},
		rng: rand.New(rand.NewPCG(seed, 99))}
	s.m.now = func() time.Time { return time.Unix(1700000000, 0) }
	quick(s.m)
	s.m.after = func(time.Duration, func(time.Time) tea.Msg) tea.Cmd { return nil }
	s.waiting = append(s.waiting, s.m.Init())
	return s
}

// step makes one thing happen, and checks the frame.
func (s *storm) step() {
	s.t.Helper()
	var msg tea.Msg
	switch n := s.rng.IntN(100); {
	case n < 30 && len(s.waiting) > 0:
		i := s.rng.IntN(len(s.waiting))
		cmd := s.waiting[i]
		s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
		s.answer(cmd)
		return
	case n < 75:
		msg = keyPress(stormKeys[s.rng.IntN(len(stormKeys))])
	case n < 90:
		msg = s.mouse()
	case n < 94:
		msg = tea.WindowSizeMsg{Width: 1 + s.rng.IntN(300), Height: 1 + s.rng.IntN(100)}
	case n < 96:
		msg = tea.WindowSizeMsg{Width: 60 + s.rng.IntN(100), Height: 16 + s.rng.IntN(40)}
	default:
		msg = s.odd()
	}
	s.feed(msg)
}

// answer runs a command and hands its messages over, those of batches later and in any order.
func (s *storm) answer(cmd tea.Cmd) {
	s.t.Helper()
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case nil:
	case tea.BatchMsg:
		s.waiting = append(s.waiting, msg...)
	default:
		s.each(func() tea.Msg { return msg }, s.feed) // a sequence's commands run in order
	}
}

func (s *storm) feed(msg tea.Msg) {
	s.t.Helper()
	switch msg.(type) {
	case tea.QuitMsg, tea.SuspendMsg:
		return
	}
	s.log = append(s.log, fmt.Sprintf("%T %.80v", msg, msg))
	_, cmd := s.m.Update(msg)
	if cmd != nil {
		s.waiting = append(s.waiting, cmd)
	}
	s.look()
}

// look draws a frame and checks its size.
func (s *storm) look() {
	s.t.Helper()
	lines := strings.Split(ansi.Strip(s.m.View().Content), "\n")
	if len(lines) > s.m.screen.height {
		s.fail("the frame has %d lines, the terminal %d", len(lines), s.m.screen.height)
	}
	for y, line := range lines {
		if w := canvas.Width(line); w > s.m.screen.width {
			s.fail("line %d is %d cells wide, the terminal %d: %q", y, w, s.m.screen.width, line)
		}
	}
}

func (s *storm) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf(format+"\nlast: %s", append(args, strings.Join(s.log[max(len(s.log)-12, 0):], "\n      "))...)
}

var stormKeys = append(strings.Fields(`left right up down home end pgup pgdown enter enter esc esc tab shift+tab backspace space
	1 2 3 4 5 6 7 8 9 0 a b c d e f g h i j k l m n o p r s t u v w x y z
	A B D F G H J K L M N S T V W Z , . ; ' / ? : + - = _ [ ] { } < > ( )
	ctrl+p ctrl+u ctrl+d ctrl+l ctrl+a shift+up shift+down shift+left shift+right delete f1`), "é", "漢", "\u0301")

var stormQueries = []string{"live", "size>1KiB sort:-size", "cat:activation forward", "stack:0", "site:0",
	"nothing matches this", ""}

func (s *storm) mouse() tea.Msg {
	m := tea.Mouse{X: s.rng.IntN(s.m.screen.width+4) - 2, Y: s.rng.IntN(s.m.screen.height+4) - 2,
		Button: tea.MouseLeft}
	if s.rng.IntN(4) == 0 {
		m.Mod = tea.ModCtrl
	}
	switch s.rng.IntN(6) {
	case 0, 1:
		return tea.MouseClickMsg(m)
	case 2:
		return tea.MouseReleaseMsg(m)
	case 3:
		return tea.MouseMotionMsg(m)
	case 4:
		m.Button = tea.MouseWheelUp
	default:
		m.Button = tea.MouseWheelDown
	}
	return tea.MouseWheelMsg(m)
}

// odd makes rare input: other colours, pastes, messages that views send, with values that make no sense.
func (s *storm) odd() tea.Msg {
	n := 1
	if d := s.m.state.Device; d != nil {
		n = d.Len() + 2
	}
	at := timeline.Moment(s.rng.IntN(n+1) - 1)
	return []tea.Msg{
		tea.ColorProfileMsg{Profile: colorprofile.Profile(s.rng.IntN(6))},
		tea.PasteMsg{Content: "size>1MiB \x1b[31m\n\tforward"},
		tea.FocusMsg{}, tea.BlurMsg{}, tea.ResumeMsg{},
		leaf.CursorMsg{To: at}, leaf.CursorMsg{To: timeline.Never}, leaf.MarkMsg{At: at}, leaf.UnmarkMsg{},
		leaf.SelectMsg{Alloc: timeline.AllocID(s.rng.IntN(n+1) - 1)},
		leaf.QueryMsg{Text: stormQueries[s.rng.IntN(len(stormQueries))]},
		leaf.ShowMsg{View: leaf.ID("0123456789:m"[s.rng.IntN(12)])},
		leaf.WindowMsg{Window: timeline.Window{Axis: timeline.Axis(s.rng.IntN(2)), From: s.rng.Int64N(1000),
			To: s.rng.Int64N(1 << 40)}},
		tickMsg{}, toastEndMsg{number: 1}, dialog.RowMsg{Row: s.rng.IntN(9)}, dialog.CloseMsg{},
		runMsg{"peak"}, runMsg{"no such action"},
	}[s.rng.IntN(19)]
}

func (s *storm) run(steps int) {
	s.t.Helper()
	s.feed(tea.WindowSizeMsg{Width: 120, Height: 40})
	for range steps {
		s.step()
	}
}

// stormy are small sessions of every kind.
func stormy(t testing.TB) map[string]Options {
	loads := func(l Loaded) Options {
		return Options{Loader: func(context.Context, func(string, int64, int64)) (Loaded, error) {
			return l, nil
		}}
	}
	out := map[string]Options{
		"training": loads(Loaded{Timelines: []*timeline.Timeline{training(t, "runs/a.gmt", 0)}}),
		"two": loads(Loaded{Timelines: []*timeline.Timeline{twoDevices(t),
			training(t, "runs/b.gmt", 64<<20)}}),
		"ascii": loads(Loaded{Timelines: []*timeline.Timeline{training(t, "runs/a.gmt", 0)}}),
		"empty": loads(Loaded{}),
		"failed": {Loader: func(context.Context, func(string, int64, int64)) (Loaded, error) {
			return Loaded{}, errDamaged
		}},
		"partial": {Loader: func(context.Context, func(string, int64, int64)) (Loaded, error) {
			return Loaded{Timelines: []*timeline.Timeline{training(t, "runs/cut.gmt", 0)}}, errDamaged
		}},
		"no events": loads(Loaded{Timelines: []*timeline.Timeline{built(t, traces.NewBuilder())}}),
	}
	out["ranks"] = loads(Loaded{Run: nineRanks(t),
		Timelines: []*timeline.Timeline{training(t, "runs/rank8.gmt", 1<<30)}})
	o := out["ranks"]
	o.Open = func(path string) Loader { return loaderOf(training(t, path, 0)) }
	out["ranks"] = o
	o = out["training"]
	o.Planner, o.View = &plannertest.Planner{}, leaf.Managers
	out["managers"] = o
	o = out["ascii"]
	o.Planner = &plannertest.Planner{NoClock: true}
	o.ASCII, o.Color = true, "never"
	out["ascii"] = o
	return out
}

func built(t testing.TB, b *traces.Builder) *timeline.Timeline {
	tl, err := timeline.Build(context.Background(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func TestNoStormOfInputBreaksTheScreen(t *testing.T) {
	for name, opts := range stormy(t) {
		t.Run(name, func(t *testing.T) {
			t.Setenv("EDITOR", "")
			t.Setenv("VISUAL", "")
			t.Chdir(t.TempDir()) // exports go somewhere
			for seed := range uint64(4) {
				newStorm(t, seed, opts).run(400)
			}
		})
	}
}

// TestNoStormBreaksTheScreenOfRealTraces runs the storm on one trace of each kind.
func TestNoStormBreaksTheScreenOfRealTraces(t *testing.T) {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: real traces")
	}
	kinds, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		if !kind.IsDir() {
			continue
		}
		files, err := os.ReadDir(filepath.Join(root, kind.Name()))
		if err != nil {
			t.Fatal(err)
		}
		done := 0
		for _, f := range files {
			if info, err := f.Info(); err != nil || f.IsDir() || info.Size() > 400<<10 || done == 2 {
				continue
			}
			tr, _ := load.Open(t.Context(), filepath.Join(root, kind.Name(), f.Name()),
				load.Options{NoCache: true})
			if tr == nil {
				continue
			}
			done++
			tl, err := timeline.Build(t.Context(), tr, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(fmt.Sprintf("%s %d", kind.Name(), done), func(t *testing.T) {
				t.Setenv("EDITOR", "")
				t.Setenv("VISUAL", "")
				t.Chdir(t.TempDir())
				newStorm(t, 5, Options{Loader: loaderOf(tl)}).run(300)
			})
		}
	}
}
