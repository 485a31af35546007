package figure

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

var categoryCell = regexp.MustCompile(`<i class="swatch [a-z_]+"></i>([^<]*)</td>`)

// categoriesOf returns the category names in the page's table.
func categoriesOf(t *testing.T, d *timeline.Device) []string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(t.Context(), &b, []*timeline.Device{d}, Options{}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range categoryCell.FindAllStringSubmatch(b.String(), -1) {
		names = append(names, m[1])
	}
	return names
}

func TestThePageMarksAnInferredCategoryAndOnlyThat(t *testing.T) {
	b := traces.NewBuilder()
	dev := b.Device(traces.DeviceGPU, 0)
	frame := func(file, fn string) traces.FrameID {
		return b.Frame(traces.Frame{File: b.String(file), Func: b.String(fn), Line: 1})
	}
	stack := b.Stack([]traces.FrameID{frame("/site-packages/torch/optim/adam.py", "step"),
		frame("train.py", "main")})
	b.Event(traces.Event{Action: traces.Alloc, Addr: 512, Size: 512, Stack: stack, Device: dev})
	tl, err := timeline.Build(t.Context(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := categoriesOf(t, tl.Devices[0]); len(got) != 1 || got[0] != "~optimizer_state" {
		t.Errorf("an inferred category is shown as %q", got)
	}
	for _, name := range categoriesOf(t, run(t, 4, "")) {
		if name[0] == '~' {
			t.Errorf("the recorded category %q is marked as inferred", name)
		}
	}
}
