package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Memory outside of PyTorch's allocator that grows: NCCL communicators that are created repeatedly and never
// destroyed (NVIDIA/nccl issue 964, hundreds of MiB each; pytorch issue 63752), handles of other libraries,
// another process. A recording shows the driver's free memory only where a request failed, so this is visible
// only in processes that survived an out-of-memory error: the pattern is that what this process holds plus
// what is free falls from one failure to the next, by a significant share. Look-alikes: another process that
// started, which cannot be distinguished, so the sentence leaves it open; one that allocates and frees, where
// it rises again in between.

// outsideGrown returns by how much less this process could have at the last failure than at the first one,
// and over how many failures it fell; fell is false if it rose in between.
func outsideGrown(c *evidence) (bytes int64, over int, fell bool) {
	e := &c.d.Timeline().Trace.Events
	first, _ := c.d.Timeline().Trace.DeviceEvents(c.d.ID)
	begin, last := int64(-1), int64(-1)
	for m := timeline.Moment(0); m <= c.a.At && c.d.Totals.OOMs > 1; m++ {
		if e.Action[first+int(m)] != traces.OOM {
			continue
		}
		free, known := c.d.Event(m).DeviceFree().Value()
		if !known {
			continue
		}
		had := c.d.Reserved.At(m) + free
		switch {
		case begin < 0:
			begin = had
		case had > last:
			return 0, 0, false
		case had < last:
			over++
		}
		last = had
	}
	return begin - last, over, over > 0
}

func outsideFault(c *evidence) (fault, bool) {
	bytes, over, fell := outsideGrown(c)
	if !fell {
		return fault{}, false
	}
	f := fault{Cause: Cause{Kind: "outside_leak", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"what this process holds and what is free fell by %s together in %s", c.u.Bytes(bytes),
		timeline.Counted(over, "further failure"))}}
	f.said = fmt.Sprintf("Memory outside of PyTorch grew by %s since a request first failed: PyTorch's "+
		"segments and the free memory shrank by that much.", c.u.Bytes(bytes))
	f.fix = "Watch nvidia-smi: if another process grows, end it; if it is this one, look for communicators " +
		"that are made again and again (dist.destroy_process_group), and for libraries that allocate by " +
		"themselves."
	f.sure(Likely, "the allocator's own figures show that it is gone, but not whether this process or "+
		"another has it")
	f.lever = remedy{name: "free_outside", command: "dist.destroy_process_group(group)"}
	return f, true
}
