package figure

import (
	"fmt"
	"image/color"
	"path/filepath"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
)

// palette holds the colours of a figure.
type palette struct {
	paper, ink, faint, grid, accent color.RGBA
	category                        [timeline.NumCategories]color.RGBA
}

func rgb(v uint32) color.RGBA {
	return color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 255}
}

// The categories' colours are torch.profiler's (torch/profiler/_memory_profiler.py, _CATEGORY_TO_COLORS):
// darkgreen, goldenrod, mediumblue, red, black, mediumpurple, royalblue, grey; on dark paper each is
// lightened until it stands out, black becomes white. Teal, for key-value caches, is ours.
var light = palette{
	paper: rgb(0xffffff), ink: rgb(0x1c1c1e), faint: rgb(0x6b6b70), grid: rgb(0xe4e4e8),
	accent: rgb(0xb00020),
	category: [timeline.NumCategories]color.RGBA{
		timeline.Unknown:        rgb(0x9a9a9a),
		timeline.Parameter:      rgb(0x006400),
		timeline.OptimizerState: rgb(0xdaa520),
		timeline.Gradient:       rgb(0x0000cd),
		timeline.Activation:     rgb(0xe5322d),
		timeline.Input:          rgb(0x111111),
		timeline.Temporary:      rgb(0x9370db),
		timeline.AutogradDetail: rgb(0x4169e1),
		timeline.Cache:          rgb(0x008080),
	},
}

var dark = palette{
	paper: rgb(0x16171a), ink: rgb(0xececf0), faint: rgb(0x9a9aa2), grid: rgb(0x2c2d33),
	accent: rgb(0xff6b6b),
	category: [timeline.NumCategories]color.RGBA{
		timeline.Unknown:        rgb(0x8a8a8a),
		timeline.Parameter:      rgb(0x2e9b3c),
		timeline.OptimizerState: rgb(0xe3b341),
		timeline.Gradient:       rgb(0x4c6fff),
		timeline.Activation:     rgb(0xf25f5c),
		timeline.Input:          rgb(0xf2f2f2),
		timeline.Temporary:      rgb(0xb197fc),
		timeline.AutogradDetail: rgb(0x74a2ff),
		timeline.Cache:          rgb(0x35b5ad),
	},
}

func (o Options) palette() *palette {
	if o.Dark {
		return &dark
	}
	return &light
}

func hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

// hatches gives each category a second channel besides its colour: the angle and the spacing of thin lines,
// none for spacing 0.
var hatches = [timeline.NumCategories]struct{ angle, spacing int }{
	timeline.Unknown: {90, 4}, timeline.Parameter: {}, timeline.OptimizerState: {45, 6},
	timeline.Gradient:   {-45, 6},
	timeline.Activation: {}, timeline.Input: {0, 4}, timeline.Temporary: {45, 3},
	timeline.AutogradDetail: {90, 7}, timeline.Cache: {0, 6},
}

// baseName returns the last element of a path from any operating system.
func baseName(path string) string {
	path = strings.ReplaceAll(path, "\\", "/")
	if path == "" || path == "-" {
		return "standard input"
	}
	return filepath.Base(path)
}
