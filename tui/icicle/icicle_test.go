package icicle

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

func node(name string, bytes int64, children ...*sites.Node) *sites.Node {
	return &sites.Node{Name: name, Bytes: bytes, Blocks: 1, Largest: timeline.NoAlloc, Children: children}
}

func tree() *sites.Node {
	return node("", 100, node("main", 90, node("forward", 60), node("backward", 30)), node("import", 10))
}

func draw(ch *Chart, w, h int) (string, *canvas.Canvas) {
	c := canvas.New(w, h, canvas.NoColor, true)
	ch.Draw(&leaf.State{Display: leaf.Display{Theme: theme.Mono()}}, c)
	return ansi.Strip(c.String()), c
}

func TestWidthsAreSharesOfTheWhole(t *testing.T) {
	var ch Chart
	ch.SetRoot(tree())
	text, _ := draw(&ch, 100, 3)
	rows := strings.Split(text, "\n")
	for _, want := range []struct {
		row, col int
		name     string
	}{{0, 1, "all"}, {1, 1, "main"}, {1, 91, "import"}, {2, 1, "forward"}, {2, 61, "backward"}} {
		if got := strings.Index(rows[want.row], want.name); got != want.col {
			t.Errorf("%s is at column %d, want %d:\n%s", want.name, got, want.col, text)
		}
	}
}

func TestZoomingInFillsTheWidthAndZoomingOutReturns(t *testing.T) {
	var ch Chart
	root := tree()
	ch.SetRoot(root)
	before, c := draw(&ch, 100, 12)
	hit, ok := c.Hit(70, 2)
	if !ok || hit.(NodeMsg).Node.Name != "backward" {
		t.Fatalf("a click there hits %v", hit)
	}
	ch.Choose(hit.(NodeMsg).Node)
	ch.Zoom()
	text, _ := draw(&ch, 100, 12)
	if !ch.Zoomed() || !strings.Contains(strings.Split(text, "\n")[2], "backward") ||
		strings.Contains(text, "forward ") {
		t.Errorf("zoomed:\n%s", text)
	}
	ch.Zoom() // again: out
	ch.Out()
	if after, _ := draw(&ch, 100, 12); after == before && ch.Zoomed() {
		t.Error("it does not come back")
	}
}

func TestArrowsMoveThroughTheTree(t *testing.T) {
	var ch Chart
	ch.SetRoot(tree())
	draw(&ch, 100, 12)
	for _, step := range []struct {
		dx, dy int
		want   string
	}{{0, 0, ""}, {0, 1, "main"}, {0, 1, "forward"}, {1, 0, "backward"}, {1, 0, "backward"}, {0, -1, "main"},
		{1, 0, "import"}, {-1, 0, "main"}} {
		ch.Move(step.dx, step.dy)
		draw(&ch, 100, 12)
		if got := ch.Chosen().Name; got != step.want {
			t.Errorf("after the mouse at %d,%d the box is %q, want %q", step.dx, step.dy, got, step.want)
		}
	}
}

func TestAnotherMomentKeepsTheZoomByName(t *testing.T) {
	var ch Chart
	ch.SetRoot(tree())
	draw(&ch, 100, 12)
	ch.Choose(ch.root.Children[0])
	ch.Zoom()
	ch.SetRoot(node("", 50, node("other", 40), node("main", 10)))
	if text, _ := draw(&ch, 100, 12); !ch.Zoomed() || strings.Contains(text, "other") {
		t.Errorf("the zoom into main is lost:\n%s", text)
	}
	ch.SetRoot(node("", 50, node("other", 40)))
	if ch.Zoomed() {
		t.Error("it is still zoomed into something that is gone")
	}
}
