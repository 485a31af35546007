package main

import (
	"context"
	"fmt"
)

// tvdnn writes the section on swapping sections.
func (b *bench) tvdnn(ctx context.Context, p *page) error {
	p.para("Poster (PPoPP 2018, abstract): Caffe, VGG-16 at batch 256 and 512 \"using a few GB of GPU " +
		"memory without significant performance degradation\", by swapping sections of memory objects. " +
		"GPU, section size, objective and times are not public. Ours: VGG-16 with memory-optimal " +
		"algorithms on the preset of the Titan X (Maxwell), overhead over keeping everything with " +
		"unlimited memory.")
	hw, err := preset("titan-x")
	if err != nil {
		return err
	}
	names := []string{"tvdnn-heuristic", "vdnn-all", "joint"}
	batches := []int{256, 512}
	budgets := []int64{4, 6, 8, 12, 16, 20, 24}
	for _, batch := range batches {
		problem, err := caffe(lean("VGG-16", batch, hw))
		if err != nil {
			return err
		}
		got := make([]*figure, len(names)*len(budgets))
		if err := each(ctx, len(got), func(i int) (err error) {
			got[i], err = b.measure(ctx, problem, names[i%len(names)], budgets[i/len(names)]*gibi, 0, false)
			return err
		}); err != nil {
			return err
		}
		must, live := problem.MustReside(), int64(0)
		live, _ = problem.PeakLive()
		p.heading(3, "VGG-16 at batch %d", batch)
		p.para("Everything kept takes %s at least; no plan takes less than %s, of which %s are the "+
			"operands of %s, which a kernel reads and writes together.", gib(live), gib(must.Total()),
			gib(must.Operands), problem.Ops[must.Op].Name)
		var rows [][]string
		least, at := int64(0), 0.0
		for k := range budgets {
			row := []string{fmt.Sprintf("%d GiB", budgets[k])}
			for m := range names {
				f := got[k*len(names)+m]
				cell := f.cell()
				if budgets[k]*gibi < must.Total() {
					cell = "not possible"
				}
				row = append(row, cell)
			}
			if f := got[k*len(names)]; f.fits && least == 0 {
				least, at = budgets[k], f.Overhead
			}
			rows = append(rows, row)
		}
		p.table(append([]string{"budget"}, names...), rows)
		if least == 0 {
			p.para("tvdnn-heuristic fits in none of these.")
		} else {
			p.para("The smallest of these budgets in which tvdnn-heuristic fits is %d GiB, at %s.", least,
				signed(at))
		}
		b.tell("tvDNN at batch %d", batch)
	}
	p.para("The poster does not say what \"a few GB\" and \"significant\" mean, so we judge neither. " +
		"Nothing can run in less than the operands of the largest kernel. If the poster's figure is " +
		"lower, its kernels worked on parts of the batch, which the abstract does not mention. tvdnn-ilp " +
		"is left out here: on networks of this size its integer program does not finish within its work " +
		"limit.")
	return nil
}
