package joint

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// BenchmarkParams plans the same problems with each of the parameters halved and doubled, and prints the
// effect: the mean and the worst change of the step time, how many plans more or fewer fit, and the counted
// work.
func BenchmarkParams(b *testing.B) {
	type outcome struct {
		time float64
		fits bool
		work int64
	}
	type question struct {
		p      *plan.Problem
		budget int64
	}
	var asked []question
	add := func(p *plan.Problem, percents ...int64) {
		for _, percent := range percents {
			asked = append(asked, question{p, within(p, percent)})
		}
	}
	for _, name := range []string{"AlexNet", "VGG-16", "ResNet-50"} {
		add(network(b, name), 15, 30, 60)
	}
	for seed := range uint64(12) {
		add(plantest.Random(seed, 30+int(seed*7)), 20, 50)
	}
	for seed := range uint64(4) {
		add(serial(seed, 1), 40)
	}
	add(plantest.Chain(60, 1<<20, 1_000_000), 20, 50)
	add(plantest.Chain(700, 1<<20, 1_000_000), 40)
	ask := func(par params) (all []outcome) {
		for _, q := range asked {
			r := plan.Request{Budget: q.budget, Seed: 7, Work: 1_000_000, Evaluator: sim.Simulator{}}
			pl, err := Joint{params: &par}.Plan(b.Context(), q.p, r)
			if err != nil {
				b.Fatal(err)
			}
			m, err := sim.Run(b.Context(), q.p, pl, sim.Options{})
			if err != nil {
				b.Fatal(err)
			}
			all = append(all, outcome{float64(m.StepTime), pl.Footprint <= q.budget, pl.Work})
		}
		return all
	}
	base := ask(defaults())
	compare := func(name string, par params) {
		var sum, best, worst float64
		var n, fits int
		var work, was int64
		for k, x := range ask(par) {
			y := base[k]
			work, was = work+x.work, was+y.work
			switch {
			case x.fits && y.fits:
				d := math.Log(x.time / y.time)
				sum, n = sum+d, n+1
				best, worst = min(best, d), max(worst, d)
			case x.fits:
				fits++
			case y.fits:
				fits--
			}
		}
		fmt.Printf(
			"%-24s mean %+.2f %%, from %+.1f to %+.1f %%, fits %+d, work %+.0f %%\n",
			name,
			100*sum/float64(n),
			100*best,
			100*worst,
			fits,
			100*(float64(work)/float64(was)-1),
		)
	}
	for b.Loop() {
		one := defaults()
		v := reflect.ValueOf(one)
		for k := range v.NumField() {
			if kind := v.Field(k).Kind(); kind == reflect.Slice || kind == reflect.Struct {
				continue // shares of a whole, and grids: doubling makes no sense
			}
			for _, factor := range []float64{0.5, 2} {
				par := defaults()
				name := fmt.Sprintf("%s x %g", v.Type().Field(k).Name, factor)
				scale(&par, k, factor)
				compare(name, par)
			}
		}
	}
}

// scale multiplies a number, or all of a list of numbers.
func scale(set *params, field int, factor float64) {
	f := reflect.NewAt(reflect.TypeOf(*set).Field(field).Type,
		reflect.ValueOf(set).Elem().Field(field).Addr().UnsafePointer()).Elem()
	list := []reflect.Value{f}
	if f.Kind() == reflect.Array {
		list = list[:0]
		for k := range f.Len() {
			list = append(list, f.Index(k))
		}
	}
	for _, x := range list {
		if x.CanInt() {
			x.SetInt(max(1, int64(factor*float64(x.Int()))))
		} else {
			x.SetFloat(factor * x.Float())
		}
	}
}
