package inject

import (
	"context"
	"errors"
)

// carryOut runs one mechanism.
func carryOut(ctx context.Context, m Mechanism, t *target, b Bootstrap, r *Report) error {
	switch m {
	case Ptrace:
		return throughPtrace(ctx, t, b, r)
	case PEP768:
		return throughPEP768(ctx, t, b, r)
	case GDB:
		return throughGDB(ctx, t, b, r)
	}
	return errors.ErrUnsupported
}
