package planner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestAJobWithoutStepsIsToldWhatAStepIs: nobody knows whether its steps are long or not recognised, so the
// wait goes on, with a sentence that names both.
func TestAJobWithoutStepsIsToldWhatAStepIs(t *testing.T) {
	var notes []string
	training := &Training{Note: func(s string) { notes = append(notes, s) }}
	never := func(ctx context.Context) error {
		if len(notes) > 0 { // it waits again
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	if err := training.awaitStep(t.Context(), never, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "torch.optim") {
		t.Errorf("notes %q", notes)
	}
	notes = nil
	gone := errors.New("the training ended")
	for _, want := range []error{nil, gone} {
		err := training.awaitStep(t.Context(), func(context.Context) error { return want }, time.Hour)
		if !errors.Is(err, want) || len(notes) != 0 {
			t.Errorf("%v, want %v; notes %q", err, want, notes)
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	err := training.awaitStep(stopped, never, time.Hour)
	if !errors.Is(err, context.Canceled) || len(notes) != 0 {
		t.Errorf("%v, want that it was stopped; notes %q", err, notes)
	}
}
