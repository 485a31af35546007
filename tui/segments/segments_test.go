package segments

import (
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

func open(t *testing.T, o viewtest.Training) (*viewtest.Screen, *view) {
	t.Helper()
	v := New().(*view)
	sc := viewtest.Open(t, v, o.Timeline(t))
	sc.Text(120, 36) // the first frame tells the view its room
	return sc, v
}

func TestGoldens(t *testing.T) {
	for name, o := range map[string]viewtest.Training{
		"segments":    {Iterations: 2, Layers: 12},
		"expandable":  {Iterations: 2, Layers: 8, Expandable: true},
		"pools":       {Iterations: 2, Layers: 6, Pools: true},
		"no-segments": {Iterations: 1, NoSegments: true},
	} {
		t.Run(name, func(t *testing.T) {
			sc, _ := open(t, o)
			sc.Golden(name)
		})
	}
}

func TestASCIIDrawsTheSameMapWithCharacters(t *testing.T) {
	sc, _ := open(t, viewtest.Training{Iterations: 1, Layers: 6})
	text := sc.ASCII(100, 30)
	for _, r := range text {
		if r > 126 {
			t.Fatalf("there is %q in\n%s", r, text)
		}
	}
	for _, want := range []string{"#", "-"} { // an activation, a hole
		if !strings.Contains(text, strings.Repeat(want, 4)) {
			t.Errorf("there is no run of %q in\n%s", want, text)
		}
	}
}

func TestThePartsOfTheEquationAddUpToReserved(t *testing.T) {
	for _, o := range []viewtest.Training{{Iterations: 2}, {Iterations: 2, Pools: true},
		{Iterations: 1, Expandable: true}} {
		sc, v := open(t, o)
		for m := timeline.Start; m < timeline.Moment(sc.State.Device.Len()); m += 7 {
			sc.State.Cursor = m
			sc.Send(leaf.ChangedMsg{})
			sum := int64(0)
			for _, p := range v.parts() {
				sum += p.bytes
			}
			if v.st.Known && sum != v.st.Reserved {
				t.Errorf("after event %d the parts are %d and reserved is %d", m, sum, v.st.Reserved)
			}
		}
	}
}

func TestTheMapFollowsTheCursor(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2})
	if v.st.At != sc.State.Device.Totals.PeakAt {
		t.Fatalf("the map shows event %d, but the cursor is at %d", v.st.At, sc.State.Device.Totals.PeakAt)
	}
	sc.State.Cursor = 3
	sc.Send(leaf.ChangedMsg{})
	if v.st.At != 3 {
		t.Errorf("the map stayed at event %d", v.st.At)
	}
}

func TestOnlyTheMapOfTheLatestCursorIsShown(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2})
	sc.State.Cursor = 3
	slow := v.Update(sc.State, leaf.ChangedMsg{})
	sc.State.Cursor = 9
	fast := v.Update(sc.State, leaf.ChangedMsg{})
	sc.Send(fast())
	sc.Send(slow())
	if v.st.At != 9 {
		t.Errorf("the map shows event %d, but the cursor is at 9", v.st.At)
	}
}

func TestMovingToABlockSelectsItEverywhere(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2})
	seen := map[timeline.AllocID]bool{}
	for range 30 {
		sc.Press("right")
		if a := v.piece(v.selected).Alloc; a != sc.State.Selected {
			t.Fatalf("the map selects block %d, the other views block %d", a, sc.State.Selected)
		}
		seen[sc.State.Selected] = true
		before := v.selected
		sc.Press("right")
		if v.selected == before {
			sc.Press("down")
		}
	}
	if len(seen) < 5 {
		t.Errorf("30 steps visited %d blocks", len(seen))
	}
}

func TestASelectionMadeElsewhereIsShownHere(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 20})
	for _, a := range sc.State.Device.LiveAt(sc.State.Cursor, nil) {
		sc.State.Selected = a
		sc.Send(leaf.ChangedMsg{})
		if got := v.piece(v.selected).Alloc; got != a {
			t.Fatalf("block %d was selected, but the map shows block %d", a, got)
		}
		line := v.lines.lineOf(v.rows, int(v.selected.row), v.piece(v.selected).Addr)
		if line < v.top || line >= v.top+v.area.H {
			t.Errorf("block %d is on line %d, outside the visible lines [%d, %d)",
				a, line, v.top, v.top+v.area.H)
		}
	}
}

