package chart

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// hills is a device whose bytes go up and down, with one very short and very high spike.
func hills(tb testing.TB) *timeline.Device {
	b := traces.NewBuilder()
	dev := b.Device(traces.DeviceGPU, 0)
	rng := rand.New(rand.NewPCG(7, 8))
	now, addr := int64(0), uint64(1<<20)
	emit := func(a traces.Action, at uint64, size int64) {
		b.Event(traces.Event{Time: now, Addr: at, Size: size, Stack: traces.NoStack, Device: dev, Action: a})
	}
	for i := range 3000 {
		size := int64(1 + rng.IntN(1<<20))
		if i == 1777 {
			size = 1 << 30
		}
		emit(traces.Alloc, addr, size)
		now += int64(rng.IntN(50))
		emit(traces.FreeRequested, addr, size)
		emit(traces.FreeCompleted, addr, size)
		now += int64(rng.IntN(100_000))
		addr += uint64(size)
	}
	t, err := timeline.Build(context.Background(), b.Finish(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return t.Main()
}

func stateOf(d *timeline.Device) *leaf.State {
	return &leaf.State{
		Open:    leaf.Open{Timeline: d.Timeline(), Device: d},
		Display: leaf.Display{Theme: theme.Mono()},
		Place:   leaf.Place{Window: d.Full(timeline.AxisTime), Selected: timeline.NoAlloc},
	}
}

func TestAPeakOfNanosecondsIsVisibleAtFullZoomOut(t *testing.T) {
	d := hills(t)
	s := stateOf(d)
	var u Usage
	for _, w := range []int{1, 7, 40, 200} {
		if got := u.High(s, w); got != d.Totals.PeakAllocated {
			t.Errorf("in %d columns the highest value is %d, but the peak is %d",
				w, got, d.Totals.PeakAllocated)
		}
		c := canvas.New(w, 4, canvas.NoColor, false)
		f := &Frame{Device: d, Area: canvas.Rect{W: w, H: 4}, Window: s.Window, High: d.Totals.PeakAllocated}
		u.Draw(s, c, f)
		if top := strings.Split(ansi.Strip(c.String()), "\n")[0]; strings.TrimSpace(top) == "" {
			t.Errorf("in %d columns no column reaches the top row", w)
		}
	}
}

func TestCursorGoesToItsColumnsMaximum(t *testing.T) {
	d := hills(t)
	f := &Frame{Device: d, Area: canvas.Rect{W: 50, H: 10}, Window: d.Full(timeline.AxisTime), High: 1}
	cols := d.Columns(d.Allocated, f.Window, 50, nil)
	at := f.Column(leaf.Position(d, timeline.AxisTime, d.Totals.PeakAt))
	if got := d.Allocated.At(f.moment(at)); got != d.Totals.PeakAllocated {
		t.Errorf("a click on the peak's column finds %d bytes, the peak is %d", got, d.Totals.PeakAllocated)
	}
	for x := range cols {
		if cols[x].End > cols[x].First && d.Allocated.At(f.moment(x)) < cols[x].Last {
			t.Errorf("column %d: the cursor is below its last value", x)
		}
	}
}

func TestAColumnContainsItsFirstPosition(t *testing.T) {
	d := hills(t)
	full := d.Full(timeline.AxisTime)
	rng := rand.New(rand.NewPCG(1, 9))
	for range 5000 {
		f := &Frame{Device: d, Area: canvas.Rect{W: 1 + rng.IntN(300), H: 1}}
		f.Window = leaf.Zoom(full, full, rng.Int64N(full.To), 1+rng.Int64N(50), 100)
		x := rng.IntN(f.Area.W)
		if f.Position(x) == f.Position(x+1) {
			continue // as narrow as that it has no position of its own
		}
		if got := f.Column(f.Position(x)); got != x {
			t.Fatalf("column %d of %d begins at a position of column %d", x, f.Area.W, got)
		}
	}
}

// However far you zoom in, the cursor is in the column that shows what its event did.
func TestAnEventIsInTheColumnThatShowsIt(t *testing.T) {
	d := hills(t)
	rng := rand.New(rand.NewPCG(1, 10))
	for _, axis := range []timeline.Axis{timeline.AxisTime, timeline.AxisEvents} {
		full := d.Full(axis)
		for range 300 {
			m := timeline.Moment(rng.IntN(d.Len()))
			f := &Frame{Device: d, Area: canvas.Rect{W: 1 + rng.IntN(300), H: 1}}
			f.Window = leaf.Zoom(full, full, leaf.Position(d, axis, m), 1, 1+rng.Int64N(full.To))
			x := f.Column(leaf.Position(d, axis, m))
			if x < 0 || x >= f.Area.W {
				t.Fatalf("%v: event %d is not in the %d columns of %+v, which surrounds it",
					axis, m, f.Area.W, f.Window)
			}
			if c := d.Columns(d.Allocated, f.Window, f.Area.W, nil)[x]; m < c.First || m >= c.End {
				t.Fatalf("%v: event %d is drawn in column %d of %d, which shows events %d to %d",
					axis, m, x, f.Area.W, c.First, c.End)
			}
			if x+1 < f.Area.W && f.Position(x+1) == f.Position(x+2) {
				if next := f.moment(x + 1); next < m || d.Allocated.At(next) != d.Columns(d.Allocated,
					f.Window, f.Area.W, nil)[x].Last {
					t.Fatalf("%v: a click next to event %d, where nothing happens, goes to event %d",
						axis, m, next)
				}
			}
		}
	}
}

func TestHeightsGrowWithBytesAndNothingVanishes(t *testing.T) {
	f := &Frame{Area: canvas.Rect{W: 1, H: 9}, High: 1 << 40}
	last := 0
	for b := int64(1); b <= f.High; b *= 2 {
		n := f.Eighths(b)
		if n < last || n < 1 || n > 72 {
			t.Errorf("%d bytes are %d eighths high, half of it %d", b, n, last)
		}
		last = n
	}
	if last != 72 || f.Eighths(0) != 0 || f.Row(f.High) != 0 || f.Row(0) != 8 {
		t.Errorf("the full height is %d eighths in row %d, zero is %d in row %d",
			last, f.Row(f.High), f.Eighths(0), f.Row(0))
	}
}

func TestAxesAreLabelledInRoundNumbersOfOneUnit(t *testing.T) {
	d := hills(t)
	s := stateOf(d)
	for _, c := range []struct {
		high int64
		u    timeline.Units
		want string
	}{
		{21 << 30, timeline.IEC, "GiB 20 15 10 5 0"},
		{1300 << 20, timeline.IEC, "GiB 1.0 0.5 0"},
		{21e9, timeline.SI, "GB 20 15 10 5 0"},
		{700, timeline.IEC, "B 600 400 200 0"},
		{3, timeline.Raw, "B 3 2 1 0"},
	} {
		s.Units = c.u
		can := canvas.New(20, 22, canvas.NoColor, false)
		f := &Frame{Device: d, Area: canvas.Rect{X: 12, Y: 1, W: 1, H: 20}, Window: s.Window, High: c.high}
		f.YAxis(s, can)
		got := strings.Join(strings.Fields(strings.ReplaceAll(ansi.Strip(can.String()), "·", " ")), " ")
		if got != c.want {
			t.Errorf("for a maximum of %d: %q, want %q", c.high, got, c.want)
		}
	}
}

func TestLabelsOfTheTimeAxisDoNotTouch(t *testing.T) {
	d := hills(t)
	s := stateOf(d)
	full := s.Window
	rng := rand.New(rand.NewPCG(2, 3))
	for range 300 {
		w := 10 + rng.IntN(180)
		s.Window = leaf.Zoom(full, full, rng.Int64N(full.To), 1+rng.Int64N(1000), 1000)
		c := canvas.New(w, 1, canvas.NoColor, false)
		f := &Frame{Device: d, Area: canvas.Rect{W: w, H: 1}, Window: s.Window}
		f.xAxis(s, c, 0)
		seen := map[string]bool{}
		for _, label := range strings.Fields(ansi.Strip(c.String())) {
			if strings.Count(label, ".") > 1 || seen[label] {
				t.Fatalf("window %v of %d columns is labelled %q", s.Window, w, ansi.Strip(c.String()))
			}
			seen[label] = true
		}
	}
}

func TestAShortChartHasALabelBesidesZero(t *testing.T) {
	s := stateOf(hills(t))
	for high := int64(1); high <= 1<<40; high = high*5/4 + 1 {
		c := canvas.New(40, 8, canvas.NoColor, false)
		f := &Frame{Area: canvas.Rect{X: 8, Y: 1, W: 32, H: 6}, High: high}
		f.YAxis(s, c)
		labels := 0
		for _, line := range strings.Split(ansi.Strip(c.String()), "\n")[1:] {
			if text := strings.TrimSpace(line[:min(8, len(line))]); text != "" && text != "0" {
				labels++
			}
		}
		if labels == 0 {
			t.Fatalf("up to %d bytes nothing but 0 is labelled:\n%s", high, ansi.Strip(c.String()))
		}
	}
}

func TestTimesOnAnAxisAreRound(t *testing.T) {
	for _, c := range []struct {
		from, to int64
		n        int
		want     string
	}{
		{0, 4e9, 6, "0 s 1 2 3"}, {0, 3_460_000_000, 12, "0 s 0.5 1.0 1.5 2.0 2.5 3.0"},
		{0, 90e6, 5, "0 ms 20 40 60 80"}, {1_230_000, 1_260_000, 3, "1.23 ms 1.24 1.25"},
		{7, 7, 3, ""},
	} {
		_, labels := TimeTicks(c.from, c.to, c.n)
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("%d to %d: %q, want %q", c.from, c.to, got, c.want)
		}
	}
}
