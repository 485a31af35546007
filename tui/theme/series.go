package theme

import "github.com/gmemtop/gmemtop/tui/canvas"

// Series are neither categories nor states but must be distinguishable in one chart, such as memory managers.
// Their tones lie between those of the categories, alternating light and dark. Code that draws them also
// gives each a letter: with more series than tones, or without colours, the letter distinguishes them.
var (
	seriesOnDark = []canvas.Tone{
		rgb(0x5fd7d7, 14), rgb(0xffaf5f, 11), rgb(0xaf87ff, 13), rgb(0x87d75f, 10), rgb(0xff87af, 9),
		rgb(0x87afff, 12), rgb(0xd7d75f, 3),
		rgb(0xafafaf, 7),
	}
	seriesOnLight = []canvas.Tone{
		rgb(0x008787, 6), rgb(0xaf5f00, 3), rgb(0x8700d7, 5), rgb(0x008700, 2), rgb(0xd7005f, 1),
		rgb(0x005faf, 4), rgb(0x5f5f00, 3),
		rgb(0x626262, 8),
	}
)

// Series returns the style of the i-th of several series, i from 0 on; tones repeat.
func (t *Theme) Series(i int) canvas.Style {
	switch {
	case t.Mono || i < 0:
		return canvas.Style{}
	case t.Dark:
		return canvas.Style{FG: seriesOnDark[i%len(seriesOnDark)]}
	}
	return canvas.Style{FG: seriesOnLight[i%len(seriesOnLight)]}
}
