package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/samples"
)

// Question: is our planner better than the published ones at every budget, and not only at some?
//
// Method: ten budgets for each problem, evenly spaced from 95 % of the footprint of PyTorch's caching
// allocator down to the smallest footprint that any manager reaches when asked for the least possible. Every
// manager plans at each. joint wins a budget if no other plan that fits has a shorter step time; footprint
// decides ties. Managers whose search counts measured candidates (capuchin, home) plan twice, with their
// default work and with as many candidates as take about as long as joint's search, and the better plan
// counts. autoswap counts candidates too, but fits a surrogate to all of them for each one, in cubic time: it
// keeps its published twenty.
//
// Complexity: managers x budgets x problems plans, on all processors. Rejected: a time limit, which would
// make the page depend on the machine.

// budgets is the number of budgets for a problem.
const budgets = 10

// share is the largest budget as a share of the baseline's footprint.
const share = 0.95

// These are our planners, which are compared with all others.
const (
	jointName     = "joint"
	portfolioName = "portfolio"
)

// counted are the managers whose work is measured in candidates, as joint's is.
var counted = []string{"capuchin", "home"}

// candidates is how many candidates those get the second time: ten times home's default, with which home
// searches for about as long as joint does. Equal counts would not be equal work: each of theirs is assembled
// and simulated from scratch, and takes as long as many of joint's, which differ from the last in a choice or
// two.
func candidates(p *plan.Problem) int64 {
	return min(6000, max(120, 5_000_000/int64(len(p.Ops)+len(p.Buffers)+1)))
}

// unfinished are the managers left out since they solve mixed-integer programs, elsewhere are those whose
// plans take another executor.
var (
	unfinished = []string{"checkmate", "checkmate-lp", "tvdnn-ilp"}
	elsewhere  = []string{"order"}
)

// sweep holds the results for one problem.
type sweep struct {
	name, set string
	p         *plan.Problem
	baseline  int64 // footprint of the caching allocator
	step      int64 // of keeping everything
	budgets   []int64
	names     []string    // of the managers
	got       [][]*figure // by budget, by manager
	ran       int         // how many managers take part
}

func (s *sweep) at(budget int, name string) *figure {
	if k := slices.Index(s.names, name); k >= 0 {
		return s.got[budget][k]
	}
	return nil
}

// others returns the best result of the other managers at a budget, nil if none fits.
func (s *sweep) others(budget int) *figure {
	var best *figure
	for k, n := range s.names {
		f := s.got[budget][k]
		if n == jointName || n == portfolioName || !f.fits {
			continue
		}
		if best == nil || faster(f, best) {
			best = f
		}
	}
	return best
}

// faster reports whether a is better than b; both fit.
func faster(a, b *figure) bool {
	x, y := &a.Measurement, &b.Measurement
	return x.StepTime < y.StepTime || x.StepTime == y.StepTime && x.Footprint < y.Footprint
}

// wins reports whether f is no worse than the best other.
func wins(f, other *figure) bool {
	if f == nil || !f.fits {
		return false
	}
	return other == nil || !faster(other, f)
}

// problem is one to be swept.
type problem struct {
	name, set string
	make      func(ctx context.Context) (*plan.Problem, error)
}

// contest plans with all managers at ten budgets of each problem.
type contest struct {
	*measurer
	files    recordings
	problems string   // only those whose name holds this
	made     []*sweep // once a run, for several sections
}

