package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// joint compares our planner with all others.
func (b *bench) joint(ctx context.Context, p *page) error {
	grid, missing, err := b.contest.sweeps(ctx)
	if err != nil {
		return err
	}
	p.para("Ten budgets per problem, evenly spaced from 95 %% of the footprint of PyTorch's caching "+
		"allocator (emulated, the *baseline*) down to the smallest footprint that any manager reaches "+
		"when asked for the smallest possible one. *Wins*: among the plans that fit, no other has a "+
		"shorter step time, with ties decided by footprint. The others are all managers of `gmemtop "+
		"compare` that can plan the problem, except for %s, which solve mixed-integer programs and would "+
		"take most of this page's time, and %s, whose plans run ops in another order. Each plans with its "+
		"default work; %s, whose searches count "+
		"measured candidates, also plan with ten times home's default, which takes about as long as "+
		"joint's search, and the better result counts (autoswap's surrogate grows with the cube of its "+
		"candidates, so it keeps its published twenty). At each budget joint knows its plan for the next "+
		"smaller one, as on the screen. *Bound* is joint's own proof: no plan within the "+
		"budget has a shorter step.",
		some(unfinished), some(elsewhere), some(counted))
	if len(missing) > 0 {
		p.para("Left out without GMEMTOP_TRACES: %s.", some(missing))
	}
	withPortfolio := byName(portfolioName) != nil
	header := []string{"problem", "joint wins", "never slower with more", "over its bound, mean", "most",
		"budgets with under 5 %"}
	if withPortfolio {
		header = slices.Insert(header, 2, "portfolio wins")
	}
	var rows [][]string
	total, all, monotone, close, bounded, eight, ten := 0, 0, 0, 0, 0, 0, 0
	for _, s := range grid {
		won := s.won(jointName)
		mono := s.monotone(jointName)
		mean, most, under, have := s.distance(jointName)
		row := []string{s.name, fmt.Sprintf("%d of %d", won, len(s.budgets)), yes(mono)}
		if have > 0 {
			row = append(row, percent(mean), percent(most), fmt.Sprintf("%d of %d", under, have))
		} else {
			row = append(row, "–", "–", "–")
		}
		if withPortfolio {
			both := s.won(portfolioName)
			if both == len(s.budgets) {
				ten++
			}
			row = slices.Insert(row, 2, fmt.Sprintf("%d of %d", both, len(s.budgets)))
		}
		if won >= 8 {
			eight++
		}
		if mono {
			monotone++
		}
		total, all, close, bounded = total+won, all+len(s.budgets), close+under, bounded+have
		rows = append(rows, row)
	}
	p.table(header, rows)
	p.para("joint wins %d of %d budgets; at least eight of ten on %d of %d problems (aim: all). Its step "+
		"time never rises as the budget grows on %d of %d. It is within 5 %% of its own bound at %d of "+
		"%d budgets.",
		total, all, eight, len(grid), monotone, len(grid), close, bounded)
	if withPortfolio {
		p.para("portfolio wins all ten on %d of %d problems (aim: all).", ten, len(grid))
	} else {
		p.para("There is no portfolio manager in this version.")
	}
	for _, s := range grid {
		s.write(p, withPortfolio)
	}
	p.para("The other embedded samples, SmartPool's recordings and memory snapshots have no accesses: " +
		"every manager that can plan them keeps everything, so budgets mean nothing there; see the pools " +
		"above. A step on a CPU takes so long that copies are hidden behind it; the samples among the " +
		"problems show that a planner works on recordings, not what a GPU would take.")
	return nil
}

func yes(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}

// monotone reports whether a manager's step time never rises as the budget grows, and no larger budget loses
// a plan that fits.
func (s *sweep) monotone(name string) bool {
	for k := 1; k < len(s.budgets); k++ { // budgets fall
		larger, smaller := s.at(k-1, name), s.at(k, name)
		if smaller.step() > 0 && (larger.step() == 0 || larger.step() > smaller.step()) {
			return false
		}
	}
	return true
}

// distance returns how far a manager's step times are above its bounds: the mean, the maximum, at how many
// budgets it is under 5 %, and how many have a bound.
func (s *sweep) distance(name string) (mean, most float64, under, have int) {
	for k := range s.budgets {
		f := s.at(k, name)
		if f.step() == 0 || f.plan.StepBound <= 0 {
			continue
		}
		v := float64(f.step())/float64(f.plan.StepBound) - 1
		mean, most, have = mean+v, max(most, v), have+1
		if v < 0.05 {
			under++
		}
	}
	if have > 0 {
		mean /= float64(have)
	}
	return mean, most, under, have
}

// write writes the table of one problem.
func (s *sweep) write(p *page, withPortfolio bool) {
	p.heading(3, "%s", s.name)
	p.para("%s. %d ops, %d buffers, %d managers; baseline %s, everything kept %s a step.",
		strings.ToUpper(s.set[:1])+s.set[1:], len(s.p.Ops), len(s.p.Buffers), s.ran, gib(s.baseline),
		ms(s.step))
	header := []string{"budget", "of baseline", "best other", "", "joint", "", "joint over its bound"}
	if withPortfolio {
		header = slices.Insert(header, 6, "portfolio")
	}
	var rows [][]string
	for k, budget := range s.budgets {
		other, mine := s.others(k), s.at(k, jointName)
		row := []string{gib(budget), percent(float64(budget) / float64(s.baseline))}
		if other == nil {
			row = append(row, "–", "none fits")
		} else {
			row = append(row, other.manager, signed2(other.Overhead))
		}
		verdict := "loses"
		if wins(mine, other) {
			verdict = "wins"
			switch {
			case other == nil || mine.step() != other.step():
			case mine.Measurement.Footprint < other.Measurement.Footprint:
				verdict = "wins by footprint"
			default:
				verdict = "ties"
			}
		}
		if mine == nil || !mine.fits {
			row = append(row, mine.cell(), verdict, "–")
		} else {
			distance := "–"
			if mine.plan.StepBound > 0 {
				distance = percent(float64(mine.step())/float64(mine.plan.StepBound) - 1)
			}
			row = append(row, signed2(mine.Overhead), verdict, distance)
		}
		if withPortfolio {
			cell := "–"
			if f := s.at(k, portfolioName); f != nil && f.fits {
				cell = signed2(f.Overhead)
				if !wins(f, other) {
					cell += ", loses"
				}
			}
			row = slices.Insert(row, 6, cell)
		}
		rows = append(rows, row)
	}
	p.table(header, rows)
}

// signed2 is signed with two decimals.
func signed2(v float64) string {
	s := fmt.Sprintf("%+.2f %%", v*100)
	if s == "+0.00 %" || s == "-0.00 %" {
		return "0.00 %"
	}
	return s
}
