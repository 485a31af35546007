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
	budget := 12*gibi + fast.State
	p.para("Paper: 28 GB static, 12 GB with 18 %% loss. Static allocation here: %s with fast algorithms, "+
		"%s with memory-optimal ones. The budget is 12 GiB for what vDNN accounts for, plus %s of "+
		"optimizer state, which it does not mention. *loss* is one minus the ratio of two step "+
		"times: that of keeping everything, with no limit on memory, and that of the plan. What we do "+
		"not know about that machine is varied around the preset (12.8 GB/s; 65 %% of 6.1 Tflop/s). Each "+
		"cell shows vdnn-dyn against fast algorithms; vdnn-all against memory-optimal ones, which leaves "+
		"out the cost of the slower algorithms in our model; and, at the preset, joint against fast "+
		"ones.",
		gib(fast.Total()), gib(slim.Total()), gib(fast.State))
	links, shares := []float64{8e9, 10e9, 12.8e9}, []float64{0.45, 0.55, 0.65, 0.75, 0.85}
	names := []string{"vdnn-dyn", "vdnn-all", jointName}
	got := make([]*figure, len(links)*len(shares)*len(names))
	err = each(ctx, len(got), func(i int) error {
		name, k := names[i%len(names)], i/len(names)
		h := hw
		h.D2H.BytesPerSecond, h.H2D.BytesPerSecond = links[k/len(shares)], links[k/len(shares)]
		h.FlopsPerSecond = hw.FlopsPerSecond / 0.65 * shares[k%len(shares)]
		make := network
		if name == "vdnn-all" {
			make = lean
		}
		problem, err := caffe(make("VGG-16", 256, h))
		if err != nil {
			return err
		}
		if at := k/len(shares) == 2 && k%len(shares) == 2; name != jointName || at {
			got[i], err = b.measure(ctx, problem, name, budget, 0, false)
		}
		return err
	})
	if err != nil {
		return err
	}
	header := []string{"loss"}
	for _, s := range shares {
		header = append(header, fmt.Sprintf("%.0f %% of peak arithmetic", s*100))
	}
	var rows [][]string
	low, high := [2]float64{1, 1}, [2]float64{}
	for l, link := range links {
		row := []string{fmt.Sprintf("%.1f GB/s", link/1e9)}
		for s := range shares {
			i := (l*len(shares) + s) * len(names)
			cell := loss(got[i]) + "; " + loss(got[i+1])
			if got[i+2] != nil {
				cell += "; joint " + loss(got[i+2])
			}
			row = append(row, cell)
			for k := range low {
				if f := got[i+k]; f.fits {
					low[k], high[k] = min(low[k], 1-1/(1+f.Overhead)), max(high[k], 1-1/(1+f.Overhead))
				}
			}
		}
		rows = append(rows, row)
	}
	p.table(header, rows)
	dyn, all := got[(2*len(shares)+2)*len(names)], got[(2*len(shares)+2)*len(names)+1]
	if !dyn.fits || !all.fits {
		p.para("Not reached: at the preset a plan does not fit (vdnn-dyn %s, vdnn-all %s).", dyn.cell(),
			all.cell())
		return nil
	}
	p.para("Training within 12 GiB: %s (footprint %s at the preset, optimizer state included). The loss "+
		"of 18 %% lies %s the band of vdnn-dyn against fast algorithms, %s to %s, and %s that of "+
		"vdnn-all against memory-optimal ones, %s to %s. At the preset vdnn-all's compute waits %s of a "+
		"step of %s, with %s copied out and %s in.", reached(dyn.fits), gib(dyn.Measurement.Footprint),
		within(0.18, low[0], high[0]), percent(low[0]), percent(high[0]), within(0.18, low[1], high[1]),
		percent(low[1]), percent(high[1]), ms(all.Measurement.Stall), ms(all.Measurement.StepTime),
		gib(all.Measurement.SwappedOut), gib(all.Measurement.SwappedIn))
	return nil
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
