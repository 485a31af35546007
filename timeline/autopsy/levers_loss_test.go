package autopsy

import (
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// The blocks of two layers happen to be half as large as the logits.
func TestBlocksOfSeveralLayersAreNoLogits(t *testing.T) {
	const trace = `alloc 0x1000 512000 cat=activation
op aten::gelu forward in=blocks.0.mlp w=0x1000
alloc 0x100000 512000 cat=activation
op aten::gelu forward in=blocks.1.mlp w=0x100000
alloc 0x200000 1024000 cat=activation
op aten::mm forward in=head r=0x100000 w=0x200000
alloc 0x400000 1024000 cat=activation
op aten::_log_softmax forward in=model r=0x200000 w=0x400000
`
	d := timelinetest.Text(t, trace).Devices[0]
	logits := Logits(d, timeline.Moment(d.Len()-1))
	if logits == nil {
		t.Fatal("there are no logits")
	}
	for a, want := range []bool{false, false, true, true} {
		if got := logits(timeline.AllocID(a)); got != want {
			t.Errorf("block %d: %v", a, got)
		}
	}
}
