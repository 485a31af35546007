package tui

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

func open120(t *testing.T, keys ...string) *driver {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0))}, 120, 40)
	d.press(keys...)
	return d
}

func TestAFilterAppliesInEveryView(t *testing.T) {
	d := open120(t, "/")
	d.typeText("cat:gradient")
	d.wants("search / cat:gradient", "12 blocks")
	d.press("enter")
	d.wants("search cat:gradient (12)")
	for i := range 3 {
		d.press("n")
		s := &d.m.state
		if got := s.Device.Allocs.Category[s.Selected]; got != timeline.Gradient {
			t.Fatalf("match %d is of category %s", i, got)
		}
		if s.Cursor != s.Device.Allocs.Start[s.Selected] {
			t.Errorf("match %d: the cursor is at %d, the block begins at %d", i, s.Cursor,
				s.Device.Allocs.Start[s.Selected])
		}
	}
	third := d.m.state.Selected
	d.press("n", "N")
	if d.m.state.Selected != third {
		t.Error("N does not undo n")
	}
	d.press("6")
	d.wants("12 of 40 allocations")
}

func TestAFilterThatDoesNotParseIsReportedAndNotApplied(t *testing.T) {
	d := open120(t, "/")
	d.typeText("size>banana")
	if d.m.state.QueryText == "size>banana" {
		t.Error("a filter that does not parse is applied")
	}
	d.press("enter")
	if d.m.dialogs.Len() != 1 {
		t.Error("enter accepts a filter that does not parse")
	}
	d.press("esc")
	if d.m.state.QueryText != "" || d.m.dialogs.Len() != 0 {
		t.Errorf("after esc the filter is %q", d.m.state.QueryText)
	}
}

func TestALiveFilterFollowsTheCursor(t *testing.T) {
	d := open120(t, "/")
	d.typeText("live")
	d.press("enter")
	before := len(d.m.filter.found.blocks)
	d.press("g")
	if d.m.state.Query.LiveAt != d.m.state.Cursor {
		t.Errorf("the filter asks for moment %d, the cursor is at %d", d.m.state.Query.LiveAt,
			d.m.state.Cursor)
	}
	if after := len(d.m.filter.found.blocks); after == before {
		t.Errorf("%d blocks match both at the peak and at the start", after)
	}
}

func TestTheMouseMovesZoomsAndPans(t *testing.T) {
	d := open120(t)
	s := &d.m.state
	whole := s.Window
	x, y := 60, 12
	d.send(tea.MouseClickMsg{X: x, Y: y, Button: tea.MouseLeft})
	d.send(tea.MouseReleaseMsg{X: x, Y: y, Button: tea.MouseLeft})
	at := leaf.Position(s.Device, s.Window.Axis, s.Cursor)
	part := func(pos int64) float64 { return float64(pos-s.Window.From) / float64(leaf.Span(s.Window)) }
	if got := part(at); got < 0.45 || got > 0.55 {
		t.Errorf("a click in the middle puts the cursor at %.2f of the window's width", got)
	}
	d.send(tea.MouseWheelMsg{X: 30, Y: y, Button: tea.MouseWheelUp})
	if leaf.Span(s.Window) >= leaf.Span(whole) {
		t.Fatal("the wheel does not zoom in")
	}
	zoomed := s.Window
	d.send(tea.MouseClickMsg{X: 60, Y: y, Button: tea.MouseLeft})
	d.send(tea.MouseMotionMsg{X: 40, Y: y, Button: tea.MouseLeft})
	if s.Window.From <= zoomed.From || leaf.Span(s.Window) != leaf.Span(zoomed) {
		t.Errorf("a drag to the left pans %v to %v", zoomed, s.Window)
	}
	d.send(tea.MouseReleaseMsg{X: 40, Y: y, Button: tea.MouseLeft})
	panned := s.Window
	d.send(tea.MouseMotionMsg{X: 20, Y: y})
	if s.Window != panned {
		t.Error("the mouse pans without a button")
	}
	d.press("z")
	if s.Window != whole {
		t.Error("z does not show the whole recording")
	}
}

