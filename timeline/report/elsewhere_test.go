package report

import (
	"os"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
)

// The file has a kind, a part of the sentence and a line of a log, as public threads show it.
func TestMemoryThatRanOutElsewhereIsToldAsThat(t *testing.T) {
	text, err := os.ReadFile("testdata/elsewhere.txt")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		c := strings.Split(strings.TrimRight(line, "\n"), "\t")
		m, ok, err := ReadMessage(strings.NewReader("step 1\n" + c[2] + "\nexit 1\n"))
		if c[0] == "none" {
			if ok || err != nil {
				t.Errorf("%s: taken for %s, %v", c[2], m.Kind, err)
			}
			continue
		}
		if kinds[c[0]] = true; err != nil || !ok || m.Kind != c[0] {
			t.Errorf("%s: %+v, want %s; %v", c[2], m, c[0], err)
			continue
		}
		cause, fix := m.Sentences(timeline.IEC)
		if !strings.Contains(cause, c[1]) || fix == "" || strings.Contains(cause, "%!") {
			t.Errorf("%s: %s %s", c[2], cause, fix)
		}
		var out strings.Builder
		if err := m.WriteText(&out, Options{}); err != nil || !strings.Contains(out.String(), c[1]) {
			t.Errorf("%s: %s, %v", c[2], out.String(), err)
		}
	}
	for i := range allElsewhere {
		if k := allElsewhere[i].kind; !kinds[k] {
			t.Errorf("no line of kind %s", k)
		}
	}
}

// PyTorch's own message has figures, and a killed rank is often a consequence.
func TestTheMessageThatSaysMostCounts(t *testing.T) {
	const own = "CUDA out of memory. Tried to allocate 250.00 MiB."
	const host = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."
	for log, want := range map[string]string{
		own + "\nRuntimeError: CUDA error: out of memory\n":   "pytorch",
		"RuntimeError: CUDA error: out of memory\n" + own:     "pytorch",
		"RuntimeError: CUDA error: out of memory\n" + host:    "host",
		host + "\n  exitcode  : -9 (pid: 7)\n":                "host",
		"  exitcode  : -9 (pid: 7)\n" + host:                  "host",
		"Killed\n  exitcode  : -9 (pid: 7)\nnot killed\n":     "killed",
		"CUDA error: out of memory\nCUDA error: no more luck": "driver",
	} {
		if m, ok, err := ReadMessage(strings.NewReader(log)); !ok || err != nil || m.Kind != want {
			t.Errorf("%q is told as %q, want %q; %v", log, m.Kind, want, err)
		}
	}
}

// CUDA's message has several lines, of which the first ends the traceback.
func TestTheLineOfCodeOfAMessageOfSeveralLinesStays(t *testing.T) {
	const log = "Traceback (most recent call last):\n" +
		"  File \"/home/me/train.py\", line 9, in <module>\n    x = x.cuda()\n" +
		"torch.AcceleratorError: CUDA error: out of memory\n" +
		"Search for `cudaErrorMemoryAllocation' in https://docs.nvidia.com/cuda for more information.\n"
	m, ok, err := ReadMessage(strings.NewReader(log))
	if !ok || err != nil || m.Kind != "driver" || m.RaisedAt != "<module> train.py:9" ||
		m.RaisedCode != "x = x.cuda()" {
		t.Errorf("%+v, %t, %v", m, ok, err)
	}
}
