package autopsy

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// As if a request of no bytes had failed at the peak of trainings of which nothing is known to be wrong.
func TestNoDetectorFindsAFaultAtThePeakOfASoundTraining(t *testing.T) {
	none := func(t *testing.T, d *timeline.Device) {
		if d.Info.Kind != traces.DeviceGPU || !d.HasLifetimes() || d.Totals.OOMs > 0 {
			return
		}
		for _, f := range faults(d, &Result{OOM: true, At: d.Totals.PeakAt}, timeline.IEC) {
			// What is merely large is no fault: logits, scores, and weights that autocast copies.
			switch f.Kind {
			case "logits", "attention_scores", "amp_copies":
			default:
				t.Errorf("%s %v: %s", f.Kind, f.Bytes, f.said)
			}
		}
	}
	t.Run("sample", func(t *testing.T) { none(t, timelinetest.Built(t, timelinetest.Sample(t))) })
	t.Run("made up", func(t *testing.T) { none(t, timelinetest.Built(t, timelinetest.Unmarked(20_000))) })
	timelinetest.Snapshots(t, none)
}

// Advice about PyTorch is for PyTorch alone: the same recording has none where another allocator made it.
func TestOnlyRecordingsOfPyTorchGetItsAdvice(t *testing.T) {
	for format, advised := range map[string]bool{"torch_snapshot": true, "": true, traces.FormatJAX: false,
		traces.FormatXLA: false, traces.FormatNsys: false} {
		tr := timelinetest.Sample(t)
		tr.Source.Format = format
		a, err := Of(context.Background(), timelinetest.Built(t, tr), timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Levers) > 0 != advised {
			t.Errorf("format %q: %d levers", format, len(a.Levers))
		}
	}
}

// Batches that other calls left, or another number of calls, are kept by something else.
func TestResultsAreToldWithTheBatchesOfTheSameCalls(t *testing.T) {
	results := lineCalls{caller: 7, count: 12}
	for _, c := range []struct {
		from    lineCalls
		batches bool
		told    bool
	}{
		{results, true, true},
		{results, false, false},
		{lineCalls{caller: 8, count: 12}, true, false},
		{lineCalls{caller: 7, count: 3}, true, false},
	} {
		found := []fault{
			{Cause: Cause{Kind: "collected_outputs"}, from: results, fix: "Move each as it comes: x.cpu()."},
			{Cause: Cause{Kind: "leak", Bytes: maybe.Known(1 << 20)}, from: c.from, batches: c.batches,
				lever: remedy{changes: []Change{{Alloc: 1}}}},
		}
		withBatches(&evidence{u: timeline.IEC}, found)
		fix, changes := "Move each as it comes: x.cpu().", 0
		if c.told {
			fix = "Move each as it comes, and the batches that stay with them (1.00 MiB): x.cpu()."
			changes = 1
		}
		if found[0].fix != fix || len(found[0].lever.changes) != changes {
			t.Errorf("%+v: %q with %d changes", c, found[0].fix, len(found[0].lever.changes))
		}
	}
}

// On a device that is nearly full, a little that rounding costs would have served the request, and is no
// cause, as small holes are none.
func TestRoundingIsACauseOnlyIfItIsARealShare(t *testing.T) {
	for internal, main := range map[int64]bool{44 << 20: false, 500 << 20: true} {
		f := &facts{units: timeline.IEC, known: true, oom: true, asked: 40 << 20, reserved: 4 << 30,
			internal: internal}
		if c, ok := f.roundingCause(); !ok && main || c.Main != main {
			t.Errorf("rounding of %d bytes is the main cause: %v, want %v", internal, c.Main, main)
		}
	}
}
