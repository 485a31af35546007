package steps

import (
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// Problem: a watched job yields only one figure per step, for as long as it runs. Report what a person looks
// for: how long a step takes, whether memory keeps growing, which steps stood out.
//
// Approach: robust statistics over the last [Watched] steps: medians and the median absolute deviation
// for the usual, the line of [Trend] for growth. The first steps (allocator warming up, autotuning,
// compilation) do not count for growth if there are enough others.
//
// Complexity: O(n log n) in at most Watched values, cheap enough for every step. Rejected: running means,
// which one spike distorts for a long time.

// Watched is how many of the last steps [Watch] reads.
const Watched = 512

// warmSteps is the number of first steps of a job that growth ignores once there are three times as many.
const warmSteps = 3

// Report says what the last steps of a running job have in common, and which ones stand out. Indices refer to
// the slices passed to [Watch].
type Report struct {
	// From is the first step considered.
	From int
	// Duration is the median step time in nanoseconds, Bytes the median of the steps' bytes.
	Duration, Bytes int64
	// Top is the step that held most among those considered; -1 for none.
	Top int
	// Trend is the growth of bytes from step to step.
	Trend Trend
	// Spikes are the steps whose bytes stand out above the others, Slow the steps that took more than twice
	// the median time and more than the spread of the times explains; both in order.
	Spikes, Slow []int
}

// Watch reports on the last steps of a job. bytes and durations have one value a step, in order; unknown
// values are skipped. noise is by how many bytes the figure wanders for reasons other than the training:
// growth below that over all steps is no leak. An allocator's own count has no noise. since is the step at
// which what the job holds last changed for a known reason, such as a plan that came or went: growth is
// looked for only from there on, once the first steps after it have passed.
func Watch(bytes, durations []maybe.Int, noise int64, since int) Report {
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
	// If most steps are equal their deviation is 0 and rounding alone would stand out, so the least deviation
	// is a fiftieth of the median.
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
	if since > from {
		from = since + warmSteps
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
	if last > first { // the line was fitted to known values only; convert growth to bytes per step
		rate := float64(len(y)-1) / float64(last-first)
		r.Trend.Slope, r.Trend.Low, r.Trend.High = r.Trend.Slope*rate, r.Trend.Low*rate, r.Trend.High*rate
	}
	if r.Trend.Leaking { // a growing figure ends above its own median
		r.Spikes = nil
	}
	return r
}
