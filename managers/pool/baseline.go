package pool

import (
	"context"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Online allocators as managers.
//
// What users run today is an online allocator, so everything else is compared with that. A plan of one keeps
// every buffer and names the policy; the simulator runs an emulation of the allocator in the loop, the device
// the allocator itself. The footprint is known only after it ran: what it holds from the driver or, if it can
// release its cache under pressure, the smallest cap under which the iteration completes.
//
// Rejected: a formula for fragmentation (a share of the peak, say), which would be an invented figure.

// Baselines returns the allocators that are in use without any planning: the driver itself, PyTorch's caching
// allocator with its default settings and with expandable segments, and a single arena as CnMem keeps one.
func Baselines() []plan.Manager {
	return []plan.Manager{
		online(plan.Info{Name: "caching", Family: plan.Baseline,
			Summary: "PyTorch's caching allocator with its default settings."}, plan.Policy{Name: "caching"}),
		online(plan.Info{Name: "expandable", Family: plan.Baseline,
			Summary: "PyTorch's caching allocator with expandable segments."},
			plan.Policy{Name: "caching", Settings: "expandable_segments:True"}),
		online(plan.Info{Name: "direct", Family: plan.Baseline,
			Summary: "Every block straight from the driver, which waits for the device at each free."},
			plan.Policy{Name: "direct"}),
		online(plan.Info{Name: "cnmem", After: "NVIDIA CnMem", Family: plan.Baseline,
			Summary: "One arena, 512-byte rounding, best fit, split and coalesce.",
			Reading: "a model of CnMem, not CnMem itself"}, plan.Policy{Name: "arena"}),
	}
}

// Async returns the driver's own pool, which only a device can carry out.
func Async() plan.Manager {
	return online(plan.Info{Name: "async", Family: plan.Baseline,
		Summary: "The driver's own pool (backend:cudaMallocAsync): a device has it, and no simulator."},
		plan.Policy{Name: plan.PolicyAsync})
}

// GMLake returns the allocator that stitches blocks of virtual memory together (Guo et al., ASPLOS 2024). It
// plans nothing ahead.
func GMLake() plan.Manager {
	return online(plan.Info{Name: "gmlake", After: "Guo 2024", Family: plan.Pooling,
		Summary: "Stitches free physical blocks into one virtual block instead of " +
			"asking the driver for more.",
		Reading: "written from the paper's description; ties are ours"}, plan.Policy{Name: "gmlake"})
}

func online(info plan.Info, policy plan.Policy) plan.Manager {
	info.Needs = traces.Lifetimes
	return planner{info: info, make: func(
		_ context.Context, p *plan.Problem, _ plan.Request,
	) (*plan.Plan, error) {
		pl, err := keepAll(p)
		if err != nil {
			return nil, err
		}
		pl.Policy = &policy
		pl.Order(p)
		pl.LowerBound, _ = p.PeakLive() // anything above this is rounding, holes and cache
		return pl, nil
	}}
}
