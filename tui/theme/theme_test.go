package theme

import (
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
)

func TestEveryCategoryCanBeToldApartWithoutColours(t *testing.T) {
	for _, mono := range []bool{false, true} {
		seen := map[string]timeline.Category{}
		th := Mono()
		for cat := range timeline.NumCategories {
			c := canvas.New(1, 1, canvas.NoColor, mono)
			c.Column(0, 0, 1, []canvas.Slab{{Top: 8, Fill: th.Fill(cat)}}, nil)
			got := c.String()
			if other, ok := seen[got]; ok {
				t.Errorf("%s and %s are both drawn as %q (ascii %v)", cat, other, got, mono)
			}
			seen[got] = cat
		}
	}
}

func TestALegendShowsWhatTheAreaShows(t *testing.T) {
	th := Mono()
	for _, ascii := range []bool{false, true} {
		for cat := range timeline.NumCategories {
			c := canvas.New(2, 1, canvas.NoColor, ascii)
			c.Column(0, 0, 1, []canvas.Slab{{Top: 8, Fill: th.Fill(cat)}}, nil)
			c.Text(1, 0, th.Category(cat), th.Glyph(cat))
			if area, legend := c.At(0, 0).Rune, c.At(1, 0).Rune; area != legend {
				t.Errorf("%s (ascii %v): the area is %q, the legend %q", cat, ascii, area, legend)
			}
		}
	}
}

func TestGlyphsInColourAreAllDifferent(t *testing.T) {
	for _, name := range Names {
		th, ok := ByName(name)
		if !ok || th.Name != name {
			t.Fatalf("there is no theme %s", name)
		}
		seen := map[string]bool{}
		for cat := range timeline.NumCategories {
			if g := th.Glyph(cat); seen[g] || canvas.Width(g) != 1 {
				t.Errorf("%s: the glyph %q of %s is taken or not one cell wide", name, g, cat)
			} else {
				seen[g] = true
			}
		}
	}
}

// contrast is WCAG 2.1's ratio of relative luminance, section "contrast ratio".
func contrast(a, b canvas.Tone) float64 {
	lum := func(t canvas.Tone) float64 {
		ch := func(v uint8) float64 {
			s := float64(v) / 255
			if s <= 0.03928 {
				return s / 12.92
			}
			s = (s + 0.055) / 1.055
			return s * s * (0.6 + 0.4*s) // within 2 % of the power 2.4
		}
		return 0.2126*ch(t.R) + 0.7152*ch(t.G) + 0.0722*ch(t.B)
	}
	la, lb := lum(a), lum(b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

func TestTextCanBeReadOnTheBackground(t *testing.T) {
	for _, name := range Names {
		th, _ := ByName(name)
		if th.Mono {
			continue
		}
		for what, c := range map[string]any{"dim": th.Dim.FG, "accent": th.Accent.FG, "warn": th.Warn.FG,
			"bad": th.Bad.FG, "good": th.Good.FG} {
			if got := contrast(c.(canvas.Tone), th.bg); got < 4 {
				t.Errorf("%s: %s has a contrast of %.1f to the background", name, what, got)
			}
		}
		if got := contrast(th.Selected.FG.(canvas.Tone), th.Selected.BG.(canvas.Tone)); got < 4.5 {
			t.Errorf("%s: selected text has a contrast of %.1f", name, got)
		}
		for cat := range timeline.NumCategories {
			if got := contrast(th.look(cat).Tone, th.bg); got < 1.3 {
				t.Errorf("%s: %s has a contrast of %.1f to the background", name, cat, got)
			}
		}
	}
}

// A terminal with 256 colours, as tmux often is, shows each colour as its nearest.
func TestCategoriesCanBeToldApartIn256Colours(t *testing.T) {
	drawn := func(th *Theme, cat timeline.Category, variant int) string {
		c := canvas.New(1, 1, canvas.ANSI256, false)
		fill := th.Shade(cat, variant)
		fill.Pattern = ' '
		c.Column(0, 0, 1, []canvas.Slab{{Top: 8, Fill: fill}}, nil)
		return c.String()
	}
	for _, name := range Names {
		th, _ := ByName(name)
		if th.Mono {
			continue
		}
		whose := map[string]timeline.Category{}
		for cat := range timeline.NumCategories {
			own := drawn(th, cat, 0)
			if other, taken := whose[own]; taken {
				t.Errorf("%s: %s and %s are both %q", name, cat, other, own)
			}
			whose[own] = cat
		}
		for cat := range timeline.NumCategories {
			for variant := 1; variant <= 3; variant++ {
				shade := drawn(th, cat, variant)
				blues := name == "safe-light" && cat == timeline.Gradient // patterns tell these two apart
				if other, taken := whose[shade]; taken && other != cat &&
					!(blues && other == timeline.AutogradDetail) {
					t.Errorf("%s: shade %d of %s is the colour of %s: %q", name, variant, cat, other, shade)
				}
			}
		}
	}
}
