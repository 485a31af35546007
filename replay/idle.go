package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
)

// obstacle is why some of what a plan moves or drops stays in memory in a running training.
type obstacle struct {
	why, change string
	bytes       int64
	largest     plan.BufferID // of the buffers that stay for this reason
}

// whyIdle says why nothing leaves memory in a running training under a plan. If the plan moves nothing
// anywhere, whyIdle also says what is in memory at the step's peak.
func whyIdle(p *plan.Problem, pl *plan.Plan) string {
	if len(pl.Absences) > 0 {
		return "PyTorch cannot carry out any part of its plan: " + Obstacles(p, pl)
	}
	if op := oneOp(p); op != "" {
		return op
	}
	why := "nothing leaves memory under its plan"
	if there, where := Remains(p, pl, timeline.IEC); where != "" {
		why += fmt.Sprintf("; at the step's peak, %s, there are %s%s: make the largest of these smaller",
			where, there, largest(p, pl, timeline.IEC))
	}
	why += ", or try another manager"
	if advice := Advice(p, pl, timeline.IEC); advice != "" {
		why += "." + strings.TrimSuffix(advice, ".")
	}
	return why
}

// oneOpShare is the share of a step's peak from which on one op is called the reason for it.
const oneOpShare = 0.95

// oneOp says that one op and what stays between steps make up nearly all of a step's peak, so that it hardly
// matters what leaves; "" if they do not.
func oneOp(p *plan.Problem) string {
	m := p.MustReside()
	peak, _ := p.PeakLive()
	if m.Operands == 0 || float64(m.Total()) < oneOpShare*float64(peak) {
		return ""
	}
	u := timeline.IEC
	return fmt.Sprintf("no plan can lower the peak by much: what %s needs at once, and what stays between "+
		"steps, are %s of the %s that a step holds: train on smaller batches or shorter sequences",
		report.Printable(p.Ops[m.Op].Name), u.Bytes(min(m.Total(), peak)), u.Bytes(peak))
}

// Obstacles names the reason for which most bytes that a plan moves stay in a running training, the largest
// tensor among them, and what to change.
func Obstacles(p *plan.Problem, pl *plan.Plan) string {
	q, err := pl.Of(p)
	switch {
	case err != nil || pl.Sequence != nil:
		return "it runs ops in another order, and a PyTorch program runs them in its own; try another manager"
	case pl.SectionBytes != 0:
		return "it moves parts of tensors, and in a running training a tensor leaves as a whole; try joint"
	}
	var all []obstacle
	var bytes int64
	for _, x := range pl.Absences {
		o := hinders(q, x)
		o.bytes, o.largest = q.Rounded(x.Buffer), x.Buffer
		bytes += o.bytes
		k := slices.IndexFunc(all, func(y obstacle) bool { return y.why == o.why })
		if k < 0 {
			all = append(all, o)
			continue
		}
		all[k].bytes += o.bytes
		if o.bytes > q.Rounded(all[k].largest) {
			all[k].largest = x.Buffer
		}
	}
	most := slices.MaxFunc(all, func(x, y obstacle) int { return cmp.Compare(x.bytes, y.bytes) })
	u := timeline.IEC
	part := "all of the "
	if most.bytes < bytes {
		part = u.Bytes(most.bytes) + " of the "
	}
	return fmt.Sprintf("%s%s that the plan would move or drop stay in memory for the same reason as the "+
		"largest of them, %s (%s): %s; %s", part, u.Bytes(bytes), madeBy(q, most.largest),
		u.Bytes(q.Rounded(most.largest)), most.why, most.change)
}

