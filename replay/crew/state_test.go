package crew

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/replay/live"
)

// TestAHundredTogglesLeaveTheProcessAsItWas attaches the agent to a training process, turns plans of all
// kinds on and off a hundred times, and detaches it while a plan is on. The process itself compares its
// threads, files, hooks, functions and modes with those before.
func TestAHundredTogglesLeaveTheProcessAsItWas(t *testing.T) {
	h := torchtest.NewHost(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), torchtest.Patience(t))
	defer cancel()
	h.Start(ctx)
	s, err := pytorch.Attach(ctx, h.PID(), h.Bring)
	if err != nil {
		t.Fatal(err)
	}
	l := &liveTraining{Member: newMember(capture.NewHistory(capture.Limits{}), s), t: t,
		done: make(chan error, 1)}
	go func() { l.done <- s.Run(ctx, l.History) }()
	l.wait(3)
	kinds := l.plans(l.problem(), "sqrt,vdnn-all")
	if _, err := exec.LookPath("cc"); err == nil {
		kinds["smartpool"], _, _ = l.pool("smartpool")
	}
	names := slices.Sorted(maps.Keys(kinds))
	if len(names) < 2 || !slices.ContainsFunc(names, func(n string) bool {
		return strings.HasPrefix(n, "sqrt")
	}) || !slices.ContainsFunc(names, func(n string) bool {
		return strings.HasPrefix(n, "vdnn")
	}) {
		t.Fatalf("there are plans of %v: none that swaps, or none that runs ops again", names)
	}
	without := func() (cpu float64, resident int64) { // in ticks a step, and bytes
		from, first := ticks(t, h.PID()), l.index()
		for resident = 0; resident == 0; { // which not every step reports
			list, err := l.Steps(ctx, 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range list[5:] {
				resident = max(resident, x.Resident.Or(0))
			}
		}
		return float64(ticks(t, h.PID())-from) / float64(l.index()-first), resident
	}
	toggle := func(n int64) {
		name := names[n%int64(len(names))]
		if _, err := l.under(n, kinds[name], 2); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := l.under(0, nil, 1); err != nil {
			t.Fatal(err)
		}
	}
	for n := range int64(len(names)) { // by now everything that loads once is loaded
		toggle(n + 1)
	}
	stepBefore, before := without()
	for n := int64(len(names)); n < 100; n++ {
		toggle(n + 1)
	}
	stepAfter, after := without()
	t.Logf("%d kinds of plans; a step took %.2f ticks of a processor and takes %.2f, the process %d KiB "+
		"and %d KiB", len(names), stepBefore, stepAfter, before>>10, after>>10)
	if after-before > 16<<20 { // a hundred slabs are three times that
		t.Errorf("the process held %d bytes before, and now holds %d", before, after)
	}
	if _, err := l.under(101, kinds[names[0]], 3); err != nil {
		t.Fatal(err)
	}
	if err := s.Detach(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-l.done; err != nil {
		t.Error(err)
	}
	if v := l.History.Snapshot(); v.End.Reason != capture.Detached || v.End.Detail != "" ||
		len(v.Losses) > 0 {
		t.Errorf("%+v, %v", v.End, v.Losses)
	}
	h.Compare()
}

// TestAPlanIsRemadeWhenStepsChange switches a training to larger batches while a plan is on.
func TestAPlanIsRemadeWhenStepsChange(t *testing.T) {
	torch(t)
	t.Parallel()
	for _, manager := range []string{"joint", "smartpool"} {
		t.Run(manager, func(t *testing.T) {
			if _, err := exec.LookPath("cc"); managed(manager, anyHardware, ninety).Pools && err != nil {
				t.Skip("needs cc: ", err)
			}
			l := startLive(t, awkward, "grows@1500")
			ctx, done := context.WithTimeout(t.Context(), torchtest.Patience(t))
			defer done()
			var peaks []int64 // of the plans that were on, one after the other
			w := managed(manager, anyHardware, ninety)
			err := l.train(ctx, w, nil, func(n live.News) {
				if k := len(peaks); n.Stage == live.On && n.Peak > 0 && (k == 0 || n.Peak != peaks[k-1]) {
					peaks = append(peaks, n.Peak)
				}
				if len(peaks) == 2 {
					done()
				}
			})
			if err != nil || len(peaks) != 2 || peaks[1] <= peaks[0] {
				t.Errorf("its peaks were %v, and it ended with %v", peaks, err)
			}
			learntTheSame(t, l.end(), alone(t, awkward, "grows@1500")["grows@1500"])
		})
	}
}

// ticks returns the processor time of a process, in hundredths of a second.
func ticks(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	var sum int64
	for _, word := range strings.Fields(rest)[11:13] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}