func TestAClickSelectsTheBlockUnderIt(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 12})
	for _, x := range []int{0, v.bars.W / 3, v.bars.W - 1} {
		for y := 0; y < min(v.area.H, v.lines.len()); y += 2 {
			sc.Click(v.bars.X+x, v.bars.Y+y)
			i, from, to := v.lines.at(v.rows, v.top+y)
			addr := from + uint64((float64(x)+0.25)/float64(v.bars.W)*float64(to-from))
			p := v.piece(v.selected)
			if int(v.selected.row) != i || addr < p.Addr || addr >= p.Addr+uint64(p.Size) {
				t.Errorf("a click at (%d, %d) on address %x selected [%x, %x)", x, y, addr, p.Addr,
					p.Addr+uint64(p.Size))
			}
		}
	}
}

func TestBGoesToTheLargestHole(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 12})
	sc.Press("U")
	p := v.piece(v.selected)
	if p.State != traces.BlockInactive || p.Size != v.st.LargestFree {
		t.Errorf("b selected %v of %d bytes, the largest hole has %d", p.State, p.Size, v.st.LargestFree)
	}
	seg := v.segment(v.selected)
	known := seg.Stack != traces.NoStack
	for stack, want := range map[traces.StackID]bool{seg.Stack: known, traces.NoStack: false} {
		seg.Stack = stack
		text := sc.Text(120, 36)
		if !strings.Contains(text, "in a segment of ") || strings.Contains(text, ", requested by") != want {
			t.Errorf("with stack %d of the segment, the hole shows\n%s", stack, text)
		}
		if stack == traces.NoStack && strings.Contains(text, "without a stack") {
			t.Errorf("a hole, which nobody allocated, is said to lack a stack:\n%s", text)
		}
	}
}

func TestOrdersPutTheRightRowFirst(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 12})
	at := v.piece(v.selected).Addr
	for _, o := range []order{bySize, byStranded, byAddress} {
		sc.Press("s")
		if v.order != o {
			t.Fatalf("s chose the order by %v, want %v", v.order, o)
		}
		for i := 1; i < len(v.rows); i++ {
			a, b := &v.rows[i-1], &v.rows[i]
			ok := map[order]bool{bySize: a.mapped >= b.mapped, byStranded: a.stranded >= b.stranded,
				byAddress: a.from < b.from}[o]
			if !ok {
				t.Errorf("sorted by %v, rows %d and %d are in the wrong order", o, i-1, i)
			}
		}
		if got := v.piece(v.selected).Addr; got != at {
			t.Errorf("sorting by %v selects another piece", o)
		}
	}
}

func TestRunsOfAnExpandableSegmentAreOneRow(t *testing.T) {
	_, v := open(t, viewtest.Training{Iterations: 2, Layers: 8, Expandable: true})
	if len(v.rows) != 1 {
		t.Fatalf("%d rows for one expandable segment of %d runs", len(v.rows), len(v.st.Segments))
	}
	r := &v.rows[0]
	if r.mapped >= r.span() {
		t.Errorf("%d bytes of a range of %d are mapped, so there is no gap", r.mapped, r.span())
	}
	if !v.scale {
		t.Error("a single row is squeezed into one line of the screen")
	}
}

func TestDistantRunsGetSeparateRows(t *testing.T) {
	st := &timeline.AllocatorState{Segments: []timeline.SegmentState{
		{Addr: 0x1000, Size: 0x1000, Expandable: true}, {Addr: 0x3000, Size: 0x1000, Expandable: true},
		{Addr: 0x900000, Size: 0x1000, Expandable: true}, {Addr: 0x901000, Size: 0x1000},
	}}
	if rows := gather(st); len(rows) != 3 || len(rows[0].runs) != 2 {
		t.Errorf("the runs were merged into %d rows", len(rows))
	}
}