// hinders says why a running training cannot do what a plan wants of one buffer, and what would help.
func hinders(p *plan.Problem, x plan.Absence) obstacle {
	const other = "try another manager"
	b := &p.Buffers[x.Buffer]
	switch r := p.EagerRefusal(x); {
	case r.Why == "":
	case b.Category == timeline.Gradient:
		return obstacle{why: r.Why, change: "where gradients wait for the next step, " +
			"optimizer.zero_grad() before the forward pass frees them"}
	case b.Category == timeline.OptimizerState:
		return obstacle{why: r.Why, change: "joint moves optimizer state between optimizer steps"}
	case p.SavesKnown && !b.Saved && savedOutside(p, x.Buffer):
		return obstacle{why: r.Why, change: "compute it in a module's forward, and call model(x) instead " +
			"of model.forward(x)"}
	case r.Held:
		return obstacle{why: r.Why, change: "delete the variable that refers to it (del) before the " +
			"backward pass"}
	default:
		return obstacle{why: r.Why, change: other}
	}
	if x.How == plan.Discard {
		return obstacle{why: "it is overwritten next, and PyTorch does not drop it before", change: other}
	}
	if x.How == plan.Swap {
		return obstacle{why: "autograd needs it again before it could have left", change: other}
	}
	return obstacle{why: "PyTorch would run a whole piece of the forward pass again for it, and an op " +
		"of that cannot",
		change: "try autoswap, which copies it to the host"}
}

// whatRemains says what is in memory at the peak of a plan that exceeds a budget, and what to change in the
// program, to follow the sentence that refuses the plan; "" if it does not exceed it.
func whatRemains(p *plan.Problem, pl *plan.Plan, budget int64) string {
	if held, _ := pl.PeakLive(); budget <= 0 || held <= budget {
		return ""
	}
	return StillThere(p, pl)
}

// StillThere says what is in memory at a plan's peak, and what to change in the program, to follow a sentence
// that refuses the plan; "" if no op runs there.
func StillThere(p *plan.Problem, pl *plan.Plan) string {
	there, where := Remains(p, pl, timeline.IEC)
	if where == "" {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("; at its peak, %s, there are still %s%s.%s", where, there,
		largest(p, pl, timeline.IEC), Advice(p, pl, timeline.IEC)), ".")
}

// largest names the largest tensor at a plan's peak, to follow a list of what is there; "" if it is a small
// part of the peak.
func largest(p *plan.Problem, pl *plan.Plan, u timeline.Units) string {
	p, err := pl.Of(p)
	if err != nil {
		return ""
	}
	peak, at := pl.PeakLive()
	var most *plan.Instance
	for i := range instancesAt(pl, at) {
		x := &pl.Instances[i]
		if most == nil || cmp.Or(cmp.Compare(x.Size, most.Size), cmp.Compare(most.Buffer, x.Buffer)) > 0 {
			most = x
		}
	}
	if most == nil || float64(most.Size) < leastShare*float64(peak) {
		return ""
	}
	return fmt.Sprintf(" (the largest: %s, %s)", madeBy(p, most.Buffer), u.Bytes(most.Size))
}

// madeBy names a buffer by the op that first touches it, and that op's module. Autograd saves a tensor before
// the op that it is saved for runs, but it is the op that a reader knows.
func madeBy(p *plan.Problem, b plan.BufferID) string {
	touches := p.TouchesOf(b)
	if p.Buffers[b].Name == plan.RoomName {
		return "room for larger steps"
	}
	if len(touches) == 0 && p.Buffers[b].Category == timeline.Input {
		return "a data set or another input that no op touches"
	}
	if len(touches) == 0 {
		return "a tensor that no op touches"
	}
	k := max(slices.IndexFunc(touches, func(t plan.Touch) bool { return !between(&p.Ops[t.Op]) }), 0)
	op, does := &p.Ops[touches[k].Op], "makes"
	if !touches[k].Mode.Writes() {
		does = "reads"
	}
	name := report.Printable(op.Name)
	if between(op) {
		name = "autograd"
	}
	if op.Phase == traces.PhaseForward && op.Module != "" {
		does += " in " + report.Printable(op.Module)
	}
	return fmt.Sprintf("what %s %s", name, does)
}
