package timeline_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
)

func TestAMemoComputesItsAnswerOncePerDevice(t *testing.T) {
	var found atomic.Int32
	lengths := timeline.NewMemo(func(d *timeline.Device) *int {
		found.Add(1)
		n := d.Len()
		return &n
	})
	devices := []*timeline.Device{mustBuild(crowdedTrace(10, 5)), mustBuild(crowdedTrace(20, 5))}
	var wg sync.WaitGroup
	for range 64 {
		for _, d := range devices {
			wg.Go(func() {
				if n := lengths.Of(d); *n != d.Len() || n != lengths.Of(d) {
					t.Errorf("a device of %d events has the answer %d", d.Len(), *n)
				}
			})
		}
	}
	wg.Wait()
	if n := found.Load(); n != 2 {
		t.Errorf("found %d times for 2 devices", n)
	}
}
