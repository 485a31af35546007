package whatif

import (
	"testing"

	"github.com/gmemtop/gmemtop/replay/fidelity"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
)

// Of two levers that each take a half of one request, both together leave a quarter of it.
func TestLeversThatMakeOneRequestSmallerAreMultiplied(t *testing.T) {
	tr := &trials{d: &timeline.Device{}, actions: []action{{Step: fidelity.Step{Size: 1000}}}}
	for _, c := range []struct {
		less []int64
		want int64
	}{
		{nil, 1000},
		{[]int64{500}, 500},
		{[]int64{500, 500}, 250},
		{[]int64{500, 938}, 31},
		{[]int64{2000}, 0},
	} {
		var levers []autopsy.Effect
		for _, less := range c.less {
			levers = append(levers, autopsy.Effect{Less: less})
		}
		e, err := tr.edit(levers)
		if got := e.asks(timeline.NoAlloc, 1000); got != c.want || err != nil {
			t.Errorf("%d bytes fewer leave %d, want %d; %v", c.less, got, c.want, err)
		}
	}
}
