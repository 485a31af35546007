package canvas

import (
	"image/color"
	"math/rand/v2"
	"strings"
	"testing"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
)

// plain returns what the canvas shows without its styles.
func plain(c *Canvas) string { return ansi.Strip(c.String()) }

func TestTextIsClippedToTheWindow(t *testing.T) {
	c := New(10, 3, TrueColor, false)
	sub := c.Sub(Rect{X: 2, Y: 1, W: 5, H: 1})
	if n := sub.Text(3, 0, Style{}, "hello"); n != 5 {
		t.Errorf("Text takes %d cells, not 5", n)
	}
	sub.Text(-2, 0, Style{}, "abcd")
	sub.Text(0, 1, Style{}, "below")
	sub.Text(0, -1, Style{}, "above")
	if got, want := plain(c), "\n  cd he\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestASubOfASubIsClippedToBoth(t *testing.T) {
	c := New(8, 2, TrueColor, false)
	c.Sub(Rect{X: 1, Y: 0, W: 3, H: 2}).Sub(Rect{X: 1, Y: 0, W: 9, H: 1}).Text(0, 0, Style{}, "abcdef")
	if got := plain(c); got != "  ab\n" {
		t.Errorf("got %q", got)
	}
}

func TestControlCharactersNeverReachTheTerminal(t *testing.T) {
	c := New(40, 1, TrueColor, false)
	c.Text(0, 0, Style{}, "evil\x1b[2J\x1b]0;title\x07\r\n\tname\x00\x7f\u009b31m")
	c.Set(39, 0, 0x1b, 0)
	for _, r := range c.String() {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			t.Errorf("%q holds the control character %q", c.String(), r)
		}
	}
}

func TestWideRunesTakeTwoCells(t *testing.T) {
	c := New(6, 1, TrueColor, false)
	if n := c.Text(0, 0, Style{}, "日本x"); n != 5 {
		t.Errorf("five cells count as %d", n)
	}
	if got := plain(c); got != "日本x" {
		t.Errorf("got %q", got)
	}
	c.Set(1, 0, 'a', 0) // cuts the first rune in half
	if got := plain(c); got != " a本x" {
		t.Errorf("a cut rune shows %q", got)
	}
	c.Set(2, 0, 'b', 0)
	if got := plain(c); got != " ab x" {
		t.Errorf("a cut rune shows %q", got)
	}
	c.Clear()
	c.Text(5, 0, Style{}, "日")
	if got := Width(plain(c)); got > 6 {
		t.Errorf("a wide rune sticks out over the edge: %d cells", got)
	}
}

func TestCombiningMarksStayWithTheirBase(t *testing.T) {
	c := New(4, 1, TrueColor, false)
	c.Text(0, 0, Style{}, "e\u0301x")
	if got := plain(c); got != "e\u0301x" {
		t.Errorf("got %q", got)
	}
	c.Set(0, 0, 'o', 0)
	if got := plain(c); got != "ox" {
		t.Errorf("the mark is left without its base: %q", got)
	}
}

func TestASCIIWritesOnlyASCII(t *testing.T) {
	c := New(60, 4, NoColor, true)
	c.Text(0, 0, Style{}, "─│█▼…→·×≥~µ⌫日本é■▲●◆○▒◇▪")
	for x := range 60 {
		c.Set(x, 1, 0x2800+rune(x*4), 0)
	}
	c.Bar(0, 2, 10, 1, 3, Fill{Mono: '█', ASCII: '#'})
	for x := range 60 {
		c.Column(x, 3, 1, []Slab{{Top: x % 9, Fill: Fill{Mono: '█', ASCII: '#'}}}, nil)
	}
	for _, r := range c.String() {
		if r >= 0x80 {
			t.Errorf("%q holds %q", c.String(), r)
		}
	}
}

