package main

import (
	"cmp"
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/emit"
)

// emitTorch is the value of --emit.
const emitTorch = "torch"

// planCommand writes one manager's plan.
type planCommand struct {
	planning
	manager string
	eager   bool
	target  string // a running training, "" for a trace or a network
	emit    string // "" for JSON
}

func newPlanCommand(a *app) *cobra.Command {
	c := planCommand{planning: planning{app: a}}
	cmd := &cobra.Command{
		Use: "plan FILE --manager M --budget B -o plan.json", GroupID: groupReport,
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if c.target != "" {
				return cobra.NoArgs(cmd, args)
			}
			return c.plan.tracesOrNetwork(1)(cmd, args)
		},
		Short: "Write one manager's plan: what leaves memory, and when",
		Long: `Writes one manager's plan for an iteration as JSON (docs/plan.md): what is swapped, recomputed
or discarded between which ops and why, and the address of every buffer.

--target live:PID plans for a running training. gmemtop run --plan trains with that plan. --emit torch
writes it for your own script, which then needs no gmemtop: a short Python file of rules, and beside it
gmemtop_carry.py, which carries out the rules of any plan.

The first ctrl-c ends planning and writes the best plan so far; the second ends plan at once.

Exits with 3 if the plan does not fit the budget; the plan is written anyway.`,
		Example: "  gmemtop plan trace.gmt --manager joint --budget 12GiB -o plan.json\n" +
			"  gmemtop plan --target live:4242 --manager joint --budget 12GiB \\\n" +
			"      --emit torch -o less_memory.py",
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.emit != "" && c.emit != emitTorch {
				return exit.Mistakef("--emit %q is unknown: write torch", c.emit)
			}
			if c.target != "" {
				return c.runLive(cmd.Context())
			}
			return c.run(cmd.Context(), args)
		},
	}
	p := cmd.Flags()
	p.StringVar(&c.manager, "manager", "joint", "the manager that plans")
	p.BoolVar(&c.eager, "eager", false, "the plan as eager PyTorch can run it")
	p.StringVar(&c.target, "target", "", "plan for a running training instead of FILE: live:PID")
	p.StringVar(&c.emit, "emit", "", "instead of JSON, write a Python file that carries the plan out: torch")
	c.plan.add(cmd)
	c.flags.reading(cmd)
	c.flags.writing(cmd, insteadOfStdout)
	return cmd
}

// run plans an iteration of a trace, or of a network.
func (c *planCommand) run(ctx context.Context, paths []string) error {
	if err := c.mayPlan(); err != nil {
		return err
	}
	c.eager = c.eager || c.emit != ""
	c.plan.EagerOnly = c.emit != ""
	p, readErr, err := c.problem(ctx, paths)
	if p == nil {
		return err
	}
	return c.writePlan(ctx, p, readErr)
}

// runLive plans the step that a training runs.
func (c *planCommand) runLive(ctx context.Context) error {
	if err := c.mayPlan(); err != nil {
		return err
	}
	t, err := c.training(c.target)
	if err != nil {
		return err
	}
	pooled := planner.Pools(c.manager)
	c.eager = !pooled || c.emit != ""
	p, err := t.Problem(ctx, pooled)
	if err != nil {
		return err
	}
	return c.writePlan(ctx, p, nil)
}

// mayPlan refuses, before any work is done, an unknown manager and files that could not be written.
func (c *planCommand) mayPlan() error {
	if err := c.mayWrite(c.flags.output); err != nil {
		return err
	}
	m, err := planner.Manager(c.manager)
	if err != nil || c.emit == "" {
		return err
	}
	beside, err := c.python().Beside(m)
	if err != nil {
		return err
	}
	return c.mayWrite(beside)
}

// python says where a plan goes as Python.
func (c *planCommand) python() *planner.Python {
	return &planner.Python{Path: c.flags.output, Force: c.flags.force}
}

// writePlan plans a problem with the named manager and writes the result.
func (c *planCommand) writePlan(ctx context.Context, p *plan.Problem, readErr error) error {
	m, err := planner.Manager(c.manager)
	if err != nil {
		return err
	}
	opt, err := c.plan.Options(p)
	if err != nil {
		return err
	}
	if c.eager {
		opt.Eager = managers.Eager
	}
	ctx, release := c.stoppable(ctx)
	defer release()
	made, err := c.compared(ctx, p, []plan.Manager{m}, opt)
	if err != nil {
		return err
	}
	r, err := planner.Made(made, c.eager)
	switch {
	case err == nil:
	case r.Stopped && !r.Available:
		c.complain(err.Error())
		return ctx.Err()
	default:
		return exit.AsUnsupported(err)
	}
	u := c.flags.report.Units
	c.note(r.Headline(p, u))
	if c.emit != "" {
		err = c.writePython(p, r)
	} else {
		err = c.write(func(w io.Writer) error { return r.Plan.WriteJSON(w, p) })
	}
	if err != nil {
		return err
	}
	if !r.Fits && readErr == nil {
		c.complainf("the plan takes %s and the budget is %s", u.Bytes(r.Measurement.Footprint),
			u.Bytes(made.Net))
		return cmp.Or(interrupted(ctx), errFinding)
	}
	return cmp.Or(interrupted(ctx), readErr)
}

// writePython writes the plan as a Python file, and beside it the file that carries out the rules of any
// plan, if this one has rules.
func (c *planCommand) writePython(p *plan.Problem, r *replay.Result) error {
	python := c.python()
	text, rules, err := python.Text(p, r, c.flags.report.Units)
	if err != nil {
		return err
	}
	if rules && !python.IsFile() {
		c.notef("this imports %s: with -o, gmemtop writes both files", emit.Runtime)
	}
	if rules {
		beside, err := python.Runtime()
		if err == nil && beside != "" {
			err = c.writeTo(beside, content(emit.RuntimeSource()))
		}
		if err != nil {
			return err
		}
	}
	return c.write(content(text))
}

// content writes a text.
func content(text string) func(w io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}
