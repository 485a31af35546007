package autopsy

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A model whose layers are spread unequally over several GPUs of one process. The pattern: one line calls
// layers that allocate on several devices, the one that ran out needs at least twice what another one ever
// had, and the same divided equally would fit. Look-alikes: DataParallel, which has the whole model on each
// (first_device); two separate models, such as a teacher on the second GPU, which other lines call. Sources:
// accelerate's guide to big models (device_map "balanced_low_0"); lm-evaluation-harness, pull request 123.
// Ranks that record one file each are not compared here.
//
// Stages that wait for one another: with ScheduleGPipe torch.distributed.pipelining runs all forwards of the
// micro-batches before the first backward and holds the graphs of all of them; with Schedule1F1B it holds as
// many as there are stages (torch.distributed.pipelining's documentation). It is the pattern of one backward
// for several forwards, below the schedule's own functions.

// callersOf returns the lines that call the model on a device, before a time.
func callersOf(parts []steps.Part) map[traces.FrameID]bool {
	callers := map[traces.FrameID]bool{}
	for _, p := range parts {
		if p.Phase == traces.PhaseForward && p.Caller >= 0 {
			callers[p.Caller] = true
		}
	}
	return callers
}

func stagesFault(c *evidence) (fault, bool) {
	if !c.a.Free.IsKnown() || c.a.State == nil || dataParallel(c) {
		return fault{}, false
	}
	own := callersOf(c.parts)
	needed := c.d.Allocated.At(c.a.At) + c.a.Asked.Or(0)
	could := c.d.Reserved.At(c.a.At) + c.a.Free.Or(0)
	sum, n := needed, int64(1)
	var least *timeline.Device
	line := traces.FrameID(-1)
	for _, d := range c.d.Timeline().Devices {
		if d == c.d || d.Info.Kind != traces.DeviceGPU {
			continue
		}
		shared := false
		for caller := range callersOf(steps.Parts(d)) {
			if shared = shared || own[caller]; own[caller] && (line < 0 || caller < line) {
				line = caller
			}
		}
		if !shared {
			continue
		}
		sum, n = sum+d.Totals.PeakAllocated, n+1
		if least == nil || d.Totals.PeakAllocated < least.Totals.PeakAllocated {
			least = d
		}
	}
	if least == nil || 2*least.Totals.PeakAllocated > needed || sum/n >= could {
		return fault{}, false
	}
	called := c.frameText(line)
	f := fault{Cause: Cause{Kind: "unequal_stages", Bytes: maybe.Known(needed - sum/n), Text: fmt.Sprintf(
		"%s needs %s and %s had at most %s, with layers of one model on %d GPUs; divided equally "+
			"it is %s each",
		c.d.Label(), c.u.Bytes(needed), least.Label(), c.u.Bytes(least.Totals.PeakAllocated), n,
		c.u.Bytes(sum/n))}}
	f.said = fmt.Sprintf("The layers that %s calls are split unevenly over the GPUs: %s needs %s, and %s "+
		"never more than %s.",
		called, c.d.Label(), c.u.Bytes(needed), least.Label(), c.u.Bytes(least.Totals.PeakAllocated))
	f.fix = fmt.Sprintf("Move layers from %s to %s, or say what each may hold: "+
		"device_map=\"balanced_low_0\", max_memory={...}.", c.d.Label(), least.Label())
	f.sure(Likely, "one line calls layers on all of them; replicas of one model would look the same")
	f.lever = remedy{name: "balance_stages", command: at("device_map=\"balanced_low_0\"", called)}
	return f, true
}

// dataParallel reports whether DataParallel is on any stack.
func dataParallel(c *evidence) bool {
	for i := range c.d.Timeline().Places().Frames {
		_, file, _ := c.d.Timeline().Places().FrameText(traces.FrameID(i))
		if strings.HasSuffix(file, "torch/nn/parallel/data_parallel.py") {
			return true
		}
	}
	return false
}

// scheduled makes the fault of several forwards without a backward that of the pipeline schedule that runs
// them, if there is one.
func scheduled(c *evidence, f *fault, calls int, ids []timeline.AllocID) {
	if !strings.Contains(c.frames(c.d.Origin(ids[0])), "torch/distributed/pipelining/") {
		return
	}
	f.Kind = "pipeline_schedule"
	f.said = fmt.Sprintf("The pipeline runs the forward of every micro-batch before the first backward: the "+
		"graphs of all %d exist at once, %s.", calls, c.u.Bytes(f.Bytes.Or(0)))
	f.fix = "Use Schedule1F1B in place of ScheduleGPipe: a stage then holds as many graphs as there are " +
		"stages after it."
	f.sure(Likely, "the schedule's functions call the model; with 1F1B the first stage holds several, too")
	f.lever.name, f.lever.command = "schedule_1f1b", "Schedule1F1B(stage, n_microbatches)"
}
