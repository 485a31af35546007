package tui

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/tui/leaf"
)

// TestCallSitesInTablesAreLinks checks tables of call sites: the name leads to the source line that it
// names, and links change no cell.
func TestCallSitesInTablesAreLinks(t *testing.T) {
	m := newMaker()
	m.segment(m.next, 512<<20)
	for layer := range 4 {
		line := fmt.Sprintf("forward /home/me/model.py %d", 30+layer)
		m.alloc(int64(64+8*layer)<<20, "ACTIVATION", m.stack(line, "main /home/me/train.py 40"))
	}
	tl := m.build(t)
	for _, id := range []leaf.ID{leaf.Overview, leaf.Timeline, leaf.Peak, leaf.Allocations, leaf.OOM} {
		drawn := func(links bool) string {
			d := start(t, Options{Loader: loaderOf(tl), View: id, Links: links}, 120, 40)
			return d.m.View().Content
		}
		plain, linked := drawn(false), drawn(true)
		if strings.Contains(plain, "\x1b]8;") {
			t.Errorf("%c draws links that nobody asked for", id)
		}
		if ansi.Strip(linked) != ansi.Strip(plain) {
			t.Errorf("%c: links change the screen to\n%s", id, ansi.Strip(linked))
		}
		found := map[string]bool{} // a stack beside the table has but one of them
		for line := range strings.Lines(linked) {
			_, at, ok := strings.Cut(line, "\x1b]8;;file://")
			if !ok {
				continue
			}
			address, text, _ := strings.Cut(at, "\a")
			path, number, _ := strings.Cut(address, "#")
			text, _, _ = strings.Cut(ansi.Strip(text), "\x1b")
			if want := leaf.Base(path) + ":" + number; !strings.Contains(text, want) {
				t.Errorf("%c: %q leads to %s", id, strings.TrimSpace(text), address)
			}
			found[address] = strings.HasSuffix(path, "model.py")
		}
		maps.DeleteFunc(found, func(_ string, row bool) bool { return !row })
		if len(found) < 4 {
			t.Errorf("%c links %d of 4 call sites:\n%s", id, len(found), ansi.Strip(linked))
		}
	}
}
