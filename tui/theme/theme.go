// Package theme holds colours and glyphs by meaning.
//
// Views ask for meanings (Accent, Warn, the look of a category) and never for colours. The categories'
// palette is torch.profiler's, lightened or darkened to be readable on the theme's background. Each category
// also has a glyph and a pattern, which is all that remains without colours.
package theme

import (
	"image/color"
	"slices"

	"charm.land/lipgloss/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
)

// Theme is a set of looks. It never changes.
type Theme struct {
	Name string
	// Dark means that the background is dark.
	Dark bool
	// Mono means that there are no colours.
	Mono bool

	Text     canvas.Style // plain text
	Strong   canvas.Style // what is read first
	Dim      canvas.Style // labels, units, what matters less
	Faint    canvas.Style // rules, grids, disabled things
	Accent   canvas.Style // the one accent: what is active, keys, the cursor
	Good     canvas.Style
	Warn     canvas.Style
	Bad      canvas.Style
	Header   canvas.Style // column heads
	Selected canvas.Style // the row or block that is selected
	Cursor   canvas.Style // the line of the time cursor
	Dialog   canvas.Style // the inside of a dialog

	looks [timeline.NumCategories]look
	ramp  []canvas.Tone
	other canvas.Fill
	bg    canvas.Tone
	fore  canvas.Tone

	chosen canvas.Tone
}

// look is how a category looks.
type look struct {
	Tone    canvas.Tone
	Glyph   rune // before its name
	Pattern rune // over its areas
	Mono    rune // instead of its colour
	ASCII   rune // instead of all of them
}

// Glyphs and patterns are the same in every theme, so that they can be learnt.
var glyphs = [timeline.NumCategories]look{
	timeline.Unknown:        {Glyph: '▪', Pattern: ' ', Mono: '░', ASCII: '.'},
	timeline.Parameter:      {Glyph: '▲', Pattern: '·', Mono: '▓', ASCII: '^'},
	timeline.OptimizerState: {Glyph: '●', Pattern: '∘', Mono: '▞', ASCII: '@'},
	timeline.Gradient:       {Glyph: '◆', Pattern: '╲', Mono: '▚', ASCII: '*'},
	timeline.Activation:     {Glyph: '■', Pattern: ' ', Mono: '█', ASCII: '#'},
	timeline.Input:          {Glyph: '○', Pattern: '-', Mono: '▤', ASCII: 'o'},
	timeline.Temporary:      {Glyph: '▒', Pattern: '░', Mono: '▒', ASCII: 'x'},
	timeline.AutogradDetail: {Glyph: '◇', Pattern: '╱', Mono: '▨', ASCII: '%'},
	timeline.Cache:          {Glyph: '◈', Pattern: '┄', Mono: '▧', ASCII: 'k'},
}

func rgb(hex uint32, basic uint8) canvas.Tone {
	return canvas.Tone{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), Basic: basic}
}

type palette struct {
	bg, text, strong, dim, faint, accent canvas.Tone
	good, warn, bad                      canvas.Tone
	selected, cursor, dialog             canvas.Tone
	categories                           [timeline.NumCategories]canvas.Tone
	ramp                                 []canvas.Tone
	inkOnAccent                          canvas.Tone
}

// Ground returns the colours that the theme assumes to be the terminal's defaults, for pictures of a screen.
func (t *Theme) Ground() (fore, back canvas.Tone) { return t.fore, t.bg }

// Names are the themes that ByName knows, in the order in which t cycles through them.
var Names = []string{"dark", "light", "safe", "safe-light", "mono"}

// After returns the name of the theme that follows another in Names.
func After(name string) string { return Names[(slices.Index(Names, name)+1)%len(Names)] }

// ByName returns a theme; ok is false if there is none of that name.
func ByName(name string) (*Theme, bool) {
	switch name {
	case "dark":
		return Dark(), true
	case "light":
		return Light(), true
	case "safe":
		return safe(true), true
	case "safe-light":
		return safe(false), true
	case "mono":
		return Mono(), true
	}
	return nil, false
}

