package tui

import (
	"bytes"
	"context"
	"fmt"
	"image/color"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	uv "github.com/charmbracelet/ultraviolet"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/managers/plannertest"
)

// terminal does what bubbletea's renderer does between View and the terminal: it parses the frame into cells
// and writes the cells that differ from the last frame.
type terminal struct {
	cells uv.ScreenBuffer
	scr   *uv.TerminalRenderer
	out   bytes.Buffer
}

func newTerminal(w, h int) *terminal {
	t := &terminal{cells: uv.NewScreenBuffer(w, h)}
	t.scr = uv.NewTerminalRenderer(&t.out, []string{"TERM=xterm-256color", "COLORTERM=truecolor"})
	t.scr.SetColorProfile(colorprofile.TrueColor)
	t.scr.SetFullscreen(true)
	t.scr.SetRelativeCursor(false)
	t.scr.SetScrollOptim(true)
	t.scr.Resize(w, h)
	return t
}

// show writes a frame and returns the bytes that it took.
func (t *terminal) show(content string) int {
	t.out.Reset()
	t.cells.Clear()
	uv.NewStyledString(content).Draw(t.cells, t.cells.Bounds())
	t.scr.Render(t.cells.RenderBuffer)
	_ = t.scr.Flush()
	return t.out.Len()
}

// measured are the views that show a single recording.
var measured = []leaf.ID{
	leaf.Overview, leaf.Timeline, leaf.Peak, leaf.Segments, leaf.Iterations, leaf.Allocations, leaf.OOM,
	leaf.Trace, leaf.Managers,
}

// Moving the cursor or a row by one step changes little. A jump moves the cursor's line across the chart, and
// in a row the renderer writes everything between the first and the last cell that changed.
func TestSmallChangesMakeSmallFrames(t *testing.T) {
	const step, jump = 5 << 10, 9 << 10
	keys := []string{"right", "right", "left", "down", "down", "up", "c", ".", ".", ",", "]", "[", "p", "u",
		"p", ".", ",", "p"}
	for _, id := range measured {
		d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 64<<20)), View: id,
			Planner: &plannertest.Planner{}}, 200, 60)
		term := newTerminal(200, 60)
		term.show(d.m.View().Content)
		for i, k := range keys {
			d.press(k)
			limit := step
			// another budget
			if i > 0 && k != keys[i-1] && strings.Contains("[]pu", k) || id == leaf.Managers &&
				(k == "right" || k == "left") {
				limit = jump
			}
			if n := term.show(d.m.View().Content); n > limit {
				t.Errorf("view %c: %s sends %d bytes to the terminal, more than %d", id, k, n, limit)
			}
		}
		if n := term.show(d.m.View().Content); n != 0 {
			t.Errorf("view %c: a frame in which nothing changed takes %d bytes", id, n)
		}
	}
}

func TestAStepInsideAPlanIsSmall(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0)), View: leaf.Managers,
		Planner: &plannertest.Planner{}}, 200, 60)
	d.press("d", "enter")
	term := newTerminal(200, 60)
	term.show(d.m.View().Content)
	for _, k := range []string{"right", "right", ".", "left", "down", "tab", "right"} {
		d.press(k)
		if n := term.show(d.m.View().Content); n > 7<<10 {
			t.Errorf("%s sends %d bytes to the terminal", k, n)
		}
	}
	if n := term.show(d.m.View().Content); n != 0 {
		t.Errorf("a frame in which nothing changed takes %d bytes", n)
	}
}

func TestNothingMovesWhenIdle(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0))}, 120, 40)
	ticks := 0
	d.m.after = func(time.Duration, func(time.Time) tea.Msg) tea.Cmd { ticks++; return nil }
	for _, k := range []string{"2", "3", "1", "right", "+"} {
		d.press(k)
	}
	if ticks != 0 {
		t.Errorf("%d timers are running although nothing happens", ticks)
	}
}

// BenchmarkFrame measures, in wall time and in the thread's own processor time, all that a key takes: Update,
// View, and the renderer down to bytes, on the loop's own goroutine. Answers to slow questions arrive as
// separate frames and are counted too.
func BenchmarkFrame(b *testing.B) {
	for _, events := range []int{1_000_000, 10_000_000} {
		tl := large(b, events)
		for _, id := range measured {
			b.Run(fmt.Sprintf("events=%d/view=%c", events, id), func(b *testing.B) {
				benchmarkView(b, tl, id)
			})
		}
	}
}

// BenchmarkDialog measures what a key takes while help covers a view: the rows, the typed text, the
// renderer.
func BenchmarkDialog(b *testing.B) {
	d := start(b, Options{Loader: loaderOf(training(b, "runs/a.gmt", 0)), View: leaf.Allocations}, 200, 60)
	d.press("?")
	term := newTerminal(200, 60)
	keys := []string{"down", "down", "o", "n", "e", "down", "up", "backspace", "backspace", "backspace",
		"end", "home"}
	for i := 0; b.Loop(); i++ {
		d.m.Update(keyPress(keys[i%len(keys)]))
		term.show(d.m.View().Content)
	}
}

