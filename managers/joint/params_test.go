package joint

import (
	"flag"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// measured are the parameters that BenchmarkParams measures.
var measured = flag.String("params", "", "measure the effect of these parameters, separated by commas "+
	"(default all)")

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
			only := strings.Split(*measured, ",")
			if *measured != "" && !slices.Contains(only, v.Type().Field(k).Name) {
				continue
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

// BenchmarkProof bounds the step time of the same problems with each of the parameters of the bound over
// intervals halved and doubled, and prints the effect: the mean and the least and greatest change.
func BenchmarkProof(b *testing.B) {
	const work = 3_000_000
	problems := []*plan.Problem{network(b, "VGG-16"), network(b, "AlexNet")}
	for seed := range uint64(6) {
		problems = append(problems, plantest.Random(seed, 30+int(seed*5)),
			plantest.UnevenLayers(seed, 12).Problem())
	}
	bounds := func(par params) (all []float64) {
		for _, p := range problems {
			x := newBounder(compile(p, par))
			limit := within(p, 25)
			known := x.bound(limit, par.publicTurns)
			known += known / par.proofAim
			all = append(all, float64(x.prove(limit, par.publicTurns, known, work)))
		}
		return all
	}
	base := bounds(defaults())
	compare := func(name string, factor float64, par params) {
		var sum, least, most float64
		for i, x := range bounds(par) {
			d := math.Log(x / base[i])
			sum, least, most = sum+d, min(least, d), max(most, d)
		}
		fmt.Printf("%-16s x %-3g mean %+.2f %%, from %+.1f to %+.1f %%\n", name, factor,
			100*sum/float64(len(base)), 100*least, 100*most)
	}
	for b.Loop() {
		for _, factor := range []float64{0.5, 2} {
			par := defaults()
			par.proofAim = int64(factor * float64(par.proofAim))
			compare("proofAim", factor, par)
			par = defaults()
			par.proofGap *= factor
			compare("proofGap", factor, par)
		}
		v := reflect.TypeFor[proving]()
		for k := range v.NumField() {
			for _, factor := range []float64{0.5, 2} {
				if v.Field(k).Name == "refined" && factor < 1 {
					continue // halved it is 1: no level would be finer than the one before
				}
				par := defaults()
				f := reflect.NewAt(v.Field(k).Type,
					reflect.ValueOf(&par.proof).Elem().Field(k).Addr().UnsafePointer()).Elem()
				if f.CanInt() {
					f.SetInt(max(1, int64(factor*float64(f.Int()))))
				} else {
					f.SetFloat(factor * f.Float())
				}
				compare(v.Field(k).Name, factor, par)
			}
		}
	}
}
