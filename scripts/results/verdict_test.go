package main

import (
	"strings"
	"testing"
)

// TestALargestBatchIsReachedOnlyWithinTheLimitOnItsStep: the verdict on HOME's batch needs a step that is
// bearable, and says how long it is.
func TestALargestBatchIsReachedOnlyWithinTheLimitOnItsStep(t *testing.T) {
	for _, c := range []struct {
		at         atPaper
		verdict    string
		stepBeside string
	}{
		{atPaper{"VGG-16", 0.5}, ": reached.", "+50.0 %"},
		{atPaper{"VGG-16", 7.155}, ": not reached.", "+715.5 %"},
		{atPaper{}, ": not reached,", ""},
	} {
		if got := c.at.words(); !strings.Contains(got, c.verdict) || !strings.Contains(got, c.stepBeside) {
			t.Errorf("%+v: %s", c.at, got)
		}
	}
}
