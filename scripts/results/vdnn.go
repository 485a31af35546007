package main

import (
	"context"
	"fmt"

	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// average is the time-weighted mean of a plan's memory in use, in bytes.
func average(m *plan.Measurement) int64 {
	var sum float64
	for i, s := range m.Usage {
		end := m.Makespan
		if i+1 < len(m.Usage) {
			end = m.Usage[i+1].Time
		}
		sum += float64(s.Bytes) * float64(max(end-s.Time, 0))
	}
	if m.Makespan <= 0 {
		return 0
	}
	return int64(sum / float64(m.Makespan))
}

// vdnn writes the section on offloading inputs layer by layer.
func (b *bench) vdnn(ctx context.Context, p *page) error {
	p.para("Paper (MICRO 2016, abstract and introduction): average memory usage -89 % (AlexNet), -91 % " +
		"(OverFeat) and -95 % (GoogLeNet) at batch 128 against its baseline's network-wide static " +
		"allocation; VGG-16 at batch 256 needs 28 GB and trains on a 12 GB Titan X with 18 % loss " +
		"against a hypothetical card with enough memory. cuDNN 4, PCIe 3.")
	titan, err := preset("titan-x")
	if err != nil {
		return err
	}
	p.heading(3, "Average usage")
	var rows, parts [][]string
	var verdicts []string
	for _, c := range []struct {
		net   string
		paper float64
	}{{"AlexNet", 0.89}, {"OverFeat", 0.91}, {"GoogLeNet", 0.95}} {
		made, err := caffe(network(c.net, 128, titan))
		if err != nil {
			return err
		}
		f := networks.StaticFootprint(made)
		row := []string{c.net, gib(f.Total())}
		var best [2]float64
		for _, m := range []string{"vdnn-all", "vdnn-conv", "joint"} {
			saved, overhead, err := b.saved(ctx, made, m, f.Total(), f.State)
			if err != nil {
				return err
			}
			row = append(row, fmt.Sprintf("-%s, step %s", percent(saved), signed(overhead)))
			if m != "joint" {
				best[0] = max(best[0], saved)
			}
		}
		features, err := managed(made)
		if err != nil {
			return err
		}
		for _, m := range []string{"vdnn-all", "vdnn-conv"} {
			saved, _, err := b.saved(ctx, features, m, f.Features+f.Gradients+f.Workspace, 0)
			if err != nil {
				return err
			}
			row = append(row, "-"+percent(saved))
			best[1] = max(best[1], saved)
		}
		rows = append(rows, append(row, fmt.Sprintf("-%.0f %%", c.paper*100)))
		verdicts = append(verdicts, fmt.Sprintf("%s %s (%s and %s against %.0f %%)", c.net,
			reached(max(best[0], best[1]) >= c.paper), percent(best[0]), percent(best[1]), c.paper*100))
		parts = append(parts, []string{c.net, gib(f.Features), gib(f.Weights), gib(f.WeightGradients),
			gib(f.Gradients), gib(f.Workspace), percent(1 - float64(f.Weights)/float64(f.Total()))})
	}
	p.table([]string{"network, batch 128", "static allocation", "vdnn-all", "vdnn-conv",
		"joint, least memory", "vdnn-all, features only", "vdnn-conv, features only", "paper"}, rows)
	p.para("*Static allocation* is every feature map, weight and weight gradient at once, with one pair " +
		"of gradient buffers and one workspace, each of the largest layer's size, as vDNN's baseline has " +
		"it, with fast algorithms. Usage is the time-weighted mean of occupied memory over a simulated " +
		"iteration, without optimizer state, which is in neither figure. vdnn-all and vdnn-conv use " +
		"memory-optimal algorithms. *Features only* counts feature maps, their gradients and workspaces " +
		"on both sides, which is what vDNN manages. Hardware: the preset of the Titan X (Maxwell). joint " +
		"got the smallest possible budget, to show how low the average can go; *step* is relative to " +
		"keeping everything with fast algorithms. Activations work in place in both passes, as in " +
		"frameworks of the time.")
	p.para("The better of vdnn-all and vdnn-conv, with weights and by features only: %s. We do not know "+
		"which layers, weights and workspaces the paper's denominators include, and cuDNN's workspace "+
		"sizes are our own model.", some(verdicts))
	p.para("The parts of the static allocation are below. Weights never leave memory under vDNN, so no " +
		"average that includes them can fall by more than the last column, even if nothing else were " +
		"ever in memory. If a paper's figure is above that, its denominator is a different one:")
	p.table([]string{"network, batch 128", "feature maps", "weights", "weight gradients", "gradients",
		"workspace", "ceiling"}, parts)
	return b.titan(ctx, p, titan)
}

// saved returns by what share a plan's average usage is below a static allocation, and what that costs.
// constant does not count as usage.
func (b *bench) saved(ctx context.Context, p *plan.Problem, manager string, static,
	constant int64) (share, overhead float64, err error) {
	budget := int64(0)
	if manager == jointName {
		budget = floor(p)
	}
	f, err := b.measure(ctx, p, manager, budget, 0, true)
	if err != nil {
		return 0, 0, err
	}
	if f.reason != "" {
		return 0, 0, fmt.Errorf("%s on %s: %s", manager, p.Name, f.reason)
	}
	return 1 - float64(average(&f.Measurement)-constant)/float64(static), f.Overhead, nil
}

// floor is the least that any plan of a problem needs.
func floor(p *plan.Problem) int64 { return p.MustReside().Total() }

// What is not known about the machine of vDNN's paper, and the managers that are measured for each.
var (
	titanLinks    = []float64{8e9, 10e9, 12.8e9}                // bytes per second
	titanShares   = []float64{0.45, 0.55, 0.65, 0.75, 0.85}     // of the peak arithmetic
	titanManagers = []string{"vdnn-dyn", "vdnn-all", jointName} // joint at the preset alone
)

// The preset's place in titanLinks and titanShares.
const titanPreset = 2

// titanFigures are the managers' figures by link and share, nil where one is not measured.
type titanFigures [][][]*figure

// titan writes VGG-16 at batch 256 within 12 GB, for several links and speeds of arithmetic.
func (b *bench) titan(ctx context.Context, p *page, hw plan.Hardware) error {
	p.heading(3, "VGG-16 at batch 256 in 12 GB")
	made, err := caffe(network("VGG-16", 256, hw))
	if err != nil {
		return err
	}
	small, err := memoryOptimal(made)
	if err != nil {
		return err
	}
	fast, slim := networks.StaticFootprint(made), networks.StaticFootprint(small)
	p.para("Paper: 28 GB static, 12 GB with 18 %% loss. Static allocation here: %s with fast algorithms, "+
		"%s with memory-optimal ones. The budget is 12 GiB for what vDNN accounts for, plus %s of "+
		"optimizer state, which it does not mention. *loss* is one minus the ratio of two step "+
		"times: that of keeping everything, with no limit on memory, and that of the plan. What we do "+
		"not know about that machine is varied around the preset (12.8 GB/s; 65 %% of 6.1 Tflop/s). Each "+
		"cell shows vdnn-dyn against fast algorithms; vdnn-all against memory-optimal ones, which leaves "+
		"out the cost of the slower algorithms in our model; and, at the preset, joint against fast "+
		"ones.",
		gib(fast.Total()), gib(slim.Total()), gib(fast.State))
	got, err := b.measureTitan(ctx, hw, 12*gibi+fast.State)
	if err != nil {
		return err
	}
	got.table(p)
	dyn, all := got[titanPreset][titanPreset][0], got[titanPreset][titanPreset][1]
	if !dyn.fits || !all.fits {
		p.para("Not reached: at the preset a plan does not fit (vdnn-dyn %s, vdnn-all %s).", dyn.cell(),
			all.cell())
		return nil
	}
	lowDyn, highDyn := got.losses(0)
	lowAll, highAll := got.losses(1)
	p.para("Training within 12 GiB: %s (footprint %s at the preset, optimizer state included). The loss "+
		"of 18 %% lies %s the band of vdnn-dyn against fast algorithms, %s to %s, and %s that of "+
		"vdnn-all against memory-optimal ones, %s to %s. At the preset vdnn-all's compute waits %s of a "+
		"step of %s, with %s copied out and %s in.", reached(dyn.fits), gib(dyn.Measurement.Footprint),
		within(0.18, lowDyn, highDyn), percent(lowDyn), percent(highDyn),
		within(0.18, lowAll, highAll), percent(lowAll), percent(highAll),
		ms(all.Measurement.Stall), ms(all.Measurement.StepTime),
		gib(all.Measurement.SwappedOut), gib(all.Measurement.SwappedIn))
	return nil
}

// measureTitan measures the managers at every link and share.
func (b *bench) measureTitan(ctx context.Context, hw plan.Hardware, budget int64) (titanFigures, error) {
	got := make(titanFigures, len(titanLinks))
	for l := range got {
		got[l] = make([][]*figure, len(titanShares))
		for s := range got[l] {
			got[l][s] = make([]*figure, len(titanManagers))
		}
	}
	err := each(ctx, len(titanLinks)*len(titanShares)*len(titanManagers), func(i int) error {
		m, s := i%len(titanManagers), i/len(titanManagers)%len(titanShares)
		l := i / len(titanManagers) / len(titanShares)
		h, name := hw, titanManagers[m]
		h.D2H.BytesPerSecond, h.H2D.BytesPerSecond = titanLinks[l], titanLinks[l]
		h.FlopsPerSecond = hw.FlopsPerSecond / titanShares[titanPreset] * titanShares[s]
		made := network
		if name == "vdnn-all" {
			made = lean
		}
		problem, err := caffe(made("VGG-16", 256, h))
		if err != nil {
			return err
		}
		if atPreset := l == titanPreset && s == titanPreset; name != jointName || atPreset {
			got[l][s][m], err = b.measure(ctx, problem, name, budget, 0, false)
		}
		return err
	})
	return got, err
}

// table writes the losses, a row for each link.
func (t titanFigures) table(p *page) {
	header := []string{"loss"}
	for _, s := range titanShares {
		header = append(header, fmt.Sprintf("%.0f %% of peak arithmetic", s*100))
	}
	var rows [][]string
	for l, link := range titanLinks {
		row := []string{fmt.Sprintf("%.1f GB/s", link/1e9)}
		for _, f := range t[l] {
			cell := loss(f[0]) + "; " + loss(f[1])
			if f[2] != nil {
				cell += "; joint " + loss(f[2])
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	p.table(header, rows)
}

// losses returns the smallest and the largest loss of a manager where its plan fits.
func (t titanFigures) losses(manager int) (low, high float64) {
	low = 1
	for _, row := range t {
		for _, f := range row {
			if x := f[manager]; x.fits {
				low, high = min(low, 1-1/(1+x.Overhead)), max(high, 1-1/(1+x.Overhead))
			}
		}
	}
	return low, high
}

func loss(f *figure) string {
	if !f.fits {
		return "does not fit"
	}
	return percent(1 - 1/(1+f.Overhead))
}

func within(v, low, high float64) string {
	switch {
	case v < low:
		return "below"
	case v > high:
		return "above"
	}
	return "within"
}
