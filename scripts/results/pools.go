package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/managers/pack/packtest"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/samples"
)

// pools writes the section on placing buffers that all stay in memory.
func (b *bench) pools(ctx context.Context, p *page) error {
	if err := smartPool(ctx, b.files, p); err != nil {
		return err
	}
	if err := b.challenging(ctx, p); err != nil {
		return err
	}
	if err := b.compilers(ctx, p); err != nil {
		return err
	}
	if err := b.cuts(ctx, p); err != nil {
		return err
	}
	return b.ownSamples(ctx, p)
}

// poolTrace is one of SmartPool's recordings: the blocks of an iteration, and the height of an arena that
// serves the whole recording.
type poolTrace struct {
	items         pack.Problem
	through, live int64
	arena         int64
}

func (from recordings) poolTrace(ctx context.Context, net string) (*poolTrace, error) {
	path, err := from.public("papers/smartpool_" + net + "_20iterations*")
	if err != nil {
		return nil, err
	}
	d, err := device(ctx, path)
	if err != nil {
		return nil, err
	}
	period, ok := steps.SmartPool(d)
	if !ok {
		return nil, fmt.Errorf("SmartPool's %s recording: no iteration was found", net)
	}
	var t poolTrace
	first, end := timeline.Moment(period.Location), timeline.Moment(period.Location+period.Length)
	for id := range d.Allocs.Len() {
		s, e := d.Allocs.Start[id], d.Allocs.End[id]
		switch {
		case s >= end || e <= first:
		case s < first && e >= end:
			t.through += d.Allocs.Size[id]
		default:
			t.items.Items = append(t.items.Items,
				pack.Item{Start: int64(max(s, first)), End: int64(min(e, end)), Size: d.Allocs.Size[id]})
		}
	}
	t.live = t.through + pack.LowerBound(&t.items)
	t.arena, err = arena(d.Timeline().Trace)
	return &t, err
}

// arena replays a whole trace on an arena as CnMem keeps one, and returns the highest byte in use.
func arena(tr *traces.Trace) (int64, error) {
	a, err := allocator.NewArena(allocator.Config{Driver: allocator.NewDriver(0)})
	if err != nil {
		return 0, err
	}
	blocks := map[uint64]allocator.Block{}
	for i := range tr.Events.Len() {
		addr := tr.Events.Addr[i]
		if tr.Events.Action[i] == traces.Alloc {
			if blocks[addr], err = a.Malloc(tr.Events.Size[i], 0); err != nil {
				return 0, err
			}
		} else if held, ok := blocks[addr]; ok {
			delete(blocks, addr)
			if err := a.Free(held); err != nil {
				return 0, err
			}
		}
	}
	return a.HighWater(), nil
}

