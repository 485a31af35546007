package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

func TestAMessageInARecordingWithoutTheFailedRequestIsExplained(t *testing.T) {
	b := traces.NewBuilder()
	b.Lose(traces.LossOutOfMemory, traces.Info, 1, "the process died: OutOfMemoryError: CUDA out of memory. "+
		"Tried to allocate 250.00 MiB. GPU 0 has a total capacity of 6.00 GiB of which 24.00 MiB is free.")
	var out bytes.Buffer
	if err := new(app).addDeath(&out, b.Finish()); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "24.0 MiB free of 6.00 GiB") {
		t.Errorf("%q", s)
	}
	out.Reset()
	if err := new(app).addDeath(&out, traces.NewBuilder().Finish()); err != nil || out.Len() > 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
}
