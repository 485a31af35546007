package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// The first GPU of DataParallel. The pattern: DataParallel's frames, and another GPU that needs less than
// half. What looks like it: stages of a pipeline that are unequal, which have no such frames.

func firstDeviceFault(c *evidence) (fault, bool) {
	second := int64(-1)
	for _, d := range c.d.Timeline().Devices {
		if d != c.d && d.Info.Kind == traces.DeviceGPU {
			second = max(second, d.Totals.PeakAllocated)
		}
	}
	needed := c.d.Allocated.At(c.a.At) + c.a.Asked.Or(0)
	if !dataParallel(c) || second < 0 || 2*second > needed {
		return fault{}, false
	}
	f := fault{Cause: Cause{Kind: "first_device", Bytes: maybe.Known(needed - second), Text: fmt.Sprintf(
		"%s needs %s, the next GPU at most %s: DataParallel gathers outputs and keeps the model on the first",
		c.d.Label(), c.u.Bytes(needed), c.u.Bytes(second))}}
	f.said = fmt.Sprintf("DataParallel fills its first GPU: that one needs %s, the others at most %s.",
		c.u.Bytes(needed), c.u.Bytes(second))
	f.sure(Certain, "DataParallel's frames and the figures of two GPUs show it")
	f.fix = "Use DistributedDataParallel, one process a GPU, with the loss computed on each."
	f.lever = remedy{name: "distributed_data_parallel",
		command: "model = DistributedDataParallel(model, device_ids=[rank])"}
	return f, true
}
