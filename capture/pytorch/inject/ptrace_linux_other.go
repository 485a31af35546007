//go:build linux && !amd64

package inject

import (
	"context"
	"errors"
)

// throughPtrace has not been ported. A port needs the register set (NT_PRSTATUS), the way to cancel the
// restart of a system call (NT_ARM_SYSTEM_CALL on arm64) and the calling convention; Check refuses these
// machines before anything gets here.
func throughPtrace(context.Context, *target, Bootstrap, *Report) error { return errors.ErrUnsupported }