func TestZoomingByWheelKeepsThePointersPlace(t *testing.T) {
	full := timeline.Window{From: 0, To: 1_000_000}
	w := full
	for _, about := range []int64{250_000, 260_000, 255_000} {
		before := float64(about-w.From) / float64(leaf.Span(w))
		w = leaf.Zoom(w, full, about, 3, 4)
		if after := float64(about-w.From) / float64(leaf.Span(w)); after < before-0.001 ||
			after > before+0.001 {
			t.Errorf("zooming moved what is under the pointer from %.4f to %.4f", before, after)
		}
	}
}

func TestAClickOnABandSelectsItsBlock(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0)), View: leaf.Timeline}, 120, 40)
	s := &d.m.state
	d.send(tea.MouseClickMsg{X: 20, Y: 20, Button: tea.MouseLeft})
	d.send(tea.MouseReleaseMsg{X: 20, Y: 20, Button: tea.MouseLeft})
	if s.Selected == timeline.NoAlloc {
		t.Fatal("nothing is selected")
	}
	d.wants(s.Device.BlockName(s.Selected))
}

func TestTimeAndEventsShowTheSameStretch(t *testing.T) {
	d := open120(t, "+", "+")
	s := &d.m.state
	first, last := s.Device.MomentAt(s.Window.From), s.Device.MomentAt(s.Window.To)
	d.press("x")
	if s.Window.Axis != timeline.AxisEvents || timeline.Moment(s.Window.From) != first ||
		timeline.Moment(s.Window.To) != last+1 {
		t.Errorf("events %d to %d become the window %v", first, last, s.Window)
	}
	d.press("x")
	if s.Window.Axis != timeline.AxisTime {
		t.Error("x does not switch back to time")
	}
}

// A recording of one moment has no time to go to: enter shows the block's segment, and the cursor stays.
func TestEnterOnABlockOfOneMomentStaysThere(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(moment(t)), View: leaf.Allocations}, 80, 24)
	before := d.m.state.Cursor
	d.wants("enter show its segment")
	d.press("enter")
	if d.m.state.Cursor != before || d.m.state.Selected == timeline.NoAlloc {
		t.Errorf("the cursor is at %d, was at %d; block %d is selected", d.m.state.Cursor, before,
			d.m.state.Selected)
	}
	d.wants("reserved in 1 segment", "0x1000  1.00 MiB")
}

func TestCopyCopiesTheBlockAndItsStack(t *testing.T) {
	d := open120(t, "2", "up", "y")
	s := &d.m.state
	if d.ran["setClipboardMsg"] != 1 {
		t.Errorf("the clipboard was set %d times", d.ran["setClipboardMsg"])
	}
	for _, want := range []string{s.Device.UniqueName(s.Selected), "model.py:"} {
		if !strings.Contains(d.m.share.copied, want) {
			t.Errorf("%q is not in the copied text %q", want, d.m.share.copied)
		}
	}
}

func TestASourceThatIsNotHereIsCopiedInstead(t *testing.T) {
	d := open120(t, "2", "up", "o")
	d.wants("is not on this machine")
	if !strings.HasPrefix(d.m.share.copied, "model.py:") {
		t.Errorf("copied %q", d.m.share.copied)
	}
}

func TestDevicesAndFilesCanBeSwitched(t *testing.T) {
	d := rich(t)
	d.press("D")
	d.typeText("host")
	d.press("enter")
	if got := d.m.state.Device.Info.Kind; got != traces.DeviceHost {
		t.Errorf("the device in view is of kind %s", got)
	}
	d.press("w")
	d.typeText("b.gmt")
	d.press("enter")
	if got := d.m.state.Timeline.Trace.Source.Path; got != "runs/b.gmt" {
		t.Errorf("the open file is %s", got)
	}
	if s := &d.m.state; s.Selected != timeline.NoAlloc || s.Cursor != s.Device.Totals.PeakAt || s.HasMark {
		t.Error("the selection, cursor or mark of another file is kept")
	}
}

