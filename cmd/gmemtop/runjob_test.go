package main

import (
	"testing"

	"github.com/gmemtop/gmemtop/capture"
)

func TestThePeakIsTheHighestMarkOfAnyStep(t *testing.T) {
	steps := []capture.Step{{PeakAllocated: 3}, {PeakAllocated: 7}, {PeakAllocated: capture.Unknown}}
	if got := peakAllocated(steps); got != 7 {
		t.Errorf("the peak is %d, not 7", got)
	}
	if got := peakAllocated(nil); got != capture.Unknown {
		t.Errorf("of no step the peak is %d", got)
	}
}
