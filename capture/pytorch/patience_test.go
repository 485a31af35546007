package pytorch

import (
	"errors"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
)

// An attach waits longer for another viewer, which is done soon, than for a debugger, which may stay.
func TestAttachWaitsForAnotherViewerLongerThanForADebugger(t *testing.T) {
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{nil, 0},
		{errors.New("other"), 0},
		{&inject.Error{Kind: inject.ErrNotPermitted}, 0},
		{&inject.Error{Kind: inject.ErrBusy}, tracing},
		{&inject.Error{Kind: inject.ErrBusy, Attaching: true}, settling},
		{errNoAgent, settling},
		{errLives, settling},
	} {
		if got := patience(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