func TestATerminalThatGrowsShowsTheViewAgain(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0))}, 40, 10)
	d.wants("gmemtop needs more room", "40×10")
	d.send(tea.WindowSizeMsg{Width: 20, Height: 5})
	d.wants("needs more room", "at least 60×16")
	d.send(tea.WindowSizeMsg{Width: 120, Height: 40})
	d.wants("At the peak")
	for w := 1; w < 140; w += 3 {
		for h := 1; h < 50; h += 2 {
			d.send(tea.WindowSizeMsg{Width: w, Height: h})
			for _, k := range []string{"1", "2", "3"} {
				d.press(k)
			}
			lines := strings.Split(d.screen(), "\n")
			if len(lines) != h {
				t.Fatalf("a terminal of %d rows gets %d", h, len(lines))
			}
		}
	}
}

func TestALateLoadIsDropped(t *testing.T) {
	d := open120(t)
	stale := loadedMsg{load: d.m.loader.number, loaded: Loaded{Timelines: []*timeline.Timeline{empty(t)}}}
	d.run(d.m.loader.start(loaderOf(training(t, "runs/new.gmt", 0)), "new", false))
	d.send(stale)
	if got := d.m.state.Timeline.Trace.Source.Path; got != "runs/new.gmt" {
		t.Errorf("a late load opened %s", got)
	}
}

func TestQuittingStopsTheLoad(t *testing.T) {
	var loads context.Context
	blocked := func(ctx context.Context, _ func(string, int64, int64)) (Loaded, error) {
		loads = ctx
		return Loaded{}, nil
	}
	m := newModel(Options{})
	msg := m.loader.start(blocked, "x", false)()
	for _, cmd := range msg.(tea.BatchMsg)[1:] {
		cmd()
	}
	m.Update(keyPress("q"))
	if loads.Err() == nil {
		t.Error("q did not stop the load")
	}
}

func TestTheLoadingScreenTicksOnlyWhileItLoads(t *testing.T) {
	m := newModel(Options{})
	ticks := 0
	m.after = func(d time.Duration, _ func(time.Time) tea.Msg) tea.Cmd {
		if d > 100*time.Millisecond {
			t.Errorf("the first tick takes %v", d)
		}
		ticks++
		return nil
	}
	m.loader.start(loaderOf(), "x", false)
	m.Update(tickMsg{load: m.loader.number})
	if ticks != 2 {
		t.Errorf("%d ticks were requested, want 2", ticks)
	}
	m.Update(loadedMsg{load: m.loader.number, loaded: Loaded{Timelines: []*timeline.Timeline{empty(t)}}})
	m.Update(tickMsg{load: m.loader.number})
	if ticks != 2 {
		t.Error("it still ticks after the load")
	}
}

func TestNoColorIsObeyed(t *testing.T) {
	d := open120(t)
	d.send(tea.ColorProfileMsg{Profile: colorprofile.ASCII})
	if got := d.m.View().Content; strings.Contains(got, "38;") || strings.Contains(got, "48;") {
		t.Error("a colour is written")
	}
	d.press("t")
	if !d.m.state.Theme.Mono {
		t.Error("t turned on colours on a terminal without any")
	}
}

func TestTheMouseCanBeGivenToTheTerminal(t *testing.T) {
	d := open120(t)
	if d.m.View().MouseMode != tea.MouseModeCellMotion {
		t.Error("the mouse is off at the start")
	}
	d.press("M")
	if d.m.View().MouseMode != tea.MouseModeNone {
		t.Error("M leaves the mouse on")
	}
	if newModel(Options{NoMouse: true}).View().MouseMode != tea.MouseModeNone {
		t.Error("NoMouse has no effect")
	}
}

// panics is a view that fails.
type panics struct{ leaf.View }

func (panics) Draw(*leaf.State, *canvas.Canvas) { panic("boom") }

