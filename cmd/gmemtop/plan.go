package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
)

func newPlanCommand(a *app) *cobra.Command {
	var f planFlags
	var manager string
	var eager bool
	var target, emit string
	c := &cobra.Command{
		Use: "plan FILE --manager M --budget B -o plan.json", GroupID: groupReport, DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if target != "" {
				return cobra.NoArgs(cmd, args)
			}
			return f.tracesOrNetwork(1)(cmd, args)
		},
		Short: "Write one manager's plan: what leaves memory when, and where everything lies",
		Long: "Plans one iteration of a trace with one manager, checks the plan, and writes it as JSON (docs/plan.md): what is swapped,\n" +
			"recomputed or discarded between which ops and why, and the address of every buffer.\n" +
			"With --target live:PID the step that a running training runs is planned, for eager PyTorch: gmemtop run --plan has that carried out,\n" +
			"and --emit torch writes it as a Python file that does the same in your own script, without gmemtop.\n" +
			"Exits with 3 where the plan does not fit in the budget; it is written all the same.",
		Example: "  gmemtop plan trace.gmt --manager joint --budget 12GiB -o plan.json\n" +
			"  gmemtop plan --target live:4242 --manager joint --budget 12GiB --emit torch -o less_memory.py",
		RunE: func(cmd *cobra.Command, args []string) error {
			if emit != "" && emit != emitTorch {
				return usageError{fmt.Errorf("--emit %q is none: write torch", emit)}
			}
			o := planning{manager: manager, eager: eager || emit != "" || target != "", emit: emit != ""}
			if target != "" {
				if o.pooled = pools(manager); o.pooled && !o.emit {
					o.eager = false
				}
				return a.planLive(cmd.Context(), target, &f, o)
			}
			return a.plan(cmd.Context(), args, &f, o)
		},
	}
	p := c.Flags()
	p.StringVar(&manager, "manager", "joint", "the manager that plans")
	p.BoolVar(&eager, "eager", false, "the plan as eager PyTorch can run it")
	p.StringVar(&target, "target", "", "plan for a training that runs instead of FILE: live:PID")
	p.StringVar(&emit, "emit", "", "write a Python file that carries the plan out instead of JSON: torch")
	f.add(c)
	a.flags.reading(c)
	a.flags.writing(c)
	return c
}

// planning is what is asked of plan beside the flags of all planning.
type planning struct {
	manager     string
	eager, emit bool
	// pooled says that a training is planned for by a manager that only chooses addresses, on what it allocates.
	pooled bool
}

// one returns the manager that is named.
func (o *planning) one() ([]plan.Manager, error) {
	list, err := managers.Select(o.manager)
	if err != nil {
		return nil, usageError{err}
	}
	if len(list) != 1 {
		return nil, usageError{fmt.Errorf("--manager %s names %d managers: name one", o.manager, len(list))}
	}
	return list, nil
}

func (a *app) plan(ctx context.Context, paths []string, f *planFlags, o planning) error {
	if err := a.mayWrite(a.flags.output); err != nil {
		return err
	}
	if _, err := o.one(); err != nil {
		return err
	}
	f.eagerOnly = o.emit
	p, readErr, err := a.problem(ctx, paths, f)
	if p == nil {
		return err
	}
	return a.writePlan(ctx, p, f, o, readErr)
}

// planLive plans the step that a training runs.
func (a *app) planLive(ctx context.Context, target string, f *planFlags, o planning) error {
	if err := a.mayWrite(a.flags.output); err != nil {
		return err
	}
	if _, err := o.one(); err != nil {
		return err
	}
	pid, err := livePID(target)
	if err != nil {
		return err
	}
	var p *plan.Problem
	if err := a.training(ctx, pid, func(c *crew) error {
		target, err := c.lead.target(ctx, o.pooled, live.Options{})
		if err != nil {
			return err
		}
		p, err = a.describedNow(ctx, target, o.pooled, f, c.lead)
		return err
	}); err != nil {
		return err
	}
	return a.writePlan(ctx, p, f, o, nil)
}

// writePlan plans a problem with the manager that is named, and writes what came of it.
func (a *app) writePlan(ctx context.Context, p *plan.Problem, f *planFlags, o planning, readErr error) error {
	list, err := o.one()
	if err != nil {
		return err
	}
	opt := replay.Options{Seed: f.seed, Work: f.work}
	if opt.Budget, err = f.budgetBytes(ctx, p); err != nil {
		return err
	}
	if opt.Margin, err = optionalBytes("margin", f.margin); err != nil {
		return err
	}
	if o.eager {
		opt.Eager = managers.Eager
	}
	c, err := a.compared(ctx, p, list, opt)
	if err != nil {
		return err
	}
	r := c.Results[0]
	switch {
	case o.eager && len(c.Results) > 1:
		r = c.Results[1]
	case o.eager && r.Available && len(r.Plan.Absences) > 0:
		return unsupportedError{fmt.Errorf("%s: eager PyTorch can run nothing of this plan; without --eager it is written as it is", r.Info.Name)}
	}
	if !r.Available {
		return unsupportedError{fmt.Errorf("%s: %s", r.Info.Name, r.Reason)}
	}
	u := a.flags.report.Units
	a.note("%s", planned(p, &r, u.Bytes(r.Measurement.Footprint)))
	write := func(w io.Writer) error { return r.Plan.WriteJSON(w, p) }
	if o.emit {
		text, err := emitted(p, &r, u)
		if err != nil {
			return err
		}
		write = func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		}
	}
	if err := a.write(false, write); err != nil {
		return err
	}
	if !r.Fits && readErr == nil {
		a.complain("the plan takes %s and the budget is %s", u.Bytes(r.Measurement.Footprint), u.Bytes(c.Net))
		return errFinding
	}
	return readErr
}

func planned(p *plan.Problem, r *replay.Result, size string) string {
	s := fmt.Sprintf("%s: %s", r.Info.Name, size)
	if p.HasTimes {
		s += ", step " + replay.Percent(r.Overhead)
	}
	if t := replay.Treatment(p, r.Plan); t != "" {
		s += ". " + t
	}
	return s
}
