package fidelity

import (
	"context"
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// candidates are the releases whose rules are tried on a recording that names no release: one for each way to
// choose between blocks of equal size, the newest first.
var candidates = [...]allocator.Version{{}, {Major: 2, Minor: 12}, {Major: 2, Minor: 11}}

// run replays a device's recording and, unless program is nil, logs in it what the process did. If the
// recording does not name its release of PyTorch, the best-fitting rules are used.
func run(ctx context.Context, d *timeline.Device, program *Program) (*Report, error) {
	if err := refuseDevice(d); err != nil {
		return nil, err
	}
	if v := allocator.TorchOf(d.Timeline().Trace.Setting); v != (allocator.Version{}) {
		rep, err := runAs(ctx, d, v, program)
		if rep != nil {
			rep.TorchRecorded = true
		}
		return rep, err
	}
	var best *Report
	var tried []string
	for _, v := range candidates {
		var p *Program
		if program != nil {
			p = &Program{Pools: []traces.Pool{{}}}
		}
		rep, err := runAs(ctx, d, v, p)
		if err != nil {
			if best != nil && ctx.Err() == nil {
				continue // other rules fit
			}
			return nil, err
		}
		tried = append(tried, rulesOf(v))
		if best == nil || rep.better(best) {
			best = rep
			if p != nil {
				*program = *p
			}
		}
		if best.exact() {
			break
		}
	}
	if len(tried) > 1 {
		best.Caveats = append(best.Caveats, fmt.Sprintf("the recording does not name its release of PyTorch: of the rules of %s those of %s fit best",
			strings.Join(tried, ", "), rulesOf(best.Settings.Torch)))
	}
	return best, nil
}

// rulesOf names the releases that choose between blocks of equal size as v does.
func rulesOf(v allocator.Version) string {
	switch {
	case v.Before(allocator.Version{Major: 2, Minor: 12}):
		return "2.11 and older"
	case v.Before(allocator.Version{Major: 2, Minor: 13}):
		return "2.12"
	}
	return "2.13 and newer"
}
