package canvas

import (
	"image/color"
	"strings"
	"testing"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// looks are styles of each kind: plain, with attributes, with each kind of colour.
var looks = []Style{
	{},
	{Bold: true, Underline: true},
	{FG: Tone{0x5f, 0xaf, 0xff, 12}, BG: Tone{0x20, 0x24, 0x2c, 0}},
	{FG: Tone{0x2f, 0x8f, 0x5b, 2}, Faint: true, Reverse: true},
	{FG: ansi.BasicColor(9), BG: ansi.IndexedColor(200), Italic: true, Strike: true},
	{FG: color.RGBA{1, 2, 3, 0xff}},
}

func TestGlossDrawsWhatTextDraws(t *testing.T) {
	for p := NoColor; p <= TrueColor; p++ {
		for _, st := range looks {
			a, b := New(12, 1, p, false), New(12, 1, p, false)
			a.Text(1, 0, st, "size日本")
			b.Print(1, 0, b.Gloss(st).Render("size日本"))
			for x := range 12 {
				want, got := a.At(x, 0), b.At(x, 0)
				if want.Rune != got.Rune || sgr(a.StyleOf(want.Style), p) != sgr(b.StyleOf(got.Style), p) {
					t.Errorf("profile %d, %+v: Text draws %q, Print %q", p, st, a.String(), b.String())
					break
				}
			}
		}
	}
}

func TestStylesSurviveTheRoundTripThroughGloss(t *testing.T) {
	c := New(1, 1, TrueColor, false)
	for _, st := range looks {
		got := FromGloss(c.Gloss(st))
		if sgr(got, TrueColor) != sgr(st, TrueColor) {
			t.Errorf("%+v becomes %+v", st, got)
		}
	}
	if got := FromGloss(lipgloss.NewStyle()); got != (Style{}) {
		t.Errorf("no style becomes %+v", got)
	}
}

func TestPrintKeepsRowsAndClips(t *testing.T) {
	c := New(6, 3, TrueColor, false)
	c.Sub(Rect{X: 1, Y: 1, W: 3, H: 2}).Print(0, 0, lipgloss.JoinVertical(lipgloss.Right, "long row", "ab",
		"below"))
	if got, want := plain(c), "\n lon\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A name out of a file may hold anything. What Lip Gloss is given of it has no sequence, and its cells are
// counted alike by Lip Gloss and by the grid.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{
		"forward", "evil\x1b[31mred\x1b]0;t\x07", "\x9b31m\u009b31m", "日本", "e\u0301", "👩‍👩‍👧", "☁️", "🇩🇪",
		"\xff\xfe", "a\tb\nc\u200b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Plain(s)
		for _, r := range got {
			if r < ' ' || r >= 0x7f && r < 0xa0 {
				t.Fatalf("Plain(%q) = %q", s, got)
			}
		}
		if a, b := lipgloss.Width(got), Width(got); a != b {
			t.Fatalf("Plain(%q) = %q takes %d cells, but %d in the grid", s, got, a, b)
		}
	})
}

func TestOnlyStylesOfABlockReachTheCells(t *testing.T) {
	c := New(60, 1, TrueColor, false)
	c.Print(0, 0, "a\x1b[2Jb\x1b]0;title\x07c\x1b[1md\x1b[me\x1bPq\x1b\\f")
	if got := c.String(); got != "abc\x1b[0;1md\x1b[mef" {
		t.Errorf("got %q", got)
	}
	c.Clear()
	c.Print(0, 0, "cut \x1b[3")
	if strings.ContainsRune(c.String(), 0x1b) {
		t.Errorf("got %q", c.String())
	}
}
