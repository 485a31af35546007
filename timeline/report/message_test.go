package report

import (
	"os"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
)

func TestEveryWordingOfPyTorchsMessageIsUnderstood(t *testing.T) {
	text, err := os.ReadFile("testdata/messages.txt") // release, part of the sentence, message
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		c := strings.Split(strings.TrimSpace(line), "\t")
		name, want := c[0], c[1]

		m, ok, err := ReadMessage(strings.NewReader("step 1\n" + c[2] + "\nexit 1\n"))
		if err != nil || !ok || m.Tried == nil || m.Total == nil || m.Free == nil || m.Allocated == nil {
			t.Errorf("%s: %+v, %v", name, m, err)
			continue
		}
		cause, _ := m.Sentences(timeline.IEC)
		if !strings.Contains(cause, want) {
			t.Errorf("%s: %s", name, cause)
		}
		if name == "2.15" && (*m.Allowed != 7<<30+1<<29 || *m.PoolsIdle != 1<<20 || m.Device != 0) {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if _, ok, _ := ReadMessage(strings.NewReader("MemoryError: out of memory\n")); ok {
		t.Error("a message without figures is taken for PyTorch's")
	}
}
