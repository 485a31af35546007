package swap

import (
	"context"
	"math"
	"math/rand/v2"
)

// Bayesian optimisation of a few weights in [-1, 1] (AutoSwap uses the Python package bayes_opt: a Gaussian
// process, upper confidence bound, kappa 5).
//
// Problem: find the weights with the greatest value, when one evaluation costs a whole schedule and nothing
// is known about the slope.
//
// Approach: a Gaussian process with the Matérn 5/2 kernel through all values seen. Its length is the most
// likely of four. The next point is where mean plus kappa deviations is greatest, searched for among random
// points and by coordinate steps from the best of them. The process is small (tens of points), so the kernel
// matrix is factorised again for every point.
//
// Complexity: O(points³ + probes x points²) per step. Rejected: a library (none in Go is maintained, and the
// whole is a page); fitting the length by gradient (bayes_opt does; four values are as good for tens of
// points in four dimensions).
//
// Our reading: bayes_opt's random points, restarts and tolerances are its own, and its releases differ in
// them, so none of its sequences could be reproduced.

// dims is the number of weights.
const dims = 4

type weights [dims]float64

// jitter is the noise that keeps the kernel matrix positive definite when a point is seen twice.
const jitter = 1e-6

// gaussian is a Gaussian process through points.
type gaussian struct {
	x      []weights
	length float64
	mean   float64
	scale  float64
	factor []float64 // lower triangle of the kernel matrix's Cholesky factor, row by row
	alpha  []float64 // kernel matrix inverse times the normalised values
}

func matern(a, b weights, length float64) float64 {
	var d2 float64
	for i := range a {
		d2 += (a[i] - b[i]) * (a[i] - b[i])
	}
	s := math.Sqrt(5*d2) / length
	return (1 + s + s*s/3) * math.Exp(-s)
}

// tri is the index of entry (i, j) in a lower triangle stored row by row.
func tri(i, j int) int { return i*(i+1)/2 + j }

// fit makes the process through points x with values y, and returns the one whose length is likeliest.
func fit(x []weights, y []float64) *gaussian {
	var best *gaussian
	likeliest := math.Inf(-1)
	var mean, scale float64
	for _, v := range y {
		mean += v / float64(len(y))
	}
	for _, v := range y {
		scale += (v - mean) * (v - mean) / float64(len(y))
	}
	if scale = math.Sqrt(scale); scale == 0 {
		scale = 1
	}
	for _, length := range []float64{0.25, 0.5, 1, 2} {
		g := &gaussian{x: x, length: length, mean: mean, scale: scale}
		if l := g.solve(y); l > likeliest {
			best, likeliest = g, l
		}
	}
	return best
}

// solve factorises the kernel matrix and returns the log likelihood, less a constant.
func (g *gaussian) solve(y []float64) float64 {
	n := len(g.x)
	g.factor, g.alpha = make([]float64, n*(n+1)/2), make([]float64, n)
	var logDet float64
	for i := range n {
		for j := range i + 1 {
			v := matern(g.x[i], g.x[j], g.length)
			if i == j {
				v += jitter
			}
			for k := range j {
				v -= g.factor[tri(i, k)] * g.factor[tri(j, k)]
			}
			if i == j {
				v = math.Sqrt(max(v, jitter*jitter))
				logDet += math.Log(v)
			} else {
				v /= g.factor[tri(j, j)]
			}
			g.factor[tri(i, j)] = v
		}
	}
	var fitness float64
	for i := range n {
		v := (y[i] - g.mean) / g.scale
		for k := range i {
			v -= g.factor[tri(i, k)] * g.alpha[k]
		}
		g.alpha[i] = v / g.factor[tri(i, i)]
		fitness += g.alpha[i] * g.alpha[i]
	}
	for i := n - 1; i >= 0; i-- {
		for k := i + 1; k < n; k++ {
			g.alpha[i] -= g.factor[tri(k, i)] * g.alpha[k]
		}
		g.alpha[i] /= g.factor[tri(i, i)]
	}
	return -fitness/2 - logDet
}

// bound returns the upper confidence bound at w; row is scratch with one number per point.
func (g *gaussian) bound(w weights, kappa float64, row []float64) float64 {
	mean, variance := 0.0, 1+jitter
	for i := range g.x {
		v := matern(w, g.x[i], g.length)
		mean += v * g.alpha[i]
		for k := range i {
			v -= g.factor[tri(i, k)] * row[k]
		}
		row[i] = v / g.factor[tri(i, i)]
		variance -= row[i] * row[i]
	}
	return mean + kappa*math.Sqrt(max(variance, 0))
}

// probes is the number of random points among which the next one is looked for.
const probes = 512

// next returns the point of the greatest upper confidence bound that was found.
func (g *gaussian) next(kappa float64, random *rand.Rand) weights {
	row := make([]float64, len(g.x))
	var best weights
	top := math.Inf(-1)
	for range probes {
		var w weights
		for i := range w {
			w[i] = 2*random.Float64() - 1
		}
		if v := g.bound(w, kappa, row); v > top {
			best, top = w, v
		}
	}
	for step := 0.25; step > 0.01; {
		moved := false
		for i := range best {
			for _, d := range []float64{-step, step} {
				w := best
				w[i] = min(max(w[i]+d, -1), 1)
				if v := g.bound(w, kappa, row); v > top {
					best, top, moved = w, v, true
				}
			}
		}
		if !moved {
			step /= 2
		}
	}
	return best
}

// maximise evaluates the given points first, then n more, and calls value for each of them in order. It stops
// when value says that no point can be better or the context ends.
func maximise(ctx context.Context, first []weights, n int64, kappa float64, seed uint64,
	value func(weights) (v float64, enough bool)) {
	random := rand.New(rand.NewPCG(seed, 0x6175746f73776170))
	var x []weights
	var y []float64
	look := func(w weights) bool {
		v, enough := value(w)
		x, y = append(x, w), append(y, v)
		return enough
	}
	for _, w := range first {
		if ctx.Err() != nil || look(w) {
			return
		}
	}
	for range n {
		if ctx.Err() != nil || look(fit(x, y).next(kappa, random)) {
			return
		}
	}
}