// toSweep lists the problems.
func (c *contest) toSweep(ctx context.Context) ([]problem, error) {
	v100, err := preset("V100-SXM2-16GB")
	if err != nil {
		return nil, err
	}
	titan, err := preset("titan-x")
	if err != nil {
		return nil, err
	}
	link, err := hardware.ByName("AutoSwap's link")
	if err != nil {
		return nil, err
	}
	var all []problem
	for _, of := range []struct {
		net   string
		batch int
		hw    plan.Hardware
	}{{"AlexNet", 128, titan}, {"OverFeat", 128, titan}, {"GoogLeNet", 128, titan}, {"VGG-16", 64, titan},
		{"ResNet-50", 64, v100}, {"ResNet-101", 64, v100}, {"MobileNet", 128, v100}, {"U-Net", 16, v100}} {
		all = append(all, problem{fmt.Sprintf("%s (%d)", of.net, of.batch),
			"memory-optimal algorithms, " + of.hw.Name,
			func(context.Context) (*plan.Problem, error) { return lean(of.net, of.batch, of.hw) }})
	}
	for _, of := range []struct {
		net   string
		batch int
	}{{"AlexNet", 128}, {"VGG-16", 64}} {
		all = append(all, problem{fmt.Sprintf("%s (%d), as made", of.net, of.batch),
			"choice of algorithms, " + titan.Name,
			func(context.Context) (*plan.Problem, error) { return network(of.net, of.batch, titan) }})
	}
	for _, of := range []struct {
		file, net string
		batch     int
	}{{"alexnet", "AlexNet", 256}, {"vgg16", "VGG-16", 128}, {"resnet50", "ResNet-50", 128},
		{"resnet101", "ResNet-101", 64}} {
		all = append(all, problem{fmt.Sprintf("PipeDream's %s (%d)", of.net, of.batch),
			"measured layer times, links of " + v100.Name,
			func(ctx context.Context) (*plan.Problem, error) {
				return c.files.pipedream(ctx, of.file, of.net, of.batch, v100)
			}})
	}
	all = append(all, problem{"AutoSwap's VGG recording (100)", "recorded accesses, AutoSwap's link",
		func(ctx context.Context) (*plan.Problem, error) {
			_, d, err := c.files.blockRecording(ctx)
			if err != nil {
				return nil, err
			}
			return plan.FromDevice(ctx, d,
				plan.BuildOptions{Iteration: plan.SteadyIteration, Hardware: link,
					Name: "AutoSwap's VGG recording"})
		}})
	for _, name := range samples.List() {
		p, err := sample(ctx, name, v100)
		if err != nil {
			return nil, err
		}
		if p.Kind >= traces.Accesses {
			all = append(all, problem{"sample " + name, "recorded on a CPU, links of " + v100.Name,
				func(context.Context) (*plan.Problem, error) { return p, nil }})
		}
	}
	return slices.DeleteFunc(all, func(x problem) bool {
		return c.problems != "" &&
			!strings.Contains(x.name, c.problems)
	}), nil
}

// sweeps plans every problem with every manager at every budget. It also returns the problems whose
// recordings are missing.
func (c *contest) sweeps(ctx context.Context) ([]*sweep, []string, error) {
	list, err := c.toSweep(ctx)
	if err != nil {
		return nil, nil, err
	}
	var missing []string
	first := c.made == nil
	for _, x := range list {
		if !first {
			break
		}
		p, err := x.make(ctx)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		s := &sweep{name: x.name, set: x.set, p: p}
		if err := c.sweep(ctx, s); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", x.name, err)
		}
		c.made = append(c.made, s)
	}
	for _, x := range list {
		if !slices.ContainsFunc(c.made, func(s *sweep) bool { return s.name == x.name }) {
			missing = append(missing, x.name)
		}
	}
	return c.made, missing, nil
}

// sweep fills s.
func (c *contest) sweep(ctx context.Context, s *sweep) error {
	for _, m := range managers.All() {
		i := m.Info()
		if i.Name != portfolioName && !slices.Contains(unfinished, i.Name) &&
			!slices.Contains(elsewhere, i.Name) &&
			(s.p.Kind >= traces.Dataflow || s.p.Kind >= i.Needs) {
			s.names = append(s.names, i.Name)
		}
	}
	s.ran = len(s.names)
	if byName(portfolioName) != nil {
		s.names = append(s.names, portfolioName)
	}
	caching, err := c.measure(ctx, s.p, "caching", 0, 0, false)
	if err != nil {
		return err
	}
	s.baseline = caching.Measurement.Footprint
	if s.step, err = keepAll(ctx, s.p); err != nil {
		return err
	}
	low, err := s.least(ctx, c.measurer)
	if err != nil {
		return err
	}
	high := int64(share * float64(s.baseline))
	if low > high {
		return fmt.Errorf("nothing is below %.0f %% of the baseline", share*100)
	}
	for k := range int64(budgets) {
		s.budgets = append(s.budgets, high-(high-low)*k/(budgets-1))
	}
	if s.got, err = c.plans(ctx, s, s.budgets); err != nil {
		return err
	}
	c.tell("%s: joint wins %d of %d", s.name, s.won(jointName), budgets)
	return nil
}

