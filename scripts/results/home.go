package main

import (
	"context"
	"fmt"
)

// home writes the section on HOME.
func (b *bench) home(ctx context.Context, p *page) error {
	p.para("Paper (abstract, IEEE TC 2023): throughput up to 5.7 times vDNN's and 1.3 times Capuchin's; " +
		"largest batch up to 2.8 times PyTorch's and 1.3 times Capuchin's; six popular networks, " +
		"PyTorch. Models, batch sizes, GPU, and the method's encoding, fitness and constants are not " +
		"public. `home` is a particle swarm in its spirit, so the figures below compare our own " +
		"implementations. They neither confirm nor refute the paper.")
	grid, _, err := b.contest.sweeps(ctx)
	if err != nil {
		return err
	}
	rivals := []struct {
		name  string
		paper float64
	}{{"vdnn-all", 5.7}, {"vdnn-dyn", 5.7}, {"capuchin", 1.3}}
	most := make([]float64, len(rivals))
	var rows [][]string
	for _, s := range grid {
		row := []string{s.name}
		some := false
		for i, r := range rivals {
			sum, n, top := 0.0, 0, 0.0
			for k := range s.budgets {
				home, other := s.at(k, "home"), s.at(k, r.name)
				if home.step() == 0 || other.step() == 0 {
					continue
				}
				v := float64(other.step()) / float64(home.step())
				sum, n, top = sum+v, n+1, max(top, v)
			}
			if n == 0 {
				row = append(row, "–")
				continue
			}
			some = true
			most[i] = max(most[i], top)
			row = append(row, fmt.Sprintf("%.2fx, %.2fx", sum/float64(n), top))
		}
		if some {
			rows = append(rows, row)
		}
	}
	header := []string{"problem"}
	for _, r := range rivals {
		header = append(header, "over "+r.name+": mean, most")
	}
	p.table(header, rows)
	p.para("home's throughput relative to each rival's, at those of the ten budgets in the section on "+
		"joint at which both fit. At most: %.2fx over vdnn-all and %.2fx over vdnn-dyn (paper: up to "+
		"5.7x, %s), %.2fx over Capuchin (paper: up to 1.3x, %s).", most[0], most[1],
		reached(max(most[0], most[1]) >= 5.7), most[2], reached(most[2] >= 1.3))
	if b.overCapuchin > 0 {
		p.para("Largest batch (the table under DELTA): home's is up to %.2fx Capuchin's, whatever the "+
			"step takes (paper: up to 1.3x, %s). %s", b.overCapuchin, reached(b.overCapuchin >= 1.3),
			b.atPaper.words())
	}
	return nil
}

// atPaper is the network on which home's plan costs least at the multiple of PyTorch's largest batch that
// its paper reports, and how much; no network if the batch fits nowhere.
type atPaper struct {
	network  string
	overhead float64
}

// words are the verdict.
func (x *atPaper) words() string {
	if x.network == "" {
		return fmt.Sprintf("%.1fx PyTorch's (paper: up to that): not reached, it fits for no network.",
			homeBatch)
	}
	return fmt.Sprintf("%.1fx PyTorch's (paper: up to that): %s. Of the four networks, a step of %s takes "+
		"the least longer than with everything kept, %s; the limit is that for DELTA's batches.", homeBatch,
		reached(x.overhead <= bearable), x.network, signed(x.overhead))
}