func TestWithoutColoursNoneIsWritten(t *testing.T) {
	c := New(10, 1, NoColor, false)
	c.Text(0, 0, Style{FG: Tone{R: 1}, BG: color.White, Bold: true}, "x")
	if got, want := c.String(), "\x1b[0;1mx\x1b[m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestColoursAreReducedToTheProfile(t *testing.T) {
	for p, want := range map[Profile]string{
		TrueColor: "\x1b[0;38;2;217;72;74mx\x1b[m",
		ANSI256:   "\x1b[0;38;5;167mx\x1b[m",
		ANSI16:    "\x1b[0;31mx\x1b[m",
	} {
		c := New(2, 1, p, false)
		c.Text(0, 0, Style{FG: Tone{217, 72, 74, 1}}, "x")
		if got := c.String(); got != want {
			t.Errorf("profile %d writes %q, want %q", p, got, want)
		}
	}
}

func TestSequencesAreWrittenOnlyWhereTheStyleChanges(t *testing.T) {
	c := New(80, 1, TrueColor, false)
	c.Fill(Rect{W: 80, H: 1}, 'x', Style{FG: Tone{R: 200}})
	if n := strings.Count(c.String(), "\x1b["); n != 2 {
		t.Errorf("a row in one style needs %d sequences, want 2: %q", n, c.String())
	}
}

// In a terminal, the string must draw what is in the grid; bubbletea's own parser checks that.
func TestTheStringDrawsTheGrid(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	c := New(30, 8, TrueColor, false)
	var styles []Style
	for i := range 12 {
		styles = append(styles, Style{FG: Tone{R: uint8(i * 20)}, Bold: i%3 == 0, Underline: i%4 == 0,
			Reverse: i%5 == 0})
		if i%2 == 0 {
			styles[i].BG = Tone{B: uint8(i * 10)}
		}
	}
	for range 200 {
		words := []string{"abc", "  ", "日本", "─", "é", " x "}
		c.Text(rng.IntN(34)-2, rng.IntN(8), styles[rng.IntN(len(styles))], words[rng.IntN(len(words))])
	}
	buf := uv.NewScreenBuffer(30, 8)
	uv.NewStyledString(c.String()).Draw(buf, buf.Bounds())
	for y := range 8 {
		for x := range 30 {
			cell, want := buf.CellAt(x, y), c.At(x, y)
			if want.Width == 0 {
				continue
			}
			got := ' '
			if cell.Content != "" {
				got = []rune(cell.Content)[0]
			}
			st := c.StyleOf(want.Style)
			if got != want.Rune || want.Rune != ' ' && !sameColour(cell.Style.Fg, st.FG) ||
				!sameColour(cell.Style.Bg, st.BG) {
				t.Fatalf("cell %d,%d shows %q in %v, but the grid has %q in %v",
					x, y, got, cell.Style, want.Rune, st)
			}
		}
	}
}

func sameColour(a, b color.Color) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	ar, ag, ab, _ := a.RGBA()
	br, bg, bb, _ := b.RGBA()
	return ar == br && ag == bg && ab == bb
}

func TestTheTopmostZoneIsHit(t *testing.T) {
	c := New(20, 10, TrueColor, false)
	c.Zone(Rect{X: 0, Y: 0, W: 20, H: 10}, "below")
	c.Sub(Rect{X: 5, Y: 5, W: 4, H: 2}).Zone(Rect{X: 1, Y: 0, W: 90, H: 90}, "above")
	for _, at := range []struct {
		x, y int
		want any
	}{{0, 0, "below"}, {5, 5, "below"}, {6, 5, "above"}, {8, 6, "above"}, {9, 6, "below"}, {6, 7, "below"},
		{20, 0, nil}} {
		if got, _ := c.Hit(at.x, at.y); got != at.want {
			t.Errorf("a click at %d,%d hits %v, want %v", at.x, at.y, got, at.want)
		}
	}
	c.Clear()
	if _, ok := c.Hit(6, 5); ok {
		t.Error("a zone outlives its frame")
	}
}