// smartPool compares SmartPool's footprints with its authors'.
func smartPool(ctx context.Context, files recordings, p *page) error {
	p.heading(3, "SmartPool on its authors' recordings")
	p.para("Paper (abstract of arXiv 1903.06631): up to 13.3 % less memory than Nvidia's default pool, " +
		"CnMem. We did not have its per-network tables. Its first author's repository gives footprint " +
		"over peak load, 1.001, 1.051 and 1.005 (December 2017), beside the recordings: CIFAR-10 " +
		"networks in SINGA, batch 100, Malloc and Free of 20 iterations; the GPU is not named and does " +
		"not matter here.")
	nets := []struct{ file, name, authors string }{{"alex", "AlexNet", "1.001"}, {"vgg", "VGG", "1.051"},
		{"resnet", "ResNet", "1.005"}}
	var rows [][]string
	var most float64
	for _, net := range nets {
		t, err := files.poolTrace(ctx, net.file)
		if p.absent("SmartPool's recordings", err) {
			return nil
		}
		if err != nil {
			return err
		}
		best, err := pack.BestFit(ctx, &t.items)
		if err != nil {
			return err
		}
		first, err := pack.FirstFit(ctx, &t.items)
		if err != nil {
			return err
		}
		exact, err := pack.Exact(ctx, &t.items, pack.Options{Seed: seed})
		if err != nil {
			return err
		}
		bound := best.LowerBound
		ceiling := 1 - float64(t.live)/float64(t.arena)
		most = max(most, ceiling)
		over := func(top int64) string { return fmt.Sprintf("%.4f", float64(top)/float64(bound)) }
		rows = append(rows, []string{net.name, mib(t.live), mib(bound), over(best.Top), over(first.Top),
			net.authors, fmt.Sprintf("%s, %s", over(exact.Top), exact.Status), mib(t.arena),
			percent(1 - float64(t.through+best.Top)/float64(t.arena)), percent(ceiling)})
	}
	p.table([]string{"network", "peak live", "of it dynamic", "smartpool", "first fit", "authors'", "exact",
		"CnMem-like", "smartpool saves", "ceiling"}, rows)
	p.para("*smartpool*, *first fit* and *exact* are footprint over the dynamic peak: the peak of the " +
		"blocks that live within the iteration. It leaves out blocks that live through all of it, which " +
		"no pool can place better or worse. The authors' figures are footprint over peak load; the " +
		"authors do not say whether they include the latter blocks. *CnMem-like* is the highest byte " +
		"that one arena with 512-byte rounding, best fit, splitting and coalescing touches over the " +
		"whole recording: a model of CnMem, not CnMem.")
	p.para("13.3 %% is %s on these recordings, and no placement could reach it: a pool can save at most "+
		"the distance from the CnMem-like arena to the peak of live bytes, at most %s here (*ceiling*). "+
		"Not reproducible: the paper's figure is for a model or batch size whose recording is not "+
		"public, and compares with CnMem itself. We scale nothing to match it.",
		reached(most >= 0.133), percent(most))
	return nil
}

// published are MiniMalloc's times in ms on its authors' slides.
var published = map[string]string{"A": "4,910", "B": "3,661", "C": "637", "D": "2,674", "E": "3,717",
	"F": "5,358", "G": "1,181", "H": "1,808", "I": "3,908", "J": "883", "K": "628"}

// challenging packs MiniMalloc's problems.
func (b *bench) challenging(ctx context.Context, p *page) error {
	p.heading(3, "exact on MiniMalloc's problems")
	files, err := b.files.publicAll("minimalloc/*.1048576.csv")
	if p.absent("MiniMalloc's challenging problems", err) {
		return nil
	}
	if err != nil {
		return err
	}
	const capacity = 1 << 20
	var rows [][]string
	missed := []string{}
	for _, f := range files {
		table, err := packing(f)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(f), ".1048576.csv")
		name = name[len(name)-1:]
		fit, err := pack.BestFit(ctx, &table.Problem)
		if err != nil {
			return err
		}
		began := processorTime()
		res, err := pack.Exact(ctx, &table.Problem, pack.Options{Seed: seed, Capacity: capacity})
		if err != nil {
			return err
		}
		took := processorTime() - began
		if err := pack.Validate(&table.Problem, res.Offsets); err != nil {
			return fmt.Errorf("problem %s: %w", name, err)
		}
		if res.Top > capacity {
			missed = append(missed, name)
		}
		low, err := pack.Exact(ctx, &table.Problem, pack.Options{Seed: seed})
		if err != nil {
			return err
		}
		b.tell("packed %s", name)
		row := []string{name, fmt.Sprint(len(table.Items)), fmt.Sprint(low.LowerBound),
			fmt.Sprintf("%.3f", float64(fit.Top)/capacity), fmt.Sprint(res.Top),
			fmt.Sprintf("%d, %s", low.Top, low.Status), fmt.Sprint(res.Work)}
		rows = append(rows, append(b.timed(row, rounded(took)), published[name]))
	}
	header := []string{"problem", "buffers", "bound", "smartpool's rule / capacity",
		"exact within the capacity", "exact, lowest top", "steps"}
	header = b.timed(header, processorTimeHead)
	p.table(append(header, "MiniMalloc's, ms, its authors' machine"), rows)
	all := "all of them"
	if len(missed) > 0 {
		all = "all but " + some(missed)
	}
	p.para("The capacity is 1,048,576; exact meets it on %s. *bound* is the most bytes alive at one "+
		"moment, or more if the search proved more. MiniMalloc's times are from its authors' slides "+
		"(page 22) and another machine. Ours are the processor time of this one, all cores together, to "+
		"two digits. Only this column, here and in similar tables, is measured in time; *steps* is the "+
		"same work, counted.", all)
	return nil
}

