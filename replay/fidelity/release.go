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
		rep, err := runAs(ctx, d, v, program, d.Len())
		if rep != nil {
			rep.TorchRecorded = true
		}
		return rep, err
	}
	likely, err := likelyRules(ctx, d)
	if err != nil {
		return nil, err
	}
	var best *Report
	var tried []string
	for _, v := range likely {
		var p *Program
		if program != nil {
			p = &Program{Pools: []traces.Pool{{}}}
		}
		rep, err := runAs(ctx, d, v, p, d.Len())
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
	if len(likely) < len(candidates) {
		tried = tried[:0]
		for _, v := range candidates {
			tried = append(tried, rulesOf(v))
		}
	}
	if len(tried) > 1 {
		best.Caveats = append(best.Caveats,
			fmt.Sprintf("the recording does not name its release of PyTorch: of the rules of %s those of "+
				"%s fit best",
				strings.Join(tried, ", "), rulesOf(best.Settings.Torch)))
	}
	return best, nil
}

// firstEvents is how many events tell, in a longer recording, which rules are worth a replay of all. Tests
// lower it.
var firstEvents = 500_000

// hopeless is the share of the first blocks placed as recorded below which an emulation does not recover.
const hopeless = 0.5

// likelyRules returns the candidates that a recording has to be replayed with. Of a long one these are the
// ones that fit its first events without a difference, if any does, and only the best one if none puts half
// of the first blocks where PyTorch did; else all, since a start that has to be rebuilt blurs the beginning.
func likelyRules(ctx context.Context, d *timeline.Device) ([]allocator.Version, error) {
	if d.Len() <= 2*firstEvents {
		return candidates[:], nil
	}
	var fits, best []allocator.Version
	var report *Report
	for _, v := range candidates {
		rep, err := runAs(ctx, d, v, nil, firstEvents)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			continue // the replay of all will say why
		case rep.exact():
			fits = append(fits, v)
		case report == nil || rep.Score() > report.Score():
			report, best = rep, []allocator.Version{v}
		}
	}
	switch {
	case len(fits) > 0:
		return fits, nil
	case best != nil && report.Score() < hopeless:
		return best, nil
	}
	return candidates[:], nil
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
