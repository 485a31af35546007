package tui

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Where a capture holds no line of code, the Overview and the panel of a block say how to get them.
func TestACaptureWithoutLinesSaysHowToGetThem(t *testing.T) {
	for name, c := range map[string]struct {
		kind         traces.DeviceKind
		format, path string
		lines        bool
		want         string
	}{
		"a job":     {traces.DeviceGPU, "described", "-", false, "No lines of code: I in Live captures"},
		"a file":    {traces.DeviceGPU, "capture", "job.gmt", false, "No lines of code: gmemtop run --depth"},
		"a CPU":     {traces.DeviceCPU, "described", "", false, "No lines of code: for a CPU's"},
		"has lines": {traces.DeviceGPU, "capture", "", true, ""},
	} {
		m := newMaker()
		m.b.T.Source.Format, m.b.T.Source.Path = c.format, c.path
		m.b.T.Devices[0].Kind = c.kind
		stack := traces.NoStack
		if c.lines {
			stack = m.stack("forward model.py 12")
		}
		for range 3 {
			m.alloc(16<<20, "ACTIVATION", stack)
		}
		tl := m.build(t)
		for _, size := range sizes {
			d := start(t, Options{Loader: loaderOf(tl)}, size[0], size[1])
			for _, view := range []leaf.ID{leaf.Overview, leaf.Timeline} {
				d.press(string(rune(view)), "up")
				text := strings.Join(strings.Fields(d.screen()), " ")
				text = strings.ReplaceAll(text, "│ │ ", "") // the panel's edge, where its text goes on
				if view == leaf.Timeline && size[0] < 120 {
					continue // the panel has no room
				}
				if c.want == "" && strings.Contains(text, "No lines") || !strings.Contains(text, c.want) {
					t.Errorf("%s, view %c at %v does not say %q:\n%s", name, view, size, c.want, d.screen())
				}
			}
		}
	}
}
