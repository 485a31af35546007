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

// inParts is a lever that keeps one of some parts of the two large blocks and of the request of oneStep.
func inParts(d *timeline.Device, block, request, parts int64) autopsy.Lever {
	left := 1 - 1/float64(parts)
	return autopsy.Lever{Name: "micro_batch", Parts: parts, Command: fmt.Sprintf("batch_size //= %d", parts),
		Effect: autopsy.Effect{Changes: less(d, block, left, 0), Less: int64(left * float64(request))}}
}

// A device of 100 MiB holds 2 x 48 MiB. What is left of them and of the request has to fit.
//
//	request   half                 a quarter           an eighth
//	104 MiB   48 + 52 = 100 fits
//	180 MiB   48 + 90 = 138        24 + 45 = 69 fits
//	400 MiB   48 + 200 = 248       24 + 100 = 124      12 + 50 = 62 fits
//	800 MiB   48 + 400 = 448       24 + 200 = 224      12 + 100 = 112
//
// Reserved is more: requests from 10 MiB on take segments of whole 2 MiB, so 12 + 12 + 46, and smaller ones
// share one of 20 MiB, so 20 + 50.
func TestABatchIsDividedUntilItFits(t *testing.T) {
	const mib, succeeds = 1 << 20, "the allocation would have succeeded"
	for _, c := range []struct {
		request, parts, also int64
		outcome, says        string
	}{
		{104, 2, 0, report.ServesRequest, "Tried halving the micro-batch: " + succeeds},
		{180, 4, 0, report.ServesRequest,
			"Tried a quarter of the micro-batch: " + succeeds + ", 70.0 MiB of 100 MiB reserved"},
		{400, 8, 0, report.ServesRequest,
			"Tried an eighth of the micro-batch: " + succeeds + ", 70.0 MiB of 100 MiB reserved"},
		{800, 2, 8, report.DoesNotHelp, "No single change that this recording lets us try is enough."},
	} {
		d := oneStep(t, "48m", "48m", fmt.Sprintf("%dm", c.request))
		at := int64(failed(t, d))
		half := inParts(d, 48*mib, c.request*mib, 2)
		asked := int64(2)
		r := &report.OOM{Devices: []report.OOMDevice{{OOM: true, Event: &at, DeviceKind: d.Info.Kind.String(),
			Levers: []report.Lever{{Name: half.Name, Parts: 2, Mends: true, Effect: half.Effect,
				Divide: func(_ context.Context, parts int64) (autopsy.Lever, bool, error) {
					if parts <= asked {
						t.Errorf("%d MiB: %d parts after %d", c.request, parts, asked)
					}
					asked = parts
					return inParts(d, 48*mib, c.request*mib, parts), true, nil
				}}}}}}
		if err := whatif.Explain(t.Context(), d.Timeline(), r, timeline.IEC, whatif.Listener{}); err != nil {
			t.Fatal(err)
		}
		row := &r.Devices[0]
		i := 0
		for row.Levers[i].Name != half.Name {
			i++
		}
		l := &row.Levers[i]
		if l.Parts != c.parts || !l.Mends || l.Tried.Outcome != c.outcome || l.Tried.AlsoParts != c.also {
			t.Errorf("%d MiB: %d parts, %+v", c.request, l.Parts, *l.Tried)
		}
		if want := max(c.parts, c.also); asked != want {
			t.Errorf("%d MiB: divided into %d parts at last, want %d", c.request, asked, want)
		}
		if c.parts > 2 && l.Command != fmt.Sprintf("batch_size //= %d", c.parts) {
			t.Errorf("%d MiB in %d parts: the command is %q", c.request, c.parts, l.Command)
		}
		if !strings.Contains(row.Sentence, c.says) {
			t.Errorf("%d MiB: %q does not say %q", c.request, row.Sentence, c.says)
		}
		if c.also > 0 {
			var text strings.Builder
			if err := r.WriteText(&text, report.Options{}); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(text.String(), "this step still runs out, even with an eighth\n") {
				t.Errorf("an eighth is not told of:\n%s", text.String())
			}
		}
	}
}