// Text and the cursor, drawn most often, use xterm's palette: its sequences are a third as long as those of
// other colours (canvas.Tone), which matters on slow lines. The ramps use it too: rounded to that palette,
// muted colours would turn grey in the middle of the scale.
var darkBase = palette{
	bg: rgb(0x16181d, 0), text: rgb(0xd0d0d0, 7), strong: rgb(0xeeeeee, 15), dim: rgb(0x949494, 7),
	faint:  rgb(0x4e4e4e, 8),
	accent: rgb(0x5fafff, 12), good: rgb(0x5fd787, 10), warn: rgb(0xe3b341, 11), bad: rgb(0xff7b72, 9),
	selected: rgb(0x2b3648, 4), cursor: rgb(0x5fafff, 14), dialog: rgb(0x20242c, 0),
	inkOnAccent: rgb(0x0b0d11, 0),
	ramp: []canvas.Tone{
		rgb(0x262626, 0), rgb(0x5f0087, 4), rgb(0x870087, 4), rgb(0xaf0087, 5), rgb(0xd7005f, 5),
		rgb(0xff5f5f, 1),
		rgb(0xff875f, 9), rgb(0xffaf5f, 3), rgb(0xffd75f, 11), rgb(0xffffaf, 15),
	},
}

var lightBase = palette{
	bg: rgb(0xffffff, 15), text: rgb(0x262626, 0), strong: rgb(0x080808, 0), dim: rgb(0x626262, 8),
	faint:  rgb(0xc6c6c6, 7),
	accent: rgb(0x005fd7, 4), good: rgb(0x1a7f37, 2), warn: rgb(0x8a6100, 3), bad: rgb(0xc1121f, 1),
	selected: rgb(0xd7e6fb, 14), cursor: rgb(0x005fd7, 4), dialog: rgb(0xf2f4f7, 15),
	inkOnAccent: rgb(0xffffff, 15),
	ramp: []canvas.Tone{
		rgb(0xeeeeee, 15), rgb(0xd7d7ff, 7), rgb(0xafafff, 14), rgb(0xaf87ff, 12), rgb(0xaf5fd7, 13),
		rgb(0xaf00af, 5),
		rgb(0xaf005f, 9), rgb(0x87005f, 1), rgb(0x5f005f, 4), rgb(0x5f0000, 0),
	},
}

// Dark returns the theme for dark terminals.
func Dark() *Theme {
	p := darkBase
	p.categories = [...]canvas.Tone{
		timeline.Unknown: rgb(0x6e7681, 8), timeline.Parameter: rgb(0x2f8f5b, 2),
		timeline.OptimizerState: rgb(0xd6a32b, 3),
		timeline.Gradient:       rgb(0x4f6fdc, 4), timeline.Activation: rgb(0xd9484a, 1),
		timeline.Input:     rgb(0xe2e5ea, 15),
		timeline.Temporary: rgb(0x9a55b8, 5), timeline.AutogradDetail: rgb(0x58a6e8, 12),
		timeline.Cache: rgb(0x2fa7a0, 6),
	}
	return build("dark", true, p)
}

// Light returns the theme for light terminals.
func Light() *Theme {
	p := lightBase
	p.categories = [...]canvas.Tone{
		timeline.Unknown: rgb(0x9aa2ab, 7), timeline.Parameter: rgb(0x1b7340, 2),
		timeline.OptimizerState: rgb(0xd19a1b, 3),
		timeline.Gradient:       rgb(0x2444c4, 4), timeline.Activation: rgb(0xcf2027, 1),
		timeline.Input:     rgb(0x2b2f36, 0),
		timeline.Temporary: rgb(0x8a2f9e, 5), timeline.AutogradDetail: rgb(0x3c86e0, 12),
		timeline.Cache: rgb(0x0f7c78, 6),
	}
	return build("light", false, p)
}