// rounded writes a time in ms to two digits, a dash if it is unknown.
func rounded(d time.Duration) string {
	v, unit := d.Milliseconds(), int64(1)
	if d == 0 {
		return "–"
	}
	if v == 0 {
		return "< 1"
	}
	for v/unit >= 100 {
		unit *= 10
	}
	return fmt.Sprint((v + unit/2) / unit * unit)
}

// compilers packs problems of compilers.
func (b *bench) compilers(ctx context.Context, p *page) error {
	p.heading(3, "exact on problems of compilers")
	var rows [][]string
	for _, c := range []struct{ pattern, name string }{
		{"dsa/*_resnet50.csv", "ResNet-50 (MindSpore SOMAS)"},
		{"dsa/*bert_base.csv", "BERT-base (IREE or SOMAS)"},
		{"dsa/*mobilebert.csv", "MobileBERT (IREE)"}, {"dsa/*pangu*", "Pangu 2.6B (MindSpore SOMAS)"},
	} {
		file, err := b.files.public(c.pattern)
		if p.absent("the storage-allocation problems of idealloc's set", err) {
			return nil
		}
		if err != nil {
			return err
		}
		table, err := packing(file)
		if err != nil {
			return err
		}
		fit, err := pack.BestFit(ctx, &table.Problem)
		if err != nil {
			return err
		}
		began := processorTime()
		res, err := pack.Exact(ctx, &table.Problem, pack.Options{Seed: seed})
		if err != nil {
			return err
		}
		took := processorTime() - began
		if err := pack.Validate(&table.Problem, res.Offsets); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		b.tell("packed %s", c.name)
		over := func(top int64) string { return fmt.Sprintf("%.4f", float64(top)/float64(res.LowerBound)) }
		row := []string{c.name, fmt.Sprint(len(table.Items)), fmt.Sprint(res.LowerBound), over(fit.Top),
			over(res.Top), res.Status.String(), fmt.Sprint(res.Work)}
		rows = append(rows, b.timed(row, rounded(took)))
	}
	header := []string{"problem", "buffers", "bound, bytes", "smartpool's rule", "exact", "exact is", "steps"}
	p.table(b.timed(header, processorTimeHead), rows)
	p.para("*smartpool's rule* and *exact* are footprint over the bound.")
	return nil
}

const processorTimeHead = "processor time, ms, this machine"

// timed appends the one column that is measured in time, unless it is left out.
func (b *bench) timed(row []string, cell string) []string {
	if b.times {
		row = append(row, cell)
	}
	return row
}

