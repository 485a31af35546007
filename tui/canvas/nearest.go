package canvas

import (
	"math"
	"sync"

	"github.com/charmbracelet/x/ansi"
)

// oklab is a colour in Björn Ottosson's Oklab, in which distances are close to what people see.
type oklab struct{ l, a, b float64 }

func (t Tone) oklab() oklab {
	linear := func(v uint8) float64 {
		c := float64(v) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	r, g, b := linear(t.R), linear(t.G), linear(t.B)
	l := math.Cbrt(0.4122214708*r + 0.5363325363*g + 0.0514459929*b)
	m := math.Cbrt(0.2119034982*r + 0.6806995451*g + 0.1073969566*b)
	s := math.Cbrt(0.0883024619*r + 0.2817188376*g + 0.6299787005*b)
	return oklab{
		l: 0.2104542553*l + 0.7936177850*m - 0.0040720468*s,
		a: 1.9779984951*l - 2.4285922050*m + 0.4505937099*s,
		b: 0.0259040371*l + 0.7827717662*m - 0.8086757660*s,
	}
}

// firstFixed is the first colour of xterm's palette that people do not redefine.
const firstFixed = 16

// xterm is the palette from firstFixed on.
var xterm = sync.OnceValue(func() (list [256 - firstFixed]oklab) {
	for i := range list {
		r, g, b, _ := ansi.IndexedColor(firstFixed + i).RGBA()
		list[i] = Tone{R: uint8(r >> 8), G: uint8(g >> 8), B: uint8(b >> 8)}.oklab()
	}
	return list
})

// hueWeight is how much more a difference in hue or saturation counts than one in lightness: categories are
// told apart by hue, and a grey that turns teal would be taken for another category.
const hueWeight = 2

// nearest returns the colour of xterm's palette that is closest.
func (t Tone) nearest() ansi.IndexedColor {
	if n := t.index(); n > 0 {
		return ansi.IndexedColor(n)
	}
	own, best, least := t.oklab(), 0, math.Inf(1)
	palette := xterm()
	for i := range palette {
		p := &palette[i]
		dl, da, db := p.l-own.l, p.a-own.a, p.b-own.b
		if d := dl*dl + hueWeight*(da*da+db*db); d < least {
			best, least = i, d
		}
	}
	return ansi.IndexedColor(firstFixed + best)
}
