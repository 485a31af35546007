package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
)

func (a *app) planCommand() *cobra.Command {
	var f planFlags
	var manager string
	var eager bool
	c := &cobra.Command{
		Use: "plan FILE --manager M --budget B -o plan.json", GroupID: groupReport, Args: f.tracesOrNetwork(1), DisableFlagsInUseLine: true,
		Short: "Write one manager's plan: what leaves memory when, and where everything lies",
		Long: "Plans one iteration of a trace with one manager, checks the plan, and writes it as JSON (docs/plan.md): what is swapped,\n" +
			"recomputed or discarded between which ops and why, and the address of every buffer.\n" +
			"Exits with 3 where the plan does not fit in the budget; it is written all the same.",
		Example: "  gmemtop plan trace.gmt --manager joint --budget 12GiB -o plan.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.plan(cmd.Context(), args, &f, manager, eager)
		},
	}
	p := c.Flags()
	p.StringVar(&manager, "manager", "joint", "the manager that plans")
	p.BoolVar(&eager, "eager", false, "the plan as eager PyTorch can run it")
	f.add(c)
	a.flags.reading(c)
	a.flags.writing(c)
	return c
}

func (a *app) plan(ctx context.Context, paths []string, f *planFlags, manager string, eager bool) error {
	if err := a.mayWrite(a.flags.output); err != nil {
		return err
	}
	list, err := managers.Select(manager)
	if err != nil {
		return usageError{err}
	}
	if len(list) != 1 {
		return usageError{fmt.Errorf("--manager %s names %d managers: name one", manager, len(list))}
	}
	p, readErr, err := a.problem(ctx, paths, f)
	if p == nil {
		return err
	}
	opt := replay.Options{Seed: f.seed, Work: f.work}
	if opt.Budget, err = f.budgetBytes(ctx, p); err != nil {
		return err
	}
	if opt.Margin, err = optionalBytes("margin", f.margin); err != nil {
		return err
	}
	if eager {
		opt.Eager = managers.Eager
	}
	c, err := a.compared(ctx, p, list, opt)
	if err != nil {
		return err
	}
	r := c.Results[0]
	switch {
	case eager && len(c.Results) > 1:
		r = c.Results[1]
	case eager && r.Available && len(r.Plan.Absences) > 0:
		return unsupportedError{fmt.Errorf("%s: eager PyTorch can run nothing of this plan; without --eager it is written as it is", r.Info.Name)}
	}
	if !r.Available {
		return unsupportedError{fmt.Errorf("%s: %s", r.Info.Name, r.Reason)}
	}
	u := a.flags.report.Units
	a.note("%s", planned(p, &r, u.Bytes(r.Measurement.Footprint)))
	if err := a.write(false, func(w io.Writer) error { return r.Plan.WriteJSON(w, p) }); err != nil {
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
