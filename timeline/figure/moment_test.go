package figure

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"image/color"
	"image/png"
	"io"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// at returns the options for a picture of one moment.
func at(t *testing.T, moment string) Options {
	t.Helper()
	p, err := report.ParseMoment(moment)
	if err != nil {
		t.Fatal(err)
	}
	return Options{Options: report.Options{At: p}}
}

func TestAPictureOfAMomentShowsWhatIsAllocatedThen(t *testing.T) {
	d := run(t, 50, "x")
	for _, c := range []struct {
		at, headline string
		names        []string
	}{
		{"peak", "110 MiB allocated in 2 blocks, at event 53 of 102", []string{"forwardx", "initx"}},
		{"end", "10.0 MiB allocated in 1 block,", []string{"initx"}},
		{"2", "11.0 MiB allocated in 2 blocks, ", []string{"initx", "forwardx"}},
		{"0", "Nothing is allocated ", nil},
	} {
		m, err := newMoment(t.Context(), d, at(t, c.at))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(c.headline, "110") != strings.Contains(m.headline, "This is the peak.") ||
			!strings.HasPrefix(m.headline, strings.Split(c.headline, ", at")[0]) {
			t.Errorf("%s: %s", c.at, m.headline)
		}
		svg := string(drawSVG(m, m.width, m.height, &light))
		for _, name := range []string{"initx", "forwardx"} {
			want := strings.Contains(strings.Join(c.names, " "), name)
			if got := strings.Contains(svg, ">"+name+" model.py:7<"); got != want {
				t.Errorf("%s: %s is drawn: %v, want %v", c.at, name, got, want)
			}
		}
	}
}

func TestBoxesOfAMomentAreAsWideAsTheirShare(t *testing.T) {
	m, err := newMoment(t.Context(), run(t, 50, "x"), at(t, "peak"))
	if err != nil {
		t.Fatal(err)
	}
	var boxes widths
	m.draw(&boxes, m.width, m.height, &light)
	// The legend has a square and a bar of each category. The boxes of the category and of its stack follow.
	for _, c := range []struct {
		timeline.Category
		share float64
	}{{timeline.Activation, 100.0 / 110}, {timeline.Parameter, 10.0 / 110}} {
		full := float64(m.width) - 24 - marginRight - panelWidth
		if got := boxes[c.Category]; len(got) != 4 || got[2] != got[3] || got[2] > full*c.share ||
			got[2] < full*c.share-1.1 {
			t.Errorf("%s has boxes %.1f wide, want %.1f", c.Category, got, full*c.share)
		}
	}
	svg := string(drawSVG(m, m.width, m.height, &light))
	for _, want := range []string{">activation<", ">parameter<"} {
		if strings.Count(svg, want) < 2 {
			t.Errorf("%s is missing as a box or in the legend", want)
		}
	}
}

// widths is a canvas that only notes how wide areas are.
type widths map[timeline.Category][]float64

func (w *widths) area(points []point, c timeline.Category) {
	if *w == nil {
		*w = widths{}
	}
	(*w)[c] = append((*w)[c], points[1].x-points[0].x)
}
func (w *widths) fill(_, _, _, _ float64, _ color.RGBA)           {}
func (w *widths) line(_ []point, _ color.RGBA, _ float64, _ bool) {}
func (w *widths) text(_, _ float64, _ string, _ textStyle)        {}

func TestPicturesOfAMomentHoldNamesAsTextAndStopWhenCancelled(t *testing.T) {
	var b bytes.Buffer
	if err := SVG(t.Context(), &b, run(t, 50, hostile), at(t, "peak")); err != nil {
		t.Fatal(err)
	}
	for dec := xml.NewDecoder(&b); ; {
		tok, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "script" {
			t.Error("a name became an element")
		}
	}
	d := run(t, 50, "x")
	if err := PNG(t.Context(), &b, d, at(t, "end")); err != nil {
		t.Fatal(err)
	}
	if img, err := png.Decode(&b); err != nil || img.Bounds().Dx() != 2400 || img.Bounds().Dy() != 1280 {
		t.Errorf("%v, %v", img.Bounds(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, write := range map[string]func(context.Context, io.Writer, *timeline.Device, Options) error{
		"svg": SVG, "png": PNG,
	} {
		if err := write(ctx, io.Discard, d, at(t, "peak")); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNumbersStayBesideTheirUnits(t *testing.T) {
	for _, line := range wrap("it holds 2.86 GiB, or 80 % of what there is", 15, 9) {
		if strings.HasPrefix(line, "GiB") || strings.HasPrefix(line, "%") {
			t.Errorf("a line begins with a unit: %q", line)
		}
	}
}
