package steps

import (
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/traces/stats"
)

// fitTrend fits a straight line to y at x = 0, 1, 2... by least squares and returns its slope with the 95 %
// interval of Student's t. Ordinary least squares was chosen over Theil-Sen because a leak adds the same
// bytes each step, so its residuals are small and the interval is narrow after a handful of steps; its
// weakness, a single jump, is excluded by [growsSteadily].
func fitTrend(y []float64) Trend {
	n := len(y)
	t := Trend{Points: n}
	if n < 3 {
		return t
	}
	mx := float64(n-1) / 2
	my := 0.0
	for _, v := range y {
		my += v / float64(n)
	}
	var sxx, sxy float64
	for i, v := range y {
		dx := float64(i) - mx
		sxx += dx * dx
		sxy += dx * (v - my)
	}
	t.Slope = wholeBytes(sxy / sxx)
	var rss float64
	for i, v := range y {
		r := v - my - t.Slope*(float64(i)-mx)
		rss += r * r
	}
	half := wholeBytes(studentT95(n-2) * math.Sqrt(rss/float64(n-2)/sxx))
	t.Low, t.High = t.Slope-half, t.Slope+half
	return t
}

// wholeBytes removes the floating-point error from sums of whole bytes.
func wholeBytes(v float64) float64 {
	if math.Abs(v) < 1e-3 {
		return 0
	}
	return v
}

// studentT95 returns the two-sided 95 % quantile of Student's t with df degrees of freedom. Up to 10 it is a
// table; beyond, the expansion of Cornish and Fisher (Abramowitz and Stegun 26.7.5), accurate to three digits
// there.
func studentT95(df int) float64 {
	table := [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228}
	if df <= 0 {
		return math.Inf(1)
	}
	if df <= len(table) {
		return table[df-1]
	}
	const z = 1.959964
	v := float64(df)
	return z + (z*z*z+z)/(4*v) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*v*v)
}

// growsSteadily reports whether growth is more than one jump: it stays above zero without the largest step.
func growsSteadily(y []float64) bool {
	if len(y) < 3 {
		return false
	}
	steps := make([]float64, len(y)-1)
	for i := range steps {
		steps[i] = y[i+1] - y[i]
	}
	steps = slices.Delete(steps, maxIndex(steps), maxIndex(steps)+1)
	rest := make([]float64, len(steps)+1)
	for i, s := range steps {
		rest[i+1] = rest[i] + s
	}
	if len(rest) < 3 {
		return rest[1] > 0
	}
	return fitTrend(rest).Low > 0
}

func maxIndex(v []float64) int {
	m := 0
	for i := range v {
		if v[i] > v[m] {
			m = i
		}
	}
	return m
}

// leaks reports whether the line grows with certainty and by more than noise bytes over the points.
func (t Trend) leaks(y []float64, noise float64) bool {
	return t.Low > 0 && t.Slope*float64(t.Points-1) > noise && growsSteadily(y)
}

// noiseBytes is the growth that does not count as a leak: what rounding and bookkeeping of a step may leave
// behind.
func noiseBytes(points int, peak int64) float64 {
	return max(512*float64(points), float64(peak)*1e-4)
}

// Spread returns the median absolute deviation of v, scaled to equal the standard deviation for normal v.
func Spread[T int | int64 | float64](v []T) float64 {
	m := stats.Median(v)
	d := make([]float64, len(v))
	for i, x := range v {
		d[i] = math.Abs(float64(x - m))
	}
	return 1.4826 * stats.Median(d)
}

// Trend is the growth of allocated bytes per iteration, at the same place in each steady iteration, with its
// 95 % interval.
type Trend struct {
	Slope, Low, High float64 // bytes an iteration
	Points           int
	Leaking          bool // Low is above zero and the growth is above noise
	// Unseen means that nothing is known of blocks that outlive a step, so that growth would not show.
	Unseen bool
}