func TestLinesAndRowsAgreeAtEveryScale(t *testing.T) {
	rows := []row{{from: 0x1000, to: 0x1000 + 100}, {from: 0x2000, to: 0x2000 + 5000},
		{from: 0x9000, to: 0x9000 + 1}}
	for _, bytes := range []int64{0, 1, 7, 100, 4096, 1 << 20} {
		l := flow(rows, bytes)
		for line := range l.len() {
			i, from, to := l.at(rows, line)
			if from >= to || from < rows[i].from || to > rows[i].to {
				t.Fatalf("at %d bytes a line, line %d shows [%x, %x) of row %d", bytes, line, from, to, i)
			}
			if got := l.lineOf(rows, i, from); got != line {
				t.Fatalf("at %d bytes a line, line %d begins at %x, which is on line %d",
					bytes, line, from, got)
			}
		}
	}
}

func TestEveryByteOfALineIsDrawn(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 12})
	for i := range v.rows {
		walk := pieces{a: &v.atlas, d: sc.State.Device, row: i, from: v.rows[i].from, to: v.rows[i].to}
		sum := int64(0)
		for p, ok := walk.next(); ok; p, ok = walk.next() {
			sum += int64(p.to - p.from)
		}
		if sum != v.rows[i].mapped {
			t.Errorf("row %d has %d bytes, but %d were drawn", i, v.rows[i].mapped, sum)
		}
	}
}

func TestTheWheelAndTheScrollbarStayWithinTheMap(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 60})
	sc.Text(80, 20)
	for range 100 {
		sc.Send(tea.MouseWheelMsg{X: v.area.X + 2, Y: v.area.Y + 1, Button: tea.MouseWheelDown})
	}
	if want := v.lines.len() - v.area.H; v.top != want {
		t.Errorf("the wheel stopped at line %d of %d, want %d", v.top, v.lines.len(), want)
	}
	sc.Click(v.area.X+v.area.W-1, v.area.Y)
	if v.top != 0 {
		t.Errorf("the upper end of the scrollbar shows line %d", v.top)
	}
}

// large returns a view on a made-up state of n segments of 16 blocks.
func large(n int) *view {
	v := New().(*view)
	st := &timeline.AllocatorState{Known: true, Reserved: int64(n) << 21}
	for i := range n {
		seg := timeline.SegmentState{Addr: uint64(i+1) << 22, Size: 2 << 20, Active: 1 << 20}
		for k := range 16 {
			p := timeline.Piece{Addr: seg.Addr + uint64(k)<<17, Size: 1 << 17, Alloc: timeline.NoAlloc}
			if k%2 == 0 {
				p.Alloc, p.State = timeline.AllocID((i+k)%8), traces.BlockAllocated
			}
			seg.Pieces = append(seg.Pieces, p)
		}
		st.Segments = append(st.Segments, seg)
	}
	v.st = st
	return v
}

func BenchmarkDraw(b *testing.B) {
	for _, n := range []int{999, 100_000} {
		b.Run(fmt.Sprintf("%d-segments", n), func(b *testing.B) {
			o := viewtest.Training{Iterations: 1}
			tl := o.Timeline(b)
			s := viewtest.State(tl)
			v := large(n)
			v.of = moment{s.Device, 0}
			v.rows = gather(v.st)
			v.figures = count(s.Device, v.st, v.rows)
			v.selected, v.chosen = place{0, 0, 0}, true
			c := canvas.New(200, 56, canvas.TrueColor, false)
			b.ReportAllocs()
			for b.Loop() {
				c.Clear()
				v.Draw(s, c)
				if len(c.String()) == 0 {
					b.Fatal("nothing was drawn")
				}
			}
		})
	}
}

// Even in the smallest terminal and in the first frame, the equation ends with its sum and the map has a
// legend.
func TestTheSmallestMapHasItsLegendAndItsSum(t *testing.T) {
	for _, o := range []viewtest.Training{{}, {Pools: true}, {Expandable: true}, {NoSegments: true}} {
		o.Iterations, o.Layers = 2, 6
		text := viewtest.Open(t, New(), o.Timeline(t)).Mono(60, 13)
		lines := strings.Split(text, "\n")
		if _, sum, ok := strings.Cut(lines[3], " = "); !ok || !strings.Contains(sum, " MiB") {
			t.Errorf("%+v: the equation has no sum:\n%s", o, text)
		}
		if !strings.Contains(lines[12], "█ activation  ") {
			t.Errorf("%+v: no legend:\n%s", o, text)
		}
	}
}
