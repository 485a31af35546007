package fit

import (
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// ErrNoStep is the error for a script that ended before its first step.
var ErrNoStep = exit.AsUnsupported(errors.New("the script ended before its first step, so there is no " +
	"telling whether a step fits: it may have been told to train for 0 steps, or to stop"))

// Refusal gives an error its exit code, and says what to do about what gmemtop cannot follow.
func Refusal(err error) error {
	switch {
	case errors.Is(err, standin.ErrNoCompiler), errors.Is(err, standin.ErrNoCUDATorch),
		errors.Is(err, standin.ErrPlatform):
		return exit.AsUnsupported(fmt.Errorf("%w; leave out --allocator real to do without it", err))
	case errors.Is(err, estimate.ErrUnsupported), errors.As(err, new(*plan.Unavailable)):
		return exit.AsUnsupported(err)
	}
	if _, why := headless.NotStarted(err); why != nil {
		return why
	}
	return err
}
