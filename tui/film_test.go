package tui

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/tui/viewtest"
)

// A session as an animated picture: README shows it.
//
// Problem: a picture shows one view, and a recording of a terminal needs a player or megabytes.
//
// Approach: the program itself runs on the embedded sample, keys are pressed, and each screen becomes one
// frame of an SVG file, whose style sheet shows the frames in turn. Where nothing moves, as in print, the
// first frame is shown.

// frame is one screen of a session: the keys that lead to it, what they do, and for how long it is shown.
type frame struct {
	keys    []string
	caption string
	seconds int
}

// captionHeight is the room below the screen, in the picture's units.
const captionHeight = 34

// film presses the keys of each frame and returns the picture.
func film(t *testing.T, d *driver, frames []frame) []byte {
	t.Helper()
	total := 0
	for _, f := range frames {
		total += f.seconds
	}
	var style, body strings.Builder
	var box [4]float64 // x, y, w, h
	fill, at := "", 0
	for i, f := range frames {
		d.press(f.keys...)
		var picture bytes.Buffer
		if err := write(d.m.shot().picture)(context.Background(), &picture); err != nil {
			t.Fatal(err)
		}
		head, inner, _ := strings.Cut(strings.TrimSuffix(picture.String(), "</svg>\n"), "\n")
		if _, err := fmt.Sscanf(head[strings.Index(head, "viewBox="):], `viewBox="%g %g %g %g"`, &box[0],
			&box[1], &box[2], &box[3]); err != nil {
			t.Fatalf("the size of %q: %v", head, err)
		}
		if fill == "" { // of the screen's ground, which is its first rectangle
			_, rest, _ := strings.Cut(inner, `fill="`)
			fill, _, _ = strings.Cut(rest, `"`)
		}
		from, to := 100*float64(at)/float64(total), 100*float64(at+f.seconds)/float64(total)
		at += f.seconds
		visible, hidden := fmt.Sprintf("%.4g%%{visibility:visible}", from), ""
		if i > 0 {
			visible = "0%{visibility:hidden}" + visible
		}
		if i < len(frames)-1 {
			hidden = fmt.Sprintf("%.4g%%{visibility:hidden}", to)
		}
		fmt.Fprintf(&style, "@keyframes f%d{%s%s}.f%d{animation:f%d %ds step-end infinite}\n", i, visible,
			hidden, i, i, total)
		state := "hidden"
		if i == 0 {
			state = "visible"
		}
		fmt.Fprintf(&body, `<g class="f%d" visibility="%s">%s<text x="4" y="%g" fill="#e8b339" `+
			`xml:space="preserve">%s</text></g>`+"\n", i, state, inner, box[1]+box[3]+captionHeight/2-4,
			html.EscapeString(f.caption))
	}
	h := box[3] + captionHeight
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="%g %g %g %g" width="%g" height="%g" `+
		`font-family="ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace" font-size="14">`+"\n", box[0],
		box[1], box[2], h, box[2], h)
	fmt.Fprintf(&b, "<style>%s</style>\n", style.String())
	fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%g" height="%g" rx="6" fill="%s"/>`+"\n", box[0], box[1],
		box[2], h, fill)
	b.WriteString(body.String())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// TestThePictureOfASession compares README's animated picture with the program; -update films it again.
func TestThePictureOfASession(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(sample(t, "gpt-cpu")), Color: "always"}, 104, 28)
	got := film(t, d, []frame{
		{nil, "$ gmemtop replay          the peak, and what holds it", 5},
		{[]string{"3"}, "3   who holds it, line by line", 4},
		{[]string{"i"}, "i   the same as a picture", 3},
		{[]string{"i", "5"}, "5   which step differs, and whether memory leaks", 4},
		{[]string{"8"}, "8   what would bring the peak down, and by how much", 5},
		{[]string{"?"}, "?   all keys", 4},
	})
	path := filepath.Join("..", "docs", "screens", "session.svg")
	if *viewtest.Update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale: run go test ./tui -run Picture -update and look at it", path)
	}
}