// safe returns a theme whose categories can be told apart with any colour vision: Okabe and Ito's palette
// ("Color Universal Design", 2008), each colour given to the category whose usual colour it resembles.
func safe(dark bool) *Theme {
	p, name := darkBase, "safe"
	input := rgb(0xf0f2f5, 15)
	if !dark {
		p, name, input = lightBase, "safe-light", rgb(0x1b1e23, 0)
	}
	p.good, p.warn, p.bad = rgb(0x56b4e9, 14), rgb(0xe69f00, 11), rgb(0xd55e00, 9)
	if !dark {
		p.good, p.warn, p.bad = rgb(0x0072b2, 4), rgb(0x9a6a00, 3), rgb(0xb34700, 1)
	}
	p.categories = [...]canvas.Tone{
		timeline.Unknown: rgb(0x8a8f98, 8), timeline.Parameter: rgb(0x009e73, 2),
		timeline.OptimizerState: rgb(0xf0e442, 11),
		timeline.Gradient:       rgb(0x0072b2, 4), timeline.Activation: rgb(0xd55e00, 1),
		timeline.Input:     input,
		timeline.Temporary: rgb(0xcc79a7, 13), timeline.AutogradDetail: rgb(0x56b4e9, 14),
		timeline.Cache: rgb(0xe69f00, 6),
	}
	return build(name, dark, p)
}

// Mono returns the theme without colours, for NO_COLOR and for terminals that have none.
func Mono() *Theme {
	cell, plain := canvas.FromGloss, lipgloss.NewStyle()
	bold := cell(plain.Bold(true))
	return &Theme{
		Name: "mono", Dark: true, Mono: true,
		Strong: bold, Accent: bold, Warn: bold, Bad: bold, Cursor: bold,
		Faint: cell(plain.Faint(true)), Header: cell(plain.Underline(true)),
		Selected: cell(plain.Reverse(true)),
		other:    canvas.Fill{Mono: '░', ASCII: ':'}, looks: glyphs,
	}
}

func build(name string, dark bool, p palette) *Theme {
	cell, plain := canvas.FromGloss, lipgloss.NewStyle()
	ink := func(c canvas.Tone) canvas.Style { return cell(plain.Foreground(c)) }
	t := &Theme{
		Name: name, Dark: dark,
		Strong: cell(plain.Bold(true)), Dim: ink(p.dim), Faint: ink(p.faint), Accent: ink(p.accent),
		Good: ink(p.good), Warn: ink(p.warn), Bad: ink(p.bad), Header: ink(p.dim), Cursor: ink(p.cursor),
		Selected: cell(plain.Foreground(p.strong).Background(p.selected)),
		Dialog:   cell(plain.Foreground(p.text).Background(p.dialog)),
		ramp:     p.ramp, bg: p.bg, fore: p.text, chosen: p.strong,
		other: canvas.Fill{Color: p.faint, Shade: p.dim, Pattern: '░', Mono: '░', ASCII: ':'},
	}
	for c, look := range glyphs {
		look.Tone = p.categories[c]
		t.looks[c] = look
	}
	return t
}

// look returns the tone, glyph and pattern of a category.
func (t *Theme) look(c timeline.Category) look { return t.looks[min(c, timeline.NumCategories-1)] }

// Glyph returns a category's glyph; without colours, the one that fills its areas.
func (t *Theme) Glyph(c timeline.Category) string {
	if t.Mono {
		return string(t.look(c).Mono)
	}
	return string(t.look(c).Glyph)
}

// Category returns the style of a category's name and glyph.
func (t *Theme) Category(c timeline.Category) canvas.Style {
	if t.Mono {
		return canvas.Style{}
	}
	return canvas.Style{FG: t.look(c).Tone}
}

// Fill returns how areas and bars of a category look.
func (t *Theme) Fill(c timeline.Category) canvas.Fill { return t.Shade(c, 0) }

