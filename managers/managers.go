// Package managers lists the memory managers that gmemtop plans with: one planner a file, in packages by what
// they do.
//
//	pool       keeps everything and chooses addresses (and the online allocators, as baselines)
//	swap       moves buffers to the host and back
//	recompute  drops buffers and runs their ops again
//	combine    does several of these, after published methods
//	joint      our own: keep, swap or recompute, with a place for everything
//
// All of them turn a [plan.Problem] into a [plan.Plan] that [plan.Validate] accepts; none knows a target.
package managers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/managers/combine"
	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/managers/recompute"
	"github.com/gmemtop/gmemtop/managers/swap"
	"github.com/gmemtop/gmemtop/traces/near"
)

// All returns every manager, baselines first, ours last.
func All() []plan.Manager {
	all := published()
	within := comparable(all)
	return append(all, ours(seeds(within)), knows{parks{joint.New(within...)}})
}

// published returns all managers but those that ask others.
func published() []plan.Manager {
	return slices.Concat(pool.All(), []plan.Manager{orders{pool.Order()}}, swap.All(), recompute.All(),
		combine.All())
}

// comparable leaves out managers whose plans are not for the given problem.
func comparable(of []plan.Manager) []plan.Manager {
	return slices.DeleteFunc(slices.Clone(of), func(m plan.Manager) bool {
		return parking(m) || reordering(m)
	})
}

// ours returns joint, which asks these managers.
func ours(asked []plan.Manager) plan.Manager {
	return knows{parks{runnable{joint.Seeded(asked...), asked}}}
}

// parking reports whether a manager plans with optimizer state away. Ours ask the others about the same
// problem twice instead, with state and without: see [parks].
func parking(m plan.Manager) bool { return m.Info().Name == "zero-offload" }

// reordering reports whether a manager's plans need an executor that runs ops in another order. Our own do
// not.
func reordering(m plan.Manager) bool { return m.Info().Name == "order" }

// seeds are those that joint asks: all that move or drop anything, the quickest first, but those that solve
// integer programs, which take minutes.
func seeds(published []plan.Manager) []plan.Manager {
	var all []plan.Manager
	for _, f := range []plan.Family{plan.Recomputing, plan.Combining, plan.Swapping} {
		for _, m := range published {
			switch i := m.Info(); {
			case i.Family != f || i.Name == "checkmate" || i.Name == "checkmate-lp" || i.Name == "tvdnn-ilp":
			default:
				all = append(all, m)
			}
		}
	}
	return all
}

// Default returns the managers that are compared by default: one or two of each family, the best known of
// each first.
func Default() []plan.Manager {
	var out []plan.Manager
	for _, m := range All() {
		if slices.Contains(defaults, m.Info().Name) {
			out = append(out, m)
		}
	}
	return out
}

var defaults = []string{"caching", "expandable", "smartpool", "exact", "vdnn-all", "autoswap", "dtr",
	"checkmate", "capuchin", "delta", "home", "joint"}

// OnDevices returns the managers that only a device can carry out.
func OnDevices() []plan.Manager { return []plan.Manager{pool.Async()} }

// names returns the names of all managers in their order.
func names() []string {
	var names []string
	for _, m := range All() {
		names = append(names, m.Info().Name)
	}
	return names
}

// meant asks for the manager whose name is spelled like a word, or those whose names contain it or are
// contained in it; "" if there are none.
func meant(word string) string {
	var alike []string
	for _, n := range names() {
		if word != "" && (strings.Contains(n, word) || strings.Contains(word, n)) {
			alike = append(alike, n)
		}
	}
	if n := near.Word(word, names()); n != "" {
		alike = []string{n}
	}
	if len(alike) == 0 || len(alike) > 6 {
		return ""
	}
	return "did you mean " + strings.Join(alike, " or ") + "? "
}

// Select returns the managers of a list of names separated by commas, in the order of [All]; "all" is all of
// them, "" the default ones. A name that ends in * selects every name that begins like it.
func Select(list string) ([]plan.Manager, error) {
	switch strings.TrimSpace(list) {
	case "all":
		return All(), nil
	case "":
		return Default(), nil
	}
	all := All()
	chosen := make([]bool, len(all))
	for word := range strings.SplitSeq(list, ",") {
		word = strings.ToLower(strings.TrimSpace(word))
		found := false
		for i, m := range all {
			n := m.Info().Name
			if prefix, ok := strings.CutSuffix(word, "*"); n == word || ok && strings.HasPrefix(n, prefix) {
				chosen[i], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("unknown manager %q: %sgmemtop help managers lists them", word,
				meant(word))
		}
	}
	var out []plan.Manager
	for i, m := range all {
		if chosen[i] {
			out = append(out, m)
		}
	}
	return out, nil
}

// Eager turns a plan into what eager PyTorch can run today: only tensors saved for backward, and whole
// regions rerun at the first use; see package recompute. It returns nil if nothing of the plan is left then.
func Eager(ctx context.Context, p *plan.Problem, pl *plan.Plan) (*plan.Plan, error) {
	switch {
	case pl.Executor == plan.TorchEager:
		return pl, nil
	case pl.SectionBytes != 0, pl.Sequence != nil:
		// a saved tensor leaves and returns as a whole, and ops run in the program's order
		return nil, nil
	}
	began := time.Now()
	p, err := pl.Of(p)
	if err != nil {
		return nil, err
	}
	d, notes, err := recompute.Eager(p, plan.Decisions{Absences: pl.Absences, Reruns: pl.Reruns,
		Variants: pl.Variants})
	if err != nil {
		return nil, fmt.Errorf("make it runnable in eager PyTorch: %w", err)
	}
	if len(d.Absences) == 0 && !pl.Parks {
		return nil, nil
	}
	eager, err := place.Assemble(p, d)
	if err != nil {
		return nil, fmt.Errorf("make it runnable in eager PyTorch: %w", err)
	}
	if _, err := place.Place(ctx, p, eager, place.Options{Capacity: pl.Budget, Work: eagerWork}); err != nil {
		return nil, err
	}
	eager.Manager, eager.Executor, eager.Budget, eager.Planning = pl.Manager, plan.TorchEager, pl.Budget,
		pl.Planning+time.Since(began)
	eager.Parks, eager.Notes = pl.Parks, append(eager.Notes, notes...)
	return eager, nil
}

// eagerWork bounds the packing of a plan made eager, in counted steps.
const eagerWork = 100_000
