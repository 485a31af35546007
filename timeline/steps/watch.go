package steps

import (
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// Problem: of a job that is being watched only a figure a step is known, for as long as it runs; say what a
// person looks for in it: how long a step takes, whether memory grows for good, which steps stood out.
//
// Way chosen: robust statistics over the last [Watched] steps: medians and the median absolute deviation
// for what is usual, the line of [Trend] for growth. The first steps (allocator warming up, autotuning,
// compilation) are left out of the growth as long as there are enough others.
//
// Complexity: O(n log n) of at most Watched values, so that it can be asked at every step. Rejected:
// running means, which one spike spoils for long.

// Watched is how many of the last steps [Watch] looks at.
const Watched = 512

// warmSteps are the first steps of a job, which growth is not read from once there are thrice as many.
const warmSteps = 3

// Report is what the last steps of a running job have in common, and which of them do not. Indices are
// those of the slices that [Watch] was given.
type Report struct {
	// From is the first step that was looked at.
	From int
	// Duration is the median step time in nanoseconds, Bytes the median of the steps' bytes.
	Duration, Bytes int64
	// Top is the step that held most, of those that were looked at; -1 for none.
	Top int
	// Trend is the growth of bytes from step to step.
	Trend Trend
	// Spikes are the steps whose bytes stand out above the others, Slow those that took more than twice the
	// median time and more than the times' own spread explains; both in order.
	Spikes, Slow []int
}

// Watch reports on the last steps of a job. bytes and durations have one value a step, in order; those
// that are unknown are left out. noise is by how many bytes the figure wanders without the training
// being the cause: growth over all of the steps below that is no leak. An allocator's own count has none.
func Watch(bytes, durations []maybe.Int, noise int64) Report {
	n := min(len(bytes), len(durations))
	r := Report{From: max(n-Watched, 0), Top: -1}
	var known, times []int64
	for i := r.From; i < n; i++ {
		if b, ok := bytes[i].Value(); ok {
			known = append(known, b)
			if r.Top < 0 || b > bytes[r.Top].Or(0) {
				r.Top = i
			}
		}
		if d, ok := durations[i].Value(); ok {
			times = append(times, d)
		}
	}
	r.Bytes, r.Duration = stats.Median(known), stats.Median(times)
	// Where most steps are equal their deviation is 0, and rounding alone would stand out: a fiftieth of
	// the median does not.
	margin := max(6*Spread(known), float64(r.Bytes)/50)
	late := max(float64(r.Duration), 6*Spread(times)) // beyond the median
	for i := r.From; i < n; i++ {
		if len(known) >= 4 && float64(bytes[i].Or(r.Bytes)-r.Bytes) > margin {
			r.Spikes = append(r.Spikes, i)
		}
		if len(times) >= 4 && float64(durations[i].Or(r.Duration)-r.Duration) > late {
			r.Slow = append(r.Slow, i)
		}
	}
	from := r.From
	if from < warmSteps && n-r.From > 3*warmSteps {
		from = warmSteps
	}
	var y []float64
	first, last := -1, -1
	for i := from; i < n; i++ {
		if b, ok := bytes[i].Value(); ok {
			y, last = append(y, float64(b)), i
			if first < 0 {
				first = i
			}
		}
	}
	r.Trend = fitTrend(y)
	r.Trend.Leaking = len(y) >= 8 && r.Trend.leaks(y, max(noiseBytes(len(y), r.Bytes), float64(noise)))
	if last > first { // the line was fitted to what is known, one after the other; growth is told a step
		rate := float64(len(y)-1) / float64(last-first)
		r.Trend.Slope, r.Trend.Low, r.Trend.High = r.Trend.Slope*rate, r.Trend.Low*rate, r.Trend.High*rate
	}
	if r.Trend.Leaking { // what grows ends above its own median
		r.Spikes = nil
	}
	return r
}
