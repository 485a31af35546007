package capture_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func TestAnEndIsExplained(t *testing.T) {
	for _, c := range []struct {
		end  capture.End
		want string
	}{
		{capture.End{Reason: capture.Exited, Code: maybe.Known(0)}, "exit code 0"},
		{capture.End{Reason: capture.Exited}, "it has exited"},
		{capture.End{Reason: capture.Exited, Detail: "ValueError: x"}, "ValueError: x"},
		{capture.End{Reason: capture.Exited, Code: maybe.Known(1), Detail: "x", OutOfMemory: true},
			"exit code 1, out of memory: x"},
		{capture.End{Reason: capture.Exited, Detail: "x", OutOfMemory: true}, "out of memory: x"},
		{capture.End{Reason: capture.Detached}, "detached; the job is still running"},
		{capture.End{Reason: capture.Refused, Detail: "torch is too old"},
			"watching did not begin: torch is too old"},
		{capture.End{Reason: "later", Detail: "x"}, "later: x"},
	} {
		if got := c.end.Sentence(); got != c.want {
			t.Errorf("%+v: %q, not %q", c.end, got, c.want)
		}
	}
}
