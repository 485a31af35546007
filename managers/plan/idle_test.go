package plan

import (
	"fmt"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// An annotated step begins before its first allocation and ends after its last: a plan of it takes as long as
// the step, even if it is the last of the recording.
func TestAPlanTakesAsLongAsItsStep(t *testing.T) {
	b := traces.NewBuilder()
	dev := b.Device(traces.DeviceGPU, 0)
	addr := uint64(1 << 30)
	for k := range int64(3) {
		start := k * 1000
		b.T.Marks = append(b.T.Marks, traces.Mark{Kind: traces.MarkIteration, Device: dev,
			Name: b.String(fmt.Sprintf("ProfilerStep#%d", k)), Start: start, End: start + 900})
		for i := range int64(4) { // 300 ns before the first event, 200 after the last
			for j, a := range []traces.Action{traces.Alloc, traces.Free} {
				b.Event(traces.Event{Time: start + 300 + 100*i + 50*int64(j), Addr: addr, Size: 1 << 20,
					Device: dev, Action: a, Detail: b.Detail(traces.Detail{ForwardStack: traces.NoStack})})
			}
			addr += 1 << 20
		}
	}
	tl, err := timeline.Build(t.Context(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	d := tl.Main()
	its := steps.Of(d)
	if len(its.List) != 3 {
		t.Fatalf("%d steps", len(its.List))
	}
	for k := range its.List {
		p, err := FromDevice(t.Context(), d, BuildOptions{Iteration: k})
		if err != nil {
			t.Fatal(err)
		}
		took := int64(0)
		for i := range p.Ops {
			took += p.Ops[i].Duration
		}
		if want := its.List[k].Finish - its.List[k].Start; took != want || want != 900 {
			t.Errorf("step %d takes %d ns, its plan %d", k, want, took)
		}
	}
}