func benchmarkView(b *testing.B, tl *timeline.Timeline, id leaf.ID) {
	m := newModel(Options{Theme: "dark", Planner: &plannertest.Planner{}})
	quick(m)
	m.after = func(time.Duration, func(time.Time) tea.Msg) tea.Cmd { return nil }
	term := newTerminal(200, 60)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var times, cpu []time.Duration
	var bytes []int
	frame := func(msg tea.Msg) tea.Cmd {
		at, used := time.Now(), threadTime()
		_, cmd := m.Update(msg)
		content := m.View().Content
		n := term.show(content)
		times, cpu = append(times, time.Since(at)), append(cpu, threadTime()-used)
		bytes = append(bytes, n)
		return cmd
	}
	d := &driver{t: b, m: m, ran: map[string]int{}}
	m.Update(tea.WindowSizeMsg{Width: 200, Height: 60})
	m.loader.number, m.loader.current = 1, &loading{number: 1}
	_, cmd := m.Update(loadedMsg{load: 1, loaded: Loaded{Timelines: []*timeline.Timeline{tl}}})
	d.run(cmd)
	d.send(leaf.ShowMsg{View: id})
	term.show(m.View().Content)
	keys := []string{"right", "right", "+", "right", "down", ".", "+", "left", "down", "up", "-", "-", "[",
		"]", "p", ",", "pgdown", "}"}
	b.ResetTimer()
	for i := range b.N {
		cmd := frame(keyPress(keys[i%len(keys)]))
		for _, msg := range messages(cmd) {
			frame(msg)
		}
	}
	b.StopTimer()
	slices.Sort(times)
	slices.Sort(cpu)
	slices.Sort(bytes)
	at := func(p float64) int { return min(int(float64(len(times))*p), len(times)-1) }
	b.ReportMetric(float64(times[at(0.5)].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(times[at(0.99)].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(cpu[at(0.99)].Microseconds())/1000, "p99-cpu-ms")
	b.ReportMetric(float64(bytes[at(0.5)]), "p50-bytes")
	b.ReportMetric(float64(bytes[at(0.99)]), "p99-bytes")
}

// messages runs a command and all commands in it, and returns their messages.
func messages(cmd tea.Cmd) []tea.Msg {
	var out []tea.Msg
	d := &driver{ran: map[string]int{}}
	d.each(cmd, func(msg tea.Msg) { out = append(out, msg) })
	return out
}

// large is a run with many events: steps of a few thousand blocks with various stacks.
func large(tb testing.TB, events int) *timeline.Timeline {
	rng := rand.New(rand.NewPCG(1, 2))
	b := traces.NewBuilder()
	b.T.Source.Path = "runs/large.gmt"
	dev := b.Device(traces.DeviceGPU, 0)
	var stacks []traces.StackID
	for i := range 2000 {
		f := func(fn, file string, line int) traces.FrameID {
			return b.Frame(traces.Frame{Func: b.String(fn), File: b.String(file), Line: int32(line)})
		}
		stacks = append(stacks, b.Stack([]traces.FrameID{f("forward", "model.py", i),
			f("step", "train.py", 20+i%7), f("main", "train.py", 5)}))
	}
	b.T.Events.Grow(events + 8)
	now, next := int64(0), uint64(1)<<40
	emit := func(a traces.Action, addr uint64, size int64, st traces.StackID) {
		now += int64(200 + rng.IntN(2000))
		b.Event(traces.Event{Time: now, Addr: addr, Size: size, Stack: st, Device: dev, Action: a})
	}
	type held struct {
		addr uint64
		size int64
	}
	var live []held
	segment, reserved := uint64(1)<<30, next
	for n := 0; n < events; {
		for range 3000 {
			h := held{next, int64(512 << rng.IntN(14))}
			for ; next+uint64(h.size) > reserved; reserved += segment {
				emit(traces.SegmentAlloc, reserved, int64(segment), traces.NoStack)
				n++
			}
			next += uint64(h.size)
			emit(traces.Alloc, h.addr, h.size, stacks[rng.IntN(len(stacks))])
			live = append(live, h)
			n++
		}
		for len(live) > 2000 {
			h := live[len(live)-1]
			live = live[:len(live)-1]
			emit(traces.FreeRequested, h.addr, h.size, traces.NoStack)
			emit(traces.FreeCompleted, h.addr, h.size, traces.NoStack)
			n += 2
		}
	}
	tl, err := timeline.Build(context.Background(), b.Finish(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return tl
}

// BenchmarkCanvas measures a full frame of cells that all differ, without the renderer.
func BenchmarkCanvas(b *testing.B) {
	c := canvas.New(200, 60, canvas.TrueColor, false)
	for b.Loop() {
		c.Clear()
		for y := range 60 {
			for x := range 200 {
				c.Set(x, y, '▄', c.Style(canvas.Style{FG: color.Color(canvas.Tone{R: uint8(x), G: uint8(y)}),
					BG: canvas.Tone{B: uint8(x / 8)}}))
			}
		}
		_ = c.String()
	}
}

// The name of what is open is cut once, in its middle; anything that does not fit next to twelve cells of it
// is left out whole.
func TestSourceTextIsCutToFit(t *testing.T) {
	parts := []string{"forward_and_backward_memory_snapshot.pickle", "GPU 0", "3 iterations", "exact"}
	for _, c := range []struct {
		w    int
		want string
	}{
		{80, "forward_and_backward_memory_snapshot.pickle · GPU 0 · 3 iterations · exact"},
		{60, "forward_and_b…snapshot.pickle · GPU 0 · 3 iterations · exact"},
		{30, "forward_an…shot.pickle · GPU 0"},
		{16, "forward…t.pickle"},
		{9, "for…ickle"},
	} {
		if got := sourceText(parts, c.w); got != c.want || canvas.Width(got) > c.w {
			t.Errorf("in %d cells: %q, want %q", c.w, got, c.want)
		}
	}
	if got := sourceText([]string{"● live", "train.py", "GPU 0"}, 20); got != "● live · train.py" {
		t.Errorf("for a job: %q", got)
	}
}