func TestAPanicIsLoggedAndTheTerminalRestored(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	m := newModel(Options{StateDir: dir, Loader: loaderOf(training(t, "runs/train.gmt", 0))})
	for i, v := range m.tabs.views {
		m.tabs.views[i] = panics{v}
	}
	p := tea.NewProgram(m, tea.WithInput(nil), tea.WithOutput(&out), tea.WithWindowSize(80, 24),
		tea.WithoutSignals())
	_, err := p.Run()
	if !errors.Is(err, tea.ErrProgramPanic) {
		t.Errorf("the program ends with %v", err)
	}
	log, err := os.ReadFile(filepath.Join(dir, "crash.log"))
	if err != nil || !strings.Contains(string(log), "boom") || !strings.Contains(string(log), "panics.Draw") {
		t.Errorf("the crash log is %q, %v", log, err)
	}
	if got := out.String(); strings.Contains(got, "\x1b[?1049h") && !strings.Contains(got, "\x1b[?1049l") {
		t.Error("the alternate screen is not left")
	}
}

func TestAPanicInASlowQuestionDoesNotEndTheProgram(t *testing.T) {
	d := open120(t)
	var q leaf.Query[int, int]
	d.run(q.Ask(1, func(context.Context) (int, error) { panic("deep") }))
	log, _ := os.ReadFile(filepath.Join(stateDir(d.m), "crash.log"))
	if !strings.Contains(string(log), "deep") {
		t.Errorf("the crash log is %q", log)
	}
	d.wants("internal error")
}

func TestRunShowsAFrameAndQuits(t *testing.T) {
	var out bytes.Buffer
	in, keys := io.Pipe()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	go func() {
		time.Sleep(300 * time.Millisecond) // in which a frame is drawn
		io.WriteString(keys, "q")
	}()
	err := Run(ctx, Options{
		Loader: loaderOf(training(t, "runs/train.gmt", 0)), Input: in, Output: &out, Color: "never",
		Theme:   "dark",
		Environ: []string{"TERM=xterm-256color"}, StateDir: t.TempDir(),
	})
	if err != nil {
		t.Fatalf("Run ends with %v", err)
	}
	if !strings.Contains(out.String(), "\x1b[?1049l") {
		t.Error("the alternate screen is not left")
	}
}

func TestAPartOfARecordingCanBeOpened(t *testing.T) {
	tl := training(t, "runs/train.gmt", 64<<20)
	loader := func(context.Context, func(string, int64, int64)) (Loaded, error) {
		return Loaded{Timelines: []*timeline.Timeline{tl}, First: 10, End: 30}, nil
	}
	d := start(t, Options{Loader: loader}, 120, 40)
	s := &d.m.state
	if s.Window.From != s.Device.Time(10) || s.Window.To != s.Device.Time(29)+1 {
		t.Errorf("the window is %v", s.Window)
	}
	if top := s.Device.Allocated.Range(10, 30).Max; s.Cursor < 10 || s.Cursor >= 30 ||
		s.Device.Allocated.At(s.Cursor) != top {
		t.Errorf("the cursor is at %d with %d bytes, want %d", s.Cursor, s.Device.Allocated.At(s.Cursor), top)
	}
}

func TestASelectionOfAnotherDeviceIsDropped(t *testing.T) {
	d := open120(t)
	d.send(leaf.SelectMsg{Alloc: timeline.AllocID(d.m.state.Device.Allocs.Len())})
	if got := d.m.state.Selected; got != timeline.NoAlloc {
		t.Errorf("%d is selected", got)
	}
}

// The line says what was opened until a key is pressed; after that it describes what is under the cursor.
func TestAKeyDismissesTheNotice(t *testing.T) {
	tl := training(t, "runs/train.gmt", 0)
	d := start(t, Options{Loader: func(context.Context, func(string, int64, int64)) (Loaded, error) {
		return Loaded{Timelines: []*timeline.Timeline{tl}, Notice: "this is a sample"}, nil
	}}, 80, 24)
	d.wants("this is a sample")
	d.press("right")
	if text := d.screen(); strings.Contains(text, "this is a sample") || !strings.Contains(text, " MiB of ") {
		t.Errorf("after a key:\n%s", text)
	}
}
