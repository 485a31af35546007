//go:build !linux

package inject

import (
	"context"
	"errors"
)

func host() system { return system{} }

func carryOut(context.Context, Mechanism, *target, Bootstrap, *Report) error {
	return errors.ErrUnsupported
}