// cuts compares the packers on problems without any slack.
func (b *bench) cuts(ctx context.Context, p *page) error {
	p.heading(3, "exact on pieces of a rectangle")
	p.para("A rectangle is cut into pieces, each cut from edge to edge of one piece. Its height is the " +
		"bytes alive, the same at every moment, so nothing may be wasted. *even* cuts large pieces first; " +
		"*any* cuts any piece, and leaves thousands that are a unit wide or high and coincide by chance. " +
		"The problems are ours; no paper has them.")
	var rows [][]string
	for _, c := range []packtest.Cuts{
		{Pieces: 1000, Width: 1 << 20, Height: 1 << 30, Even: true},
		{Pieces: 1000, Width: 1 << 20, Height: 1 << 30},
		{Pieces: 10_000, Width: 1 << 20, Height: 1 << 30, Even: true},
		{Pieces: 10_000, Width: 1 << 20, Height: 1 << 30},
		{Pieces: 10_000, Width: 100_000, Height: 1_000_000, Even: true},
		{Pieces: 10_000, Width: 100_000, Height: 1_000_000},
		{Pieces: 10_000, Width: 10_000, Height: 10_000, Even: true},
		{Pieces: 100_000, Width: 1 << 20, Height: 1 << 30, Even: true},
	} {
		c.Seed = seed
		problem := c.Problem()
		rule, err := pack.BestFit(ctx, problem)
		if err != nil {
			return err
		}
		began := processorTime()
		res, err := pack.Exact(ctx, problem, pack.Options{Seed: seed})
		if err != nil {
			return err
		}
		took := processorTime() - began
		if err := pack.Validate(problem, res.Offsets); err != nil {
			return err
		}
		how := "any"
		if c.Even {
			how = "even"
		}
		over := func(top int64) string { return fmt.Sprintf("%.4f", float64(top)/float64(c.Height)) }
		row := []string{fmt.Sprint(c.Pieces), how, fmt.Sprintf("%d x %d", c.Width, c.Height),
			over(rule.Top), over(res.Top), res.Status.String(), fmt.Sprint(res.Work)}
		rows = append(rows, b.timed(row, rounded(took)))
		b.tell("packed %d pieces, %s", c.Pieces, how)
	}
	header := []string{"pieces", "cut", "time x bytes", "smartpool's rule", "exact", "exact is", "steps"}
	p.table(b.timed(header, processorTimeHead), rows)
	p.para("*smartpool's rule* and *exact* are footprint over the bound.")
	return nil
}

// ownSamples compares the pools on the embedded samples and on SmartPool's recordings.
func (b *bench) ownSamples(ctx context.Context, p *page) error {
	p.heading(3, "Pools on the embedded samples")
	p.para("The samples are real training steps recorded on a CPU by `scripts/samples.sh`; one steady " +
		"iteration of each. Samples with lifetimes but no accesses are only good for pools; the others " +
		"are also among the problems in the section on joint.")
	names := []string{"caching", "expandable", "cnmem", "gmlake", "smartpool", "smartpool-swap", "stalloc",
		"exact"}
	hw, err := preset("V100-SXM2-16GB")
	if err != nil {
		return err
	}
	var rows [][]string
	for _, name := range samples.List() {
		problem, err := sample(ctx, name, hw)
		if err != nil {
			return err
		}
		live, _ := problem.PeakLive()
		row := []string{name, problem.Kind.String(), mib(live)}
		for _, m := range names {
			f, err := b.measure(ctx, problem, m, 0, 0, false)
			if err != nil {
				return err
			}
			cell := "–"
			if f.reason == "" {
				cell = fmt.Sprintf("%.3f", float64(f.Measurement.Footprint)/float64(live))
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	p.table(append([]string{"sample", "holds", "peak live"}, names...), rows)
	p.para("Figures are footprint over the peak of live bytes, which is the bound.")
	return nil
}

// sample makes the problem of an embedded sample.
func sample(ctx context.Context, name string, hw plan.Hardware) (*plan.Problem, error) {
	data, err := samples.Open(name)
	if err != nil {
		return nil, err
	}
	tr, err := load.Open(ctx, "-", load.Options{NoCache: true, Stdin: strings.NewReader(string(data))})
	if err != nil {
		return nil, err
	}
	tl, err := timeline.Build(ctx, tr, nil)
	if err != nil {
		return nil, err
	}
	return plan.FromDevice(ctx, tl.Main(), plan.BuildOptions{Iteration: plan.SteadyIteration, Hardware: hw,
		Name: name})
}
