package whatif_test

import (
	"errors"
	"testing"

	"github.com/gmemtop/gmemtop/replay/whatif"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// TestNothingIsPlayedForARequestOfAPrivatePool: PyTorch keeps its cache when such a request is refused, and
// the emulation gives it back.
func TestNothingIsPlayedForARequestOfAPrivatePool(t *testing.T) {
	for pool, private := range map[string]bool{"": false, " pool=0": false, " pool=1": true} {
		d := timelinetest.Script(t, "gpu 0\nseg 0x7f0000000000 40m\n+ a 40m addr=0x7f0000000000\n"+
			"- a\noom 120m 4m"+pool+"\n").Main()
		failed := timeline.Moment(d.Len() - 1)
		_, err := whatif.Allocator(t.Context(), d, failed, whatif.Options{})
		if errors.Is(err, whatif.ErrPrivatePool) != private {
			t.Errorf("%q: %v", pool, err)
		}
	}
}
