package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
)

// packing reads a storage-allocation problem from a file, plain or compressed. The error of a file that has
// none wraps [traces.ErrFormat] and names the line.
func packing(ctx context.Context, path string, o load.Options) (*pack.Table, error) {
	var t *pack.Table
	err := load.Plain(ctx, path, o, func(r io.Reader) error {
		var err error
		t, err = pack.ReadCSV(r)
		return err
	})
	switch {
	case errors.As(err, new(*pack.ParseError)):
		return nil, fmt.Errorf("%s: %w: %w", load.Name(path), traces.ErrFormat, err)
	case err != nil:
		return nil, err
	}
	return t, nil
}

// Pack solves a problem. If limit is above 0, it stops after that time with the best packing that it has
// found.
func Pack(ctx context.Context, p *pack.Problem, o pack.Options, limit time.Duration) (pack.Result, error) {
	limited := ctx
	if limit > 0 {
		var stop context.CancelFunc
		limited, stop = context.WithTimeout(ctx, limit)
		defer stop()
	}
	res, err := pack.Exact(limited, p, o)
	if err != nil && (ctx.Err() != nil || len(res.Offsets) != len(p.Items)) {
		return res, err
	}
	if err := pack.Validate(p, res.Offsets); err != nil {
		return res, fmt.Errorf("the packing is wrong, which is a bug in gmemtop: %w", err)
	}
	return res, nil
}

// Verdict says in a few lines how good a packing is. capacity is 0 if none was asked for.
func Verdict(res pack.Result, capacity int64, u timeline.Units) string {
	text := ""
	if capacity > 0 {
		text = fmt.Sprintf("capacity     %d\n", capacity)
	}
	return text + fmt.Sprintf("peak         %d  (%s)\nlower_bound  %d  (%s)\n%s\n", res.Top, u.Bytes(res.Top),
		res.LowerBound, u.Bytes(res.LowerBound), res.Status)
}
