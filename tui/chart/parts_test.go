package chart

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
)

func TestPartsAreDrawnInPlaceAndNamedIfTheyFit(t *testing.T) {
	d := hills(t)
	s := stateOf(d)
	s.Window = d.Full(timeline.AxisEvents)
	n := timeline.Moment(d.Len())
	f := &Frame{Device: d, Area: canvas.Rect{W: 40, H: 2}, Window: s.Window, High: 1, Parts: []Stretch{
		{First: 0, End: n / 2, Names: []string{"a name too long for its part", "first"}, Line: '-'},
		{First: n / 2, End: n/2 + n/4 + 1, Names: []string{"second"}, Line: '='},
		{First: n/2 + n/4 + n/8, End: n, Names: []string{"third"}, Line: '~'},
	}}
	row := func() string {
		c := canvas.New(40, 1, canvas.NoColor, false)
		f.parts(s, c, 0)
		return strings.TrimRight(ansi.Strip(c.String()), " ")
	}
	got := row()
	if got != "│------ first ------│ second =     │~~~~" {
		t.Errorf("drawn is %q", got)
	}
	for i := range 3 {
		if x := f.Column(int64(f.Parts[i].First)); []rune(got)[x] != '│' {
			t.Errorf("part %d does not begin in column %d of %q", i, x, got)
		}
	}
	f.Window.From, f.Window.To = int64(n/2+n/4+1), int64(n)
	got = row()
	if strings.Contains(got, "second") || !strings.Contains(got, "third") || !strings.HasPrefix(got, " ") {
		t.Errorf("zoomed to the third, drawn is %q", got)
	}
}
