package tui

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/csv"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// No recording of a training has what a storage-allocation problem lacks, so no view suggests making one.
func TestNoViewSuggestsRecordingAStorageAllocationProblem(t *testing.T) {
	tr, err := csv.Read(t.Context(), strings.NewReader("id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\n"),
		nil)
	if err != nil {
		t.Fatal(err)
	}
	tl, err := timeline.Build(t.Context(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []leaf.ID{leaf.Overview, leaf.Timeline, leaf.Peak, leaf.Segments, leaf.Iterations,
		leaf.Allocations, leaf.OOM, leaf.Trace} {
		text := start(t, Options{Loader: loaderOf(tl), View: id}, 120, 40).screen()
		for _, advice := range []string{"describe", "record_function", "_dump_snapshot",
			"_record_memory_history"} {
			if strings.Contains(text, advice) {
				t.Errorf("view %c suggests %s:\n%s", id, advice, text)
			}
		}
	}
}
