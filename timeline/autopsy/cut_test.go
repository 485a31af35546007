package autopsy

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// What a file that ends early does not show, the answer does not deny.
func TestAFileThatEndsEarlyIsSaidToDoSo(t *testing.T) {
	for _, c := range []struct {
		events int
		cut    bool
		want   string
	}{
		{0, true, "The file is cut off before the first allocation."},
		{0, false, "Nothing was allocated, so nothing can be saved."},
		{4, true, "The file is cut off, and what there is shows no out-of-memory."},
		{4, false, "No out-of-memory here."},
	} {
		b := traces.NewBuilder()
		gpu := b.Device(traces.DeviceGPU, 0)
		for i := range int64(c.events) {
			b.Event(traces.Event{Time: i, Addr: uint64(i+1) << 22, Size: 1 << 20, Action: traces.Alloc,
				Stack: traces.NoStack, Device: gpu})
		}
		if c.cut {
			b.Lose(traces.LossTruncated, traces.DataLoss, 1, "the file ends early")
		}
		tl, err := timeline.Build(t.Context(), b.Finish(), nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := Of(t.Context(), tl.Main(), timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(a.Sentence, c.want) {
			t.Errorf("%d events, cut %v: %s", c.events, c.cut, a.Sentence)
		}
	}
}
