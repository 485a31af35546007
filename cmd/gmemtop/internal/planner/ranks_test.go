package planner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/described"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func TestTheFullestRankOfARunLeads(t *testing.T) {
	cut := errors.New("the file ends early")
	run := []load.Found{
		{Path: "a.jsonl", Rank: maybe.Known(int64(0)), Trace: stepOf(t, 1<<20)},
		{Path: "b.jsonl", Rank: maybe.Known(int64(1)), Trace: stepOf(t, 3<<20), Err: cut},
		{Path: "c.jsonl", Trace: stepOf(t, 2<<20)},
	}
	task := Task{Hardware: DefaultHardware}
	built := func(ctx context.Context, tr *traces.Trace) (*timeline.Timeline, error) {
		return timeline.Build(ctx, tr, nil)
	}
	ranks, damage, err := task.OfRun(t.Context(), run, report.Devices{}, built)
	if err != nil {
		t.Fatal(err)
	}
	if ranks.Len() != 3 || ranks.Lead().Name != "rank 1" || damage != cut {
		t.Errorf("%d ranks, %s leads, damage: %v", ranks.Len(), ranks.Lead().Name, damage)
	}
	run[2].Trace = &traces.Trace{}
	if _, _, err = task.OfRun(t.Context(), run, report.Devices{}, built); !errors.Is(err, ErrNoDevice) ||
		!strings.HasPrefix(err.Error(), "c.jsonl: ") {
		t.Errorf("without a device: %v", err)
	}
	run[2].Err = cut
	if _, _, err = task.OfRun(t.Context(), run, report.Devices{}, built); !errors.Is(err, cut) {
		t.Errorf("without a device in a damaged file: %v", err)
	}
}

// stepOf is a step that makes one activation.
func stepOf(t *testing.T, size int64) *traces.Trace {
	t.Helper()
	text := fmt.Sprintf(`{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cuda:0","pid":7,`+
		`"rank":-1,"world_size":-1,"epoch_ns":1,"steps":[[0,1000]]}
{"k":"alloc","id":1,"size":%d,"addr":4194304,"t":100,"category":"activation","on":"cuda:0"}
{"k":"op","t":200,"d":50,"name":"aten::relu","phase":"forward","module":"m","r":[1],"w":[1],"m":[]}
{"k":"free","id":1,"t":400}
`, size)
	tr, err := described.Read(t.Context(), strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}