func TestAColumnIsAsHighAsItsTop(t *testing.T) {
	fill := Fill{Color: Tone{R: 200}, Pattern: ' '}
	for top := range 33 {
		c := New(1, 4, TrueColor, false)
		c.Column(0, 0, 4, []Slab{{Top: top, Fill: fill}}, nil)
		got := 0
		for y := range 4 {
			cell := c.At(0, y)
			switch {
			case c.StyleOf(cell.Style).BG != nil:
				got += 8
			case cell.Rune != ' ':
				got += strings.Index("▁▂▃▄▅▆▇█", string(cell.Rune))/3 + 1
			}
		}
		if got != top {
			t.Errorf("a column of %d eighths is drawn %d high", top, got)
		}
	}
}

func TestACellOfManySlabsShowsTheTwoThatCoverMost(t *testing.T) {
	fill := func(r uint8) Fill { return Fill{Color: Tone{R: r}} }
	c := New(1, 1, TrueColor, false)
	c.Column(0, 0, 1, []Slab{{1, fill(1)}, {5, fill(2)}, {8, fill(3)}}, nil)
	cell := c.At(0, 0)
	st := c.StyleOf(cell.Style)
	if st.FG != (Tone{R: 2}) || st.BG != (Tone{R: 3}) || cell.Rune != '▄' {
		t.Errorf("got %q of %v on %v", cell.Rune, st.FG, st.BG)
	}
}

func TestBarsShowAnythingAboveZero(t *testing.T) {
	for _, p := range []Profile{NoColor, TrueColor} {
		c := New(20, 1, p, false)
		if n := c.Bar(0, 0, 20, 1, 1<<50, Fill{Color: Tone{}, Mono: '█'}); n != 1 {
			t.Errorf("a tiny part takes %d cells", n)
		}
		if n := c.Bar(0, 0, 20, 1<<50, 1<<50, Fill{Mono: '█'}); n != 20 {
			t.Errorf("the full width takes %d of 20 cells", n)
		}
		if n := c.Bar(0, 0, 20, 0, 1<<50, Fill{Mono: '█'}); n != 0 {
			t.Errorf("an empty part takes %d cells", n)
		}
	}
}

func TestTruncationKeepsTheRequestedEnd(t *testing.T) {
	for _, c := range []struct {
		got, want string
	}{
		{Truncate("hello world", 7), "hello …"}, {Truncate("hello", 5), "hello"}, {Truncate("日本語", 5), "日本…"},
		{Truncate("x", 0), ""},
		{TruncateLeft("/a/long/path.py", 8), "…path.py"}, {TruncateLeft("path.py", 7), "path.py"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("plain", 3)
	f.Add("日本\x1b[31m e\u0301 👩‍👩‍👧 \xff\xfe", 0)
	f.Fuzz(func(t *testing.T, s string, x int) {
		c := New(12, 2, TrueColor, false)
		x %= 24
		c.Text(x, 0, Style{Bold: true}, s)
		c.TextMax(0, 1, 5, Style{}, s)
		out := c.String()
		for _, line := range strings.Split(out, "\n") {
			if w := Width(line); w > 12 {
				t.Errorf("a row of 12 cells is %d wide: %q", w, line)
			}
		}
		for _, r := range ansi.Strip(out) {
			if r < ' ' && r != '\n' || r == 0x7f || r >= 0x80 && r < 0xa0 {
				t.Errorf("%q reaches the terminal", r)
			}
		}
	})
}

func TestAGreyStaysGreyIn256Colours(t *testing.T) {
	for _, grey := range []Tone{{0x6e, 0x76, 0x81, 8}, {0x9a, 0xa2, 0xab, 7}, {0x2b, 0x2f, 0x36, 0},
		{0xbe, 0xc1, 0xc6, 7}, {0x8a, 0x8f, 0x98, 8}} {
		r, g, b, _ := grey.nearest().RGBA()
		if r != g || g != b {
			t.Errorf("%v is shown as %02x%02x%02x", grey, r>>8, g>>8, b>>8)
		}
	}
}
