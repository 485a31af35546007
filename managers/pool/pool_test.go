package pool_test

import (
	"context"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces/load"
)

func TestEveryPlanIsValidAndThatOfEqualSeedEqual(t *testing.T) {
	for seed := range uint64(60) {
		p := plantest.Random(seed, 10+int(seed))
		for _, m := range pool.All() {
			pl, err := m.Plan(context.Background(), p, plan.Request{Seed: seed})
			if err != nil {
				t.Fatalf("seed %d: %s: %v", seed, m.Info().Name, err)
			}
			if err := plan.Validate(p, pl); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			again, err := m.Plan(context.Background(), p, plan.Request{Seed: seed})
			if err != nil || !slices.Equal(again.Instances, pl.Instances) ||
				!slices.Equal(again.Steps, pl.Steps) {
				t.Errorf("seed %d: %s gives another plan the second time", seed, m.Info().Name)
			}
			if peak, _ := p.PeakLive(); pl.Policy == nil && pl.Footprint < peak || pl.LowerBound < peak {
				t.Errorf("seed %d: %s claims %d bytes and that no pool takes less than %d, and %d are alive",
					seed, m.Info().Name, pl.Footprint, pl.LowerBound, peak)
			}
		}
	}
}

func TestExactIsNeverAboveTheGreedyPools(t *testing.T) {
	below := 0
	for seed := range uint64(60) {
		p := plantest.Random(seed, 40)
		at := map[string]int64{}
		for _, m := range pool.All() {
			pl, err := m.Plan(context.Background(), p, plan.Request{})
			if err != nil {
				t.Fatal(err)
			}
			at[m.Info().Name] = pl.Footprint
		}
		for _, other := range []string{"smartpool", "smartpool-ff", "stalloc"} {
			if at["exact"] > at[other] {
				t.Errorf("seed %d: exact takes %d bytes, %s %d", seed, at["exact"], other, at[other])
			}
			if at["exact"] < at[other] {
				below++
			}
		}
	}
	if below == 0 {
		t.Error("exact was never better")
	}
}

// TestSmartPoolOnTheAuthorsTraces checks the colouring against footprints that were computed independently of
// this program on the authors' traces: without blocks that live through the whole iteration, and with the
// others cut at its ends; the denominator is the peak of the rest.
func TestSmartPoolOnTheAuthorsTraces(t *testing.T) {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: the papers' traces")
	}
	const mib = 1 << 20
	for _, c := range []struct {
		net                string
		length             int
		live, dynamic      float64
		ratio, exactFactor float64
	}{
		{"alex", 188, 178.877, 35.545, 1.0000, 1},
		{"vgg", 1020, 640.701, 417.253, 1.0183, 1},
		{"resnet", 1268, 195.316, 190.250, 1.0000, 1},
	} {
		tr, err := load.Open(context.Background(), root+"/papers/smartpool_"+c.net+
			"_20iterations_batch100.text.gz", load.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tl, err := timeline.Build(context.Background(), tr, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := tl.Main()
		period, ok := steps.SmartPool(d)
		if !ok || period.Length != c.length {
			t.Fatalf("%s: period %+v, want %d ops", c.net, period, c.length)
		}
		first, end := timeline.Moment(period.Location), timeline.Moment(period.Location+period.Length)
		var q pack.Problem
		var through int64
		for id := range d.Allocs.Len() {
			s, e := d.Allocs.Start[id], d.Allocs.End[id]
			switch {
			case s >= end || e <= first:
			case s < first && e >= end:
				through += d.Allocs.Size[id]
			default:
				q.Items = append(q.Items, pack.Item{Start: int64(max(s, first)), End: int64(min(e, end)),
					Size: d.Allocs.Size[id]})
			}
		}
		for name, fit := range map[string]func(context.Context, *pack.Problem, ...pack.FitOption) (pack.Result, error){"best": pack.BestFit, "first": pack.FirstFit} {
			res, err := fit(context.Background(), &q)
			if err != nil {
				t.Fatal(err)
			}
			near := func(what string, got, want, tolerance float64) {
				if math.Abs(got-want) > tolerance {
					t.Errorf("%s, %s fit: %s is %.4f, want %.4f", c.net, name, what, got, want)
				}
			}
			near("live peak", float64(through+res.LowerBound)/mib, c.live, 0.0006)
			near("dynamic peak", float64(res.LowerBound)/mib, c.dynamic, 0.0006)
			near("footprint over dynamic peak", float64(res.Top)/float64(res.LowerBound), c.ratio, 0.00006)
		}
		exact, err := pack.Exact(context.Background(), &q, pack.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if exact.Top != exact.LowerBound || exact.Status != pack.Optimal {
			t.Errorf("%s: exact packs at %d, the bound is %d (%s)", c.net, exact.Top, exact.LowerBound,
				exact.Status)
		}
	}
}
