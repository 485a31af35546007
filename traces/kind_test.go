package traces_test

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// TestARecordingWithoutACapturedStepIsNoSnapshot: PyTorch's recorder would not mend it.
func TestARecordingWithoutACapturedStepIsNoSnapshot(t *testing.T) {
	for format, want := range map[string]string{
		traces.FormatCapture: "record without --trigger, or with --every 10",
		"torch_snapshot":     "torch.cuda.memory._record_memory_history",
	} {
		tr := &traces.Trace{Source: traces.Source{Format: format}}
		if got := tr.Missing(); !strings.Contains(got, want) {
			t.Errorf("%s: it says %q", format, got)
		}
	}
}
