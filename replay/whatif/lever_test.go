package whatif_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/replay/whatif"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// keeping records steps of a training that allocates 20 and 30 MiB and frees them, and keeps 10 MiB of each
// step, until the device of 200 MiB is full: in the sixteenth step, at the 20 MiB.
//
//	            20 ┌──┐       ┌──┐
//	               │  │30     │  │30
//	kept 10, 20, … │  └──┐    │  └──┐
func keeping(t *testing.T, at string) *timeline.Device {
	r := newRecorder()
	run := func(format string, args ...any) {
		if err := r.run(fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	run("capacity 200m")
	for step := 0; len(r.refused) == 0; step++ {
		for _, s := range []struct{ name, size string }{{"hidden", "20m"}, {"out", "30m"}, {"kept", "10m"}} {
			run("at %s%s", at, s.name)
			run("malloc %s%d %s", s.name, step, s.size)
			if len(r.refused) > 0 {
				break
			}
		}
		run("free hidden%d", step)
		if len(r.refused) == 0 {
			run("free out%d", step)
		}
	}
	tl, err := timeline.Build(context.Background(), r.trace(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl.Devices[0]
}

// less takes a share off the allocations of a size, from some moments after their start.
func less(d *timeline.Device, size int64, share float64, after timeline.Moment) []autopsy.Change {
	var changes []autopsy.Change
	for a := range d.Allocs.Size {
		if d.Allocs.Size[a] == size {
			end := min(d.Allocs.Requested[a], timeline.Moment(d.Len()))
			changes = append(changes, autopsy.Change{
				Alloc: timeline.AllocID(a), From: d.Allocs.Start[a] + after, To: end,
				Bytes: int64(share * float64(d.Allocs.Rounded[a])),
			})
		}
	}
	return changes
}

func tried(t *testing.T, d *timeline.Device, levers map[string]autopsy.Effect) (map[string]report.Tried,
	*report.OOMDevice) {
	at := int64(failed(t, d))
	r := &report.OOM{Devices: []report.OOMDevice{{OOM: true, Event: &at, DeviceKind: d.Info.Kind.String(),
		Sentence: "Why."}}}
	row := &r.Devices[0]
	for name, e := range levers {
		row.Levers = append(row.Levers, report.Lever{Name: name, Effect: e})
	}
	heard := 0
	err := whatif.Explain(context.Background(), d.Timeline(), r, timeline.IEC, whatif.Listener{
		Skipped: func(_ *timeline.Device, why error) { t.Fatal(why) },
		Trying: func(n, of int) {
			if heard++; n != heard || of != len(levers) {
				t.Errorf("trying %d of %d, and it is the %d. of %d", n, of, heard, len(levers))
			}
		},
	})
	if heard != len(levers) {
		t.Errorf("of %d levers %d were told of", len(levers), heard)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]report.Tried{}
	for _, l := range row.Levers {
		out[l.Name] = *l.Tried
	}
	return out, row
}

func TestALeverIsPlayedThroughTheStepsThatFollow(t *testing.T) {
	const mib = 1 << 20
	d := keeping(t, "")
	out, row := tried(t, d, map[string]autopsy.Effect{
		"keep_nothing":      {Changes: less(d, 10*mib, 1, 1)},
		"keep_half":         {Changes: less(d, 10*mib, 0.5, 0)},
		"more_memory":       {Driver: 40 * mib},
		"a_little_more":     {Driver: 1 * mib},
		"change_what_ended": {Changes: less(d, 30*mib, 1, 1)},
		"smaller_batch":     {Scale: 0.01},
		"nothing":           {},
	})
	for name, want := range map[string]string{
		"keep_nothing": report.Finishes, "keep_half": report.Postpones, "more_memory": report.Postpones,
		"a_little_more": report.DoesNotHelp, "change_what_ended": report.DoesNotHelp,
		"smaller_batch": report.DoesNotHelp, // the next one is as large as it was
		"nothing":       report.NotTried,
	} {
		if out[name].Outcome != want {
			t.Errorf("%s %s, want %s: %+v", name, out[name].Outcome, want, out[name])
		}
	}
	if p := out["keep_nothing"].Peak; p == nil || *p > 60*mib {
		t.Errorf("nothing is kept, and the peak is %d", *p)
	}
	first := "Why. Tried keep nothing: this step would have finished"
	if row.Levers[0].Name != "keep_nothing" || !strings.HasPrefix(row.Sentence, first) {
		t.Errorf("%s: %s", row.Levers[0].Name, row.Sentence)
	}
	// 200 MiB hold 15 kept blocks beside the 50 of a step, and 30 of half the size.
	if n := out["keep_half"].Steps; n < 12 || n > 18 {
		t.Errorf("half of what is kept: %d steps more", n)
	}
	for _, l := range row.Levers {
		if fits := l.Fits != nil && *l.Fits; fits != (l.Tried.Outcome == report.Finishes) {
			t.Errorf("%s fits: %t, but it %s", l.Name, fits, l.Tried.Outcome)
		}
	}
}

// A lever that makes the failed request smaller is tried with what is left of the request.
// A lever says nothing of what the step under way made. The steps that follow do not leave as much again.
func TestWhatALeverLeavesToTheLastStepDoesNotGrow(t *testing.T) {
	const mib = 1 << 20
	d := keeping(t, "")
	levers := map[string]autopsy.Effect{}
	for name, after := range map[string]timeline.Moment{"within the step": 1, "in the next step": 4} {
		changes := less(d, 10*mib, 1, after)
		levers[name] = autopsy.Effect{Changes: changes[:len(changes)-1]}
	}
	outcomes, _ := tried(t, d, levers)
	for name := range levers {
		if got := outcomes[name].Outcome; got != report.Finishes {
			t.Errorf("what each step keeps ends %s: %s", name, got)
		}
	}
}

func TestTheRequestThatFailedIsTriedAsSmallAsALeverMakesIt(t *testing.T) {
	const mib = 1 << 20
	out, _ := tried(t, keeping(t, ""), map[string]autopsy.Effect{
		"no_request":      {Less: 10 * mib}, // it is what each step keeps
		"smaller_request": {Less: 5 * mib},
	})
	for name, want := range map[string]string{
		"no_request": report.Finishes, "smaller_request": report.DoesNotHelp,
	} {
		if out[name].Outcome != want {
			t.Errorf("%s %s, want %s: %+v", name, out[name].Outcome, want, out[name])
		}
	}
}

// What stays of the parameters, the optimizer or gradients is made once, unless each step makes its own: then
// room for some more of them is no room for all.
func TestGradientsThatEachStepLeavesGoOnGrowing(t *testing.T) {
	d := keeping(t, "")
	for id, size := range d.Allocs.Size {
		if size == 10<<20 {
			d.Allocs.Category[id] = timeline.Gradient
		}
	}
	out, _ := tried(t, d, map[string]autopsy.Effect{"more_memory": {Driver: 40 << 20}})
	if got := out["more_memory"]; got.Outcome != report.Postpones || got.Steps > 6 {
		t.Errorf("40 MiB for 10 MiB a step: %s, %d steps", got.Outcome, got.Steps)
	}
}

// oneStep records the beginning of a first step: three requests on a device of 100 MiB, the last of which
// fails.
func oneStep(t *testing.T, a, b, c string) *timeline.Device {
	r := newRecorder()
	for _, line := range []string{"capacity 100m", "at a", "malloc a " + a, "at b", "malloc b " + b, "at c",
		"malloc c " + c} {
		if err := r.run(line); err != nil {
			t.Fatal(err)
		}
	}
	tl, err := timeline.Build(context.Background(), r.trace(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl.Devices[0]
}

func TestHowAStepGoesOnIsNotClaimedWhereItIsNotRecorded(t *testing.T) {
	d := oneStep(t, "40m", "40m", "40m")
	out, row := tried(t, d, map[string]autopsy.Effect{"half": {Changes: less(d, 40<<20, 0.5, 0)}})
	if out["half"].Outcome != report.ServesRequest || row.Levers[0].Fits != nil {
		t.Errorf("%+v", out["half"])
	}
}

func TestTwoLeversAreTriedTogetherWhereOneIsNotEnough(t *testing.T) {
	const mib = 1 << 20
	d := oneStep(t, "40m", "50m", "46m")
	_, row := tried(t, d, map[string]autopsy.Effect{
		"less_a": {Changes: less(d, 40*mib, 0.5, 0)}, "less_b": {Changes: less(d, 50*mib, 0.4, 0)},
	})
	if row.Together == nil || row.Together.Outcome != report.ServesRequest || len(row.Together.Levers) != 2 {
		t.Errorf("%+v", row.Together)
	}
}

// Of a long recording only the end is played: there a lever has the same effect as on a short one that ends
// the same way.
func TestTheEndOfALongRecordingIsEnough(t *testing.T) {
	const mib = 1 << 20
	var short map[string]report.Tried
	for _, n := range []int{30_000, 600_000} {
		d := longRun(t, n)
		out, row := tried(t, d, map[string]autopsy.Effect{
			"keep_nothing": {Changes: less(d, mib, 1, 1)},
			"more_memory":  {Driver: 40 * mib},
			"too_little":   {Driver: mib / 2},
			"smaller":      {Changes: less(d, 5*mib, 0.5, 0)},
		})
		if short == nil {
			short = out
		}
		if row.Simulation.FromStart != (n < 100_000) {
			t.Errorf("%d events: played from the start: %t", n, row.Simulation.FromStart)
		}
		for name, o := range out {
			s := short[name]
			if o.Outcome != s.Outcome || max(o.Steps-s.Steps, s.Steps-o.Steps) > 1 {
				t.Errorf("%s: %s %d, of a short one %s %d", name, o.Outcome, o.Steps, s.Outcome, s.Steps)
			}
			if o.Outcome != report.NotTried && *o.PeakReserved > *o.Capacity+40*mib {
				t.Errorf("%s: reserved %d of %d", name, *o.PeakReserved, *o.Capacity)
			}
		}
		if out["keep_nothing"].Outcome != report.Finishes || out["more_memory"].Outcome != report.Postpones ||
			out["too_little"].Outcome != report.DoesNotHelp {
			t.Errorf("%d events: %+v", n, out)
		}
	}
}

// Results are joined with those before in each step: the request grows, and room for this one is no room for
// the next.
func TestARequestThatGrowsEachStepGoesOnGrowing(t *testing.T) {
	r := newRecorder()
	run := func(format string, args ...any) {
		if err := r.run(fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	run("capacity 200m")
	for step := 0; len(r.refused) == 0; step++ {
		run("at hidden")
		run("malloc hidden%d 20m", step)
		run("at joined")
		run("malloc joined%d %dm", step, 5*(step+3))
		run("free hidden%d", step)
		if step > 0 && len(r.refused) == 0 {
			run("free joined%d", step-1)
		}
	}
	tl, err := timeline.Build(context.Background(), r.trace(), nil)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := tried(t, tl.Devices[0], map[string]autopsy.Effect{"more_memory": {Driver: 120 << 20}})
	// Each step takes 10 MiB more, for the old tensor and the new one.
	if got := out["more_memory"]; got.Outcome != report.Postpones || got.Steps < 3 || got.Steps > 12 {
		t.Errorf("120 MiB more: %s, %d steps", got.Outcome, got.Steps)
	}
}

// Two steps show no trend. What the second left once more than the first would fill the device only after
// hundreds of steps, so a lever that serves the step is not said to postpone anything. Steps that each leave
// a sixteenth of the device are another matter.
func TestTwoStepsAreNotContinuedForHundreds(t *testing.T) {
	for _, x := range []struct {
		capacity, left string
		outcome        string
	}{{"150m", "256k", report.Finishes}, {"165m", "10m", report.Postpones}} {
		r := newRecorder()
		run := func(format string, args ...any) {
			if err := r.run(fmt.Sprintf(format, args...)); err != nil {
				t.Fatal(err)
			}
		}
		run("capacity %s", x.capacity)
		for step := 0; step < 2; step++ {
			for layer := range 8 {
				run("at hidden%d", layer)
				run("malloc hidden%d_%d 10m", step, layer)
			}
			run("at left")
			run("malloc left%d %s", step, x.left)
			run("at joined")
			run("malloc joined%d %dm", step, 60+14*step)
			for layer := 0; layer < 8 && len(r.refused) == 0; layer++ {
				run("free hidden%d_%d", step, layer)
			}
			if len(r.refused) == 0 {
				run("free joined%d", step)
			}
		}
		tl, err := timeline.Build(context.Background(), r.trace(), nil)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := tried(t, tl.Devices[0], map[string]autopsy.Effect{"more_memory": {Driver: 200 << 20}})
		if got := out["more_memory"]; got.Outcome != x.outcome {
			t.Errorf("with %s left by each step: %s in %d steps, want %s", x.left, got.Outcome, got.Steps,
				x.outcome)
		}
	}
}
