package gmt_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
)

// realTraces returns the snapshots of real trainings that have events.
func realTraces(t testing.TB) []*traces.Trace {
	t.Helper()
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: real snapshots")
	}
	names, err := filepath.Glob(filepath.Join(root, "torch_snapshot", "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no snapshots under GMEMTOP_TRACES: %v", err)
	}
	var all []*traces.Trace
	for i, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := torchsnapshot.Read(context.Background(), f, nil)
		f.Close()
		if err != nil {
			t.Fatalf("snapshot %d: %v", i, err)
		}
		all = append(all, tr)
	}
	return all
}

func size(t testing.TB, tr *traces.Trace) int {
	t.Helper()
	var b bytes.Buffer
	if err := gmt.Write(context.Background(), &b, tr); err != nil {
		t.Fatal(err)
	}
	return b.Len()
}

func TestRealSnapshotsSurviveTheRoundTrip(t *testing.T) {
	for i, want := range realTraces(t) {
		var b bytes.Buffer
		if err := gmt.Write(context.Background(), &b, want); err != nil {
			t.Fatal(err)
		}
		got, err := gmt.Read(context.Background(), &b, nil)
		if err != nil {
			t.Fatalf("snapshot %d: %v", i, err)
		}
		if a, b := fmt.Sprintf("%#v", *got), fmt.Sprintf("%#v", *want); a != b {
			t.Errorf("snapshot %d with %d events was read back different", i, want.Events.Len())
		}
	}
}

// The bound is the design's: five bytes an event with everything but the final state, over all snapshots that
// have events.
func TestRealSnapshotsTakeAtMostFiveBytesAnEvent(t *testing.T) {
	bytesInAll, events, stateBytes := 0, 0, 0
	for i, tr := range realTraces(t) {
		n := tr.Events.Len()
		if n < 2 {
			continue
		}
		whole := size(t, tr)
		tr.Final = traces.State{}
		rest := size(t, tr)
		t.Logf("snapshot %d: %d events, %.2f B/event, final state %d bytes", i, n, float64(rest)/float64(n),
			whole-rest)
		bytesInAll, events, stateBytes = bytesInAll+rest, events+n, stateBytes+whole-rest
	}
	perEvent := float64(bytesInAll) / float64(events)
	t.Logf("pooled: %d events, %.2f B/event, final states %.2f B/event", events, perEvent,
		float64(stateBytes)/float64(events))
	if perEvent > 5 {
		t.Errorf("%.2f bytes an event", perEvent)
	}
}

func BenchmarkRealSnapshots(b *testing.B) {
	all := realTraces(b)
	total, events := 0, 0
	for b.Loop() {
		total, events = 0, 0
		for _, tr := range all {
			total, events = total+size(b, tr), events+tr.Events.Len()
		}
	}
	b.ReportMetric(float64(total)/float64(events), "B/event")
}
