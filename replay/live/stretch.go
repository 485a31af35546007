package live

import (
	"context"
	"time"

	"github.com/gmemtop/gmemtop/traces/stats"
)

// A stretch of steps that are timed, with or without a plan: as many as make a median that can be trusted,
// and no more than the user has patience for.

// The fewest steps that are timed in a stretch, the longest stretch without news of its progress, and how
// often there is news in a longer one.
const (
	leastTimed = 5
	unheard    = 4 * time.Second
	tellEvery  = time.Second
)

// toTime returns how many steps to time if one takes so many nanoseconds: steps of seconds differ less than
// short ones do, and the user waits for them.
func (o *Options) toTime(each int64) int {
	return int(min(max(int64(o.Patience)/max(each, 1), leastTimed), int64(o.Steps)))
}

// stretch lets the first steps after a change pass, and returns these and the ones that count. tell, if not
// nil, is told how many have been timed, and of how many.
func (t *Target) stretch(ctx context.Context, number int64, tell func(timed, of int)) (
	passed, timed []Step, err error,
) {
	if passed, err = t.carrier.Steps(ctx, number, t.opt.Warm); err != nil {
		return nil, nil, err
	}
	each, _ := spread(passed)
	for of := t.opt.toTime(each); len(timed) < of; of = t.opt.toTime(each) {
		if tell != nil {
			tell(len(timed), of)
		}
		count := of - len(timed)
		if int64(count)*each > int64(unheard) {
			count = min(count, int(max(int64(tellEvery)/each, 1)))
		}
		steps, err := t.carrier.Steps(ctx, number, count)
		if err != nil {
			return nil, nil, err
		}
		timed = append(timed, steps...)
		each, _ = spread(timed)
	}
	return passed, timed, nil
}

// timed returns the steps that count of a stretch without a plan.
func (t *Target) timed(ctx context.Context, tell func(timed, of int)) ([]Step, error) {
	_, steps, err := t.stretch(ctx, 0, tell)
	return steps, err
}

// spread returns the median and the 95th percentile of step times.
func spread(steps []Step) (median, p95 int64) {
	times := make([]int64, len(steps))
	for i, s := range steps {
		times[i] = s.Time
	}
	return stats.Median(times), stats.Percentile(times, 95)
}
