package canvas_test

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/tui/canvas"
)

func TestALinkBeginsAndEndsWithItsText(t *testing.T) {
	c := canvas.New(12, 2, canvas.TrueColor, false)
	x := c.Text(0, 0, canvas.Style{}, "at ")
	c.Text(x, 0, canvas.Style{Link: "file://host/a.py#3"}, "a.py:3")
	c.Text(0, 1, canvas.Style{}, "next")
	want := "at \x1b]8;;file://host/a.py#3\x07\x1b[ma.py:3\x1b]8;;\x07\x1b[m\nnext"
	if got := c.String(); got != want {
		t.Errorf("the screen is %q, want %q", got, want)
	}
}

func TestALinkCannotEndItsOwnSequence(t *testing.T) {
	c := canvas.New(4, 1, canvas.TrueColor, false)
	c.Text(0, 0, canvas.Style{Link: "file:///a\x07\x1b]0;title\x07"}, "a.py")
	if got := c.String(); strings.Contains(got, "title") {
		t.Errorf("the screen is %q", got)
	}
}