// least returns the smallest footprint that any of the managers reaches when asked for what must reside with
// optimizer state in memory. joint may need less: it has state wait on the host only if a plan does not fit.
func (s *sweep) least(ctx context.Context, with *measurer) (int64, error) {
	footprints := make([]int64, s.ran)
	err := each(ctx, s.ran, func(m int) error {
		f, err := with.measure(ctx, s.p, s.names[m], floor(s.p), 0, false)
		if err != nil {
			return err
		}
		if footprints[m] = s.baseline; f.reason == "" {
			footprints[m] = f.Measurement.Footprint
		}
		return nil
	})
	return min(s.baseline, slices.Min(footprints)), err
}

// won counts the budgets that a manager of ours wins.
func (s *sweep) won(name string) int {
	n := 0
	for k := range s.budgets {
		if wins(s.at(k, name), s.others(k)) {
			n++
		}
	}
	return n
}

// plans plans with every manager at every budget, the largest first; with those that count candidates also
// with more work. joint knows its plans for smaller budgets. portfolio comes last and starts from the others'
// plans, which it would otherwise make again.
func (c *contest) plans(ctx context.Context, s *sweep, at []int64) ([][]*figure, error) {
	got := make([][]*figure, len(at))
	for k := range got {
		got[k] = make([]*figure, len(s.names))
	}
	if err := each(ctx, len(at)*s.ran, func(i int) (err error) {
		k, m := i/s.ran, s.ran-1-i%s.ran // ours, which takes longest, first
		got[k][m], err = c.measure(ctx, s.p, s.names[m], at[k], 0, false)
		return err
	}); err != nil {
		return nil, err
	}
	if err := each(ctx, len(at)*len(counted), func(i int) error {
		k, m := i/len(counted), slices.Index(s.names, counted[i%len(counted)])
		if m < 0 || got[k][m].plan == nil {
			return nil
		}
		f, err := c.measure(ctx, s.p, s.names[m], at[k], candidates(s.p), false)
		if err == nil && f.fits && (!got[k][m].fits || faster(f, got[k][m])) {
			got[k][m] = f
		}
		return err
	}); err != nil {
		return nil, err
	}
	if err := c.knowing(ctx, s, at, got); err != nil {
		return nil, err
	}
	return got, each(ctx, len(at)*(len(s.names)-s.ran), func(k int) (err error) {
		var seeds []plan.Manager
		for m := range s.ran {
			if f := got[k][m]; f.plan != nil && s.names[m] != jointName {
				seeds = append(seeds, recalled{f})
			}
		}
		got[k][s.ran], err = c.measureManager(ctx, s.p, joint.New(seeds...), at[k], 0, false)
		return err
	})
}

// knowing has joint choose again at each budget between its plan and that for the next smaller one. The plan
// is the same as if it had been told before, but it need not wait for the other one.
func (c *contest) knowing(ctx context.Context, s *sweep, at []int64, got [][]*figure) (err error) {
	m := slices.Index(s.names, jointName)
	if m < 0 {
		return nil
	}
	for k := len(at) - 2; k >= 0; k-- {
		smaller, f := got[k+1][m], got[k][m]
		if f.plan == nil || !smaller.fits || f.fits && !faster(smaller, f) {
			continue
		}
		told := aware{managers.Knowing(recalled{f}), smaller.plan}
		if got[k][m], err = c.measureManager(ctx, s.p, told, at[k], 0, false); err != nil {
			return err
		}
	}
	return nil
}

// aware is a manager that is told of a plan made before.
type aware struct {
	plan.Manager
	known *plan.Plan
}

// Plan implements plan.Manager.
func (a aware) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	r.Known = []*plan.Plan{a.known}
	return a.Manager.Plan(ctx, p, r)
}

// recalled is a manager that returns a plan made before.
type recalled struct{ f *figure }

// Info implements plan.Manager.
func (r recalled) Info() plan.Info { return r.f.Info }

// Plan implements plan.Manager.
func (r recalled) Plan(context.Context, *plan.Problem, plan.Request) (*plan.Plan, error) {
	pl := *r.f.plan
	pl.Notes = slices.Clone(pl.Notes)
	return &pl, nil
}
