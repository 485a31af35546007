package joint

import (
	"math"
	"slices"
)

// rates are the prices of the relaxation: of a unit of memory at each instant, and of a nanosecond of each
// copy engine in each phase. Between two ops, 1 minus those of the engines is the price of compute.
type rates struct{ memory, out, in []float64 }

func newRates(n int) rates {
	return rates{make([]float64, n), make([]float64, n), make([]float64, n)}
}

func (r *rates) each() [3][]float64 { return [3][]float64{r.memory, r.out, r.in} }

func (r *rates) clone() rates {
	return rates{slices.Clone(r.memory), slices.Clone(r.out), slices.Clone(r.in)}
}

func (r *rates) copy(x *rates) {
	copy(r.memory, x.memory)
	copy(r.out, x.out)
	copy(r.in, x.in)
}

func (r *rates) dot(x *rates) (sum float64) {
	other := x.each()
	for k, a := range r.each() {
		for i, v := range a {
			sum += v * other[k][i]
		}
	}
	return sum
}

func (r *rates) mix(x *rates, share float64) {
	other := x.each()
	for k, a := range r.each() {
		for i := range a {
			a[i] += share * (other[k][i] - a[i])
		}
	}
}

// upwards returns the squared length of a direction, without components that would make a rate of 0 negative.
func (r *rates) upwards(direction *rates) (sum float64) {
	d := direction.each()
	for k, a := range r.each() {
		for i, v := range a {
			if v > 0 || d[k][i] > 0 {
				sum += d[k][i] * d[k][i]
			}
		}
	}
	return sum
}

// move sets the rates to the point at distance far from others in a direction. No rate becomes negative, and
// between two ops both engines together cost no more than compute.
func (r *rates) move(from, direction *rates, far float64, between []bool) {
	for i := range r.memory {
		r.memory[i] = max(from.memory[i]+far*direction.memory[i], 0)
		out := max(from.out[i]+far*direction.out[i], 0)
		in := max(from.in[i]+far*direction.in[i], 0)
		if over := out + in - 1; over > 0 && between[i] {
			out, in = out-over/2, in-over/2
			if low := min(out, in); low < 0 { // the nearest point of the triangle is a corner
				out, in = math.Min(1, max(out, 0)), math.Min(1, max(in, 0))
			}
		}
		r.out[i], r.in[i] = out, in
	}
}