// Shade returns a variant of a category's fill, to distinguish neighbours of one category. Variant 0 is the
// category's own colour.
func (t *Theme) Shade(c timeline.Category, variant int) canvas.Fill {
	l := t.look(c)
	if t.Mono {
		return canvas.Fill{Mono: l.Mono, ASCII: l.ASCII}
	}
	tone := l.Tone
	switch variant & 3 {
	case 1:
		tone = tone.Mix(t.bg, 44)
		tone.Basic ^= 8 // sixteen colours have no shades: bright and normal take turns
	case 2:
		tone = tone.Mix(t.bg, 84)
	case 3:
		tone = tone.Mix(canvas.Tone{R: 255, G: 255, B: 255}, 36)
		tone.Basic ^= 8
	}
	return canvas.Fill{Color: tone, Shade: tone.Mix(t.bg, 52), Pattern: l.Pattern, Mono: l.Mono,
		ASCII: l.ASCII}
}

// Other returns the fill for anything without a category: merged small things, what existed before the
// recording.
func (t *Theme) Other() canvas.Fill { return t.other }

// Quiet returns the fill of everything but the category that is brought out.
func (t *Theme) Quiet() canvas.Fill {
	if t.Mono {
		return canvas.Fill{Mono: '·', ASCII: '.'}
	}
	c := t.Fade(t.Dim.FG, 200)
	return canvas.Fill{Color: c, Shade: c, Mono: '·', ASCII: '.'}
}

// Chosen returns the fill of the selected block.
func (t *Theme) Chosen() canvas.Fill {
	if t.Mono {
		return canvas.Fill{Mono: '╳', ASCII: '*'}
	}
	return canvas.Fill{Color: t.chosen, Shade: t.chosen, Mono: '╳', ASCII: '*'}
}

// Plain returns the fill of a bar that stands for no category.
func (t *Theme) Plain() canvas.Fill {
	if t.Mono {
		return canvas.Fill{Mono: '█', ASCII: '#'}
	}
	return canvas.Fill{Color: t.Accent.FG, Shade: t.Accent.FG, Mono: '█', ASCII: '#'}
}

// Muted is the fill below the edge of a Plain area: a large area in the accent's full strength would outshine
// everything else.
func (t *Theme) Muted() canvas.Fill {
	f := t.Plain()
	f.Color = t.Fade(f.Color, 150)
	return f
}

// Fade returns a colour n/256 of the way to the background; without colours it returns c.
func (t *Theme) Fade(c color.Color, n int) color.Color {
	if tone, ok := c.(canvas.Tone); ok {
		return tone.Mix(t.bg, n)
	}
	return c
}

// Heat returns the colour of a part of a whole on the ramp from quiet to hot, as a background; without
// colours it returns the zero Style and a rune instead.
func (t *Theme) Heat(part, whole int64) (canvas.Style, rune) {
	n := 0
	if whole > 0 {
		n = int(float64(min(max(part, 0), whole)) / float64(whole) * 9.999)
	}
	if t.Mono || len(t.ramp) == 0 {
		return canvas.Style{}, []rune(" .:-=+*#%@")[n]
	}
	return canvas.Style{BG: t.ramp[n]}, ' '
}

// OnSelected returns the style with the background of the selection, or reversed without colours.
func (t *Theme) OnSelected(s canvas.Style) canvas.Style {
	if t.Mono {
		s.Reverse = true
		return s
	}
	s.BG = t.Selected.BG
	if s.FG == nil {
		s.FG = t.Selected.FG
	}
	return s
}

// OnDialog returns the style with the background of a dialog.
func (t *Theme) OnDialog(s canvas.Style) canvas.Style {
	if s.BG == nil {
		s.BG = t.Dialog.BG
	}
	if s.FG == nil {
		s.FG = t.Dialog.FG
	}
	return s
}
