package canvas

import (
	"image/color"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Profile is what colours a terminal knows.
type Profile uint8

// The profiles, poorest first.
const (
	// NoColor terminals know bold and reverse only (NO_COLOR, or a dumb terminal).
	NoColor Profile = iota
	// ANSI16 terminals know the sixteen colours that the user chose.
	ANSI16
	// ANSI256 terminals know xterm's palette.
	ANSI256
	// TrueColor terminals know every colour.
	TrueColor
)

// Style is how a cell looks. The zero Style is the terminal's own.
type Style struct {
	FG, BG                                          color.Color // nil is the terminal's default
	Bold, Faint, Italic, Underline, Reverse, Strike bool
	// Link is where a click leads in terminals that have links (OSC 8), "" for nowhere.
	Link string
}

// Fg returns the style with another foreground.
func (s Style) Fg(fg color.Color) Style { s.FG = fg; return s }

// Strong returns the style in bold.
func (s Style) Strong() Style { s.Bold = true; return s }

// StyleID names a style interned by a Canvas; 0 is the zero Style.
type StyleID uint16

// Tone is a colour that carries its own substitute among the sixteen basic colours. Computing the substitute
// would turn every muted colour grey. It is comparable, as colours in a Style must be.
type Tone struct {
	R, G, B uint8
	Basic   uint8 // 0 to 15
}

// RGBA implements color.Color.
func (t Tone) RGBA() (r, g, b, a uint32) {
	return uint32(t.R) * 0x101, uint32(t.G) * 0x101, uint32(t.B) * 0x101, 0xffff
}

// index returns the place of exactly this colour in xterm's palette of 256, 0 for none: naming it takes a
// third of the bytes. The sixteen colours at the palette's beginning and the first few after them are left
// out, because people redefine them.
func (t Tone) index() int {
	if t.R == t.G && t.G == t.B && t.R >= 8 && t.R <= 238 && (t.R-8)%10 == 0 {
		return 232 + int(t.R-8)/10
	}
	level := func(v uint8) int {
		switch {
		case v == 0:
			return 0
		case v >= 95 && (v-95)%40 == 0:
			return 1 + int(v-95)/40
		}
		return -1
	}
	r, g, b := level(t.R), level(t.G), level(t.B)
	if n := 16 + 36*r + 6*g + b; r >= 0 && g >= 0 && b >= 0 && n >= 22 {
		return n
	}
	return 0
}

// Mix returns the colour that is n/256 of the way from t to o; the basic colour stays t's.
func (t Tone) Mix(o Tone, n int) Tone {
	mix := func(a, b uint8) uint8 { return uint8(int(a) + (int(b)-int(a))*n/256) }
	return Tone{mix(t.R, o.R), mix(t.G, o.G), mix(t.B, o.B), t.Basic}
}

// styleTable interns styles, each with its finished SGR sequence.
type styleTable struct {
	list  []styleEntry
	index map[Style]StyleID
	last  Style // the style asked for most recently, which is mostly the next one too
	lastN StyleID
}

type styleEntry struct {
	style Style
	sgr   string
}

const maxStyles = 8192

func (t *styleTable) reset(Profile) {
	t.list = append(t.list[:0], styleEntry{sgr: "\x1b[m"})
	t.index = map[Style]StyleID{{}: 0}
	t.last, t.lastN = Style{}, 0
}

// trim forgets all styles where there are too many: no cell refers to any at that moment.
func (t *styleTable) trim(p Profile) {
	if len(t.list) > maxStyles {
		t.reset(p)
	}
}

// Style interns st: drawing many cells of one style asks once.
func (c *Canvas) Style(st Style) StyleID {
	t := &c.grid.styles
	if st == t.last {
		return t.lastN
	}
	id, ok := t.index[st]
	if !ok {
		if len(t.list) == 1<<16-1 {
			return 0
		}
		id = StyleID(len(t.list))
		t.list = append(t.list, styleEntry{st, sgr(st, c.grid.profile)})
		t.index[st] = id
	}
	t.last, t.lastN = st, id
	return id
}

// sgr returns the sequence that turns any style into st.
func sgr(st Style, p Profile) string {
	b := append(make([]byte, 0, 48), "\x1b[0"...)
	for _, a := range [...]struct {
		on   bool
		code string
	}{{st.Bold, ";1"}, {st.Faint, ";2"}, {st.Italic, ";3"}, {st.Underline, ";4"}, {st.Reverse, ";7"},
		{st.Strike, ";9"}} {
		if a.on {
			b = append(b, a.code...)
		}
	}
	b = appendColor(b, st.FG, p, 30)
	b = appendColor(b, st.BG, p, 40)
	if len(b) == 3 {
		return "\x1b[m"
	}
	b = append(b, 'm')
	// The leading 0 resets; "\x1b[0;1m" is as short as a reset and a change can be in one sequence.
	return string(b)
}

// appendColor adds a colour's parameters; base is 30 for the foreground and 40 for the background.
func appendColor(b []byte, c color.Color, p Profile, base int) []byte {
	if c == nil || p == NoColor {
		return b
	}
	num := func(n int) { b = append(b, ';'); b = strconv.AppendInt(b, int64(n), 10) }
	basic := func(n int) {
		if n >= 8 {
			n += 52 // 90 to 97, 100 to 107
		}
		num(base + n)
	}
	switch v := c.(type) {
	case ansi.BasicColor:
		basic(int(v))
		return b
	case ansi.IndexedColor:
		if p >= ANSI256 {
			num(base + 8)
			num(5)
			num(int(v))
			return b
		}
	case Tone:
		if p == ANSI16 {
			basic(int(v.Basic))
			return b
		}
		if p == ANSI256 {
			num(base + 8)
			num(5)
			num(int(v.nearest()))
			return b
		}
		if n := v.index(); p == TrueColor && n > 0 {
			num(base + 8)
			num(5)
			num(n)
			return b
		}
	}
	switch p {
	case ANSI16:
		basic(int(ansi.Convert16(c)))
	case ANSI256:
		num(base + 8)
		num(5)
		num(int(ansi.Convert256(c)))
	default:
		r, g, bl, _ := c.RGBA()
		num(base + 8)
		num(2)
		num(int(r >> 8))
		num(int(g >> 8))
		num(int(bl >> 8))
	}
	return b
}

// String returns the whole grid as text with SGR sequences and links, rows separated by newlines, trailing
// blanks of a row left out.
func (c *Canvas) String() string {
	g := c.grid
	g.out.Reset()
	g.out.Grow(g.w * g.h * 2)
	for y := range g.h {
		if y > 0 {
			g.out.WriteByte('\n')
		}
		g.row(y)
	}
	return g.out.String()
}

func (g *grid) row(y int) {
	row := g.cells[y*g.w : (y+1)*g.w]
	n := len(row)
	for n > 0 && row[n-1].Rune == ' ' && g.blank(row[n-1].Style) {
		n--
	}
	var style StyleID
	link := ""
	for x := 0; x < n; x++ {
		cell := row[x]
		if cell.Style != style && (cell.Rune != ' ' || !g.blank(cell.Style) || !g.blank(style)) {
			style = cell.Style
			if to := safeLink(g.styles.list[style].style.Link); to != link {
				link = to
				g.out.WriteString(ansi.SetHyperlink(link))
			}
			g.out.WriteString(g.styles.list[style].sgr)
		}
		if cell.Width == 0 {
			continue
		}
		if cell.Rune < utf8.RuneSelf {
			g.out.WriteByte(byte(cell.Rune))
		} else {
			g.out.WriteRune(cell.Rune)
		}
		if len(g.marks) > 0 {
			g.out.WriteString(g.marks[y*g.w+x])
		}
	}
	if link != "" {
		g.out.WriteString(ansi.ResetHyperlink())
	}
	if style != 0 {
		g.out.WriteString("\x1b[m")
	}
}

// safeLink returns a link, "" if it could end its own sequence.
func safeLink(link string) string {
	if strings.ContainsFunc(link, unicode.IsControl) {
		return ""
	}
	return link
}

// blank reports whether a space in that style shows nothing.
func (g *grid) blank(id StyleID) bool {
	if id == 0 {
		return true
	}
	s := &g.styles.list[id].style
	return s.BG == nil && !s.Reverse && !s.Underline && !s.Strike
}

// StyleOf returns the style that id names.
func (g *grid) StyleOf(id StyleID) Style { return g.styles.list[id].style }
