package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
)

// leastShare is the share of a plan's peak from which on a category of memory is named.
const leastShare = 0.02

// outsideShare is the share of a plan's peak from which on what modules do not contain is named: nearly every
// program computes its loss outside of them.
const outsideShare = 0.1

// Remains says what is in memory at a plan's peak, by category, the largest first: "9.3 MiB of activations
// and 4.2 MiB of parameters". where is the op that runs there, as "where aten::mm runs", or the next one if
// the peak lies between two ops; "" if none does.
func Remains(p *plan.Problem, pl *plan.Plan, u timeline.Units) (text, where string) {
	p, err := pl.Of(p)
	if err != nil {
		return "", ""
	}
	held, room := map[timeline.Category]int64{}, int64(0)
	count := func(i plan.InstanceID, sign int64) {
		x := pl.Instances[i]
		if b := &p.Buffers[x.Buffer]; b.Name == plan.RoomName {
			room += sign * x.Size
		} else {
			held[b.Category] += sign * x.Size
		}
	}
	peak, at := pl.PeakLive()
	for _, i := range pl.Resident {
		count(i, 1)
	}
	for _, s := range pl.Steps[:at+1] {
		switch s.Kind {
		case plan.Alloc:
			count(s.Instance, 1)
		case plan.Free:
			count(s.Instance, -1)
		}
	}
	before := false
	for _, s := range pl.Steps[at+1:] {
		if s.Kind != plan.Run && s.Kind != plan.Again {
			continue
		}
		op := &p.Ops[s.Op]
		if between(op) {
			before = true
			continue
		}
		name := op.Name
		if where = "where " + report.Printable(name) + " runs"; before {
			where = "right before " + report.Printable(name) + " runs"
		}
		break
	}
	var words []string
	for _, c := range slices.SortedFunc(maps.Keys(held), func(a, b timeline.Category) int {
		return cmp.Or(cmp.Compare(held[b], held[a]), cmp.Compare(a, b))
	}) {
		switch {
		case float64(held[c]) < leastShare*float64(peak):
		case c == timeline.Unknown:
			words = append(words, u.Bytes(held[c])+" "+c.Words())
		default:
			words = append(words, fmt.Sprintf("%s of %s", u.Bytes(held[c]), c.Words()))
		}
	}
	if float64(room) >= leastShare*float64(peak) && room > 0 {
		words = append(words, u.Bytes(room)+" of room for larger steps")
	}
	if n := len(words); n > 1 {
		words = append(words[:n-2:n-2], words[n-2]+" and "+words[n-1])
	}
	return strings.Join(words, ", "), where
}

// Advice says what of the memory at a plan's peak the program could do without or let a plan move, and what
// to change for that. It is sentences that each begin with a space, or "".
func Advice(p *plan.Problem, pl *plan.Plan, u timeline.Units) string {
	p, err := pl.Of(p)
	if err != nil {
		return ""
	}
	peak, at := pl.PeakLive()
	there, before := instancesAt(pl, at), map[plan.InstanceID]bool{}
	for _, i := range pl.Resident {
		before[i] = true
	}
	unread := unreadOf(p)
	return leftOver(p, pl, unread, there, before, peak, u) + outside(p, pl, there, peak, u) +
		twiceDerived(p, pl, there, peak, u) + referredTo(p, pl, at, there, peak, u) +
		neverRead(pl, unread, there, peak, u) + forAll(p, pl, there, peak, u)
}

// unreadOf returns the buffers that autograd saved for a backward pass that does not come: they are freed
// without being read. A program that adds up losses only to look at them keeps the graphs of all, and one
// that evaluates with gradients keeps that graph in its variable for the loss, until the next evaluation.
func unreadOf(p *plan.Problem) map[plan.BufferID]bool {
	unread := map[plan.BufferID]bool{}
	if !p.SavesKnown {
		return unread
	}
	longer := map[timeline.AllocID]bool{} // alive for longer than a step, with a buffer for the step before
	for i := range p.Buffers {
		b, touches := &p.Buffers[i], p.TouchesOf(plan.BufferID(i))
		if len(touches) == 0 || b.Life != plan.Inside && b.Category != timeline.Activation {
			continue
		}
		saved := slices.ContainsFunc(touches, func(t plan.Touch) bool {
			return p.Ops[t.Op].Name == plan.SaveOp
		})
		last := &p.Ops[touches[len(touches)-1].Op]
		never := last.Name == plan.SaveOp || last.Phase == traces.PhaseForward
		if b.Life != plan.Inside { // a backward pass of the next step comes first in this one
			never = !slices.ContainsFunc(touches, func(t plan.Touch) bool {
				return p.Ops[t.Op].Phase == traces.PhaseBackward
			})
		}
		if saved && never {
			unread[plan.BufferID(i)] = true
			longer[b.Alloc] = longer[b.Alloc] || b.Life != plan.Inside && b.Alloc != timeline.NoAlloc
		}
	}
	for i := range p.Buffers {
		if longer[p.Buffers[i].Alloc] {
			unread[plan.BufferID(i)] = true
		}
	}
	return unread
}

// neverRead says how much of what is there no backward pass reads; "" if it is little.
func neverRead(pl *plan.Plan, unread map[plan.BufferID]bool, there map[plan.InstanceID]bool, peak int64,
	u timeline.Units) string {
	var bytes int64
	for i := range there {
		if unread[pl.Instances[i].Buffer] {
			bytes += pl.Instances[i].Size
		}
	}
	if float64(bytes) < outsideShare*float64(peak) {
		return ""
	}
	return fmt.Sprintf(" Autograd saved %s of that, and no backward pass reads it: call detach() on the "+
		"losses and outputs that the step only looks at, or compute these under torch.no_grad().",
		u.Bytes(bytes))
}

// forAll says how much of the memory there an optimizer took for many parameters at once, and how to avoid
// that. It returns "" if that is little, or for one parameter.
func forAll(p *plan.Problem, pl *plan.Plan, there map[plan.InstanceID]bool, peak int64,
	u timeline.Units) string {
	var bytes, largest int64
	for i := range there {
		b := pl.Instances[i].Buffer
		touches := p.TouchesOf(b)
		// state that waits on the host between steps comes back there, but the optimizer does not make it
		if p.Buffers[b].Life != plan.Inside || p.Buffers[b].Category == timeline.OptimizerState ||
			len(touches) == 0 {
			continue
		}
		op := &p.Ops[touches[0].Op]
		if op.Phase == traces.PhaseOptimizer && strings.HasPrefix(op.Name, "aten::_foreach_") {
			bytes += pl.Instances[i].Size
			largest = max(largest, pl.Instances[i].Size)
		}
	}
	if float64(bytes) < outsideShare*float64(peak) || bytes < 2*largest {
		return ""
	}
	return fmt.Sprintf(" The optimizer makes %s of that for all parameters at once: pass foreach=False to "+
		"it, or fused=True if it has that option.", u.Bytes(bytes))
}

// referredTo says how much of what is there autograd saved in modules but cannot leave, since something in
// the program refers to it as well; "" if it is little. Hooks of a library keep what goes into its modules,
// and programs collect layers' outputs in lists.
func referredTo(p *plan.Problem, pl *plan.Plan, at int, there map[plan.InstanceID]bool, peak int64,
	u timeline.Units) string {
	at = max(at, 0) // the peak may be what is there before the first step
	next := slices.IndexFunc(pl.Steps[at:], func(s plan.Step) bool { return s.Kind == plan.Run })
	if !p.SavesKnown || next < 0 {
		return ""
	}
	op := pl.Steps[at+next].Op
	var bytes int64
	for i := range there {
		id := pl.Instances[i].Buffer
		touches := p.TouchesOf(id)
		k := plan.FirstTouch(touches, op)
		if !p.Buffers[id].Saved || k == 0 || k == len(touches) || touches[k].Op == op {
			continue
		}
		x := plan.Absence{Buffer: id, After: touches[k-1].Op, Before: touches[k].Op}
		if p.EagerRefusal(x).Held {
			bytes += pl.Instances[i].Size
		}
	}
	if float64(bytes) < outsideShare*float64(peak) {
		return ""
	}
	return fmt.Sprintf(" %s of that autograd needs only later, but the program itself refers to them until "+
		"then, in a variable, a list or a hook of a module: delete that reference (del) after the forward "+
		"pass.", u.Bytes(bytes))
}

// instancesAt returns what is in memory once a plan's step of that index has run.
func instancesAt(pl *plan.Plan, at int) map[plan.InstanceID]bool {
	there := map[plan.InstanceID]bool{}
	for _, i := range pl.Resident {
		there[i] = true
	}
	for _, s := range pl.Steps[:at+1] {
		switch s.Kind {
		case plan.Alloc:
			there[s.Instance] = true
		case plan.Free:
			delete(there, s.Instance)
		}
	}
	return there
}

// leftOver says how much of what is there is left over from the step before, and how to get rid of it; "" if
// it is little. A variable keeps the last batch's output until the next one replaces it, and gradients stay
// until they are cleared. What no backward pass reads is left to [neverRead].
func leftOver(p *plan.Problem, pl *plan.Plan, unread map[plan.BufferID]bool,
	there, before map[plan.InstanceID]bool, peak int64, u timeline.Units) string {
	buffersOf := map[timeline.AllocID]int{} // two for what is there twice: the step's own, and the one before
	for i := range p.Buffers {
		if a := p.Buffers[i].Alloc; a != timeline.NoAlloc {
			buffersOf[a]++
		}
	}
	var bytes, gradients int64
	for i := range there {
		b := &p.Buffers[pl.Instances[i].Buffer]
		twice := b.Life == plan.Inside && b.Alloc != timeline.NoAlloc && buffersOf[b.Alloc] > 1
		if !unread[pl.Instances[i].Buffer] && (twice || b.Life == plan.Carried && before[i]) {
			bytes += pl.Instances[i].Size
			if b.Category == timeline.Gradient {
				gradients += pl.Instances[i].Size
			}
		}
	}
	if float64(bytes) < leastShare*float64(peak) {
		return ""
	}
	how := "if the program does not need them, delete the variables that refer to them (del) before the " +
		"forward pass"
	switch {
	case gradients == bytes:
		how = "call optimizer.zero_grad() before the forward pass"
	case gradients > 0:
		how += ", and call optimizer.zero_grad() there"
	}
	return fmt.Sprintf(" %s of that are left over from the step before: %s.", u.Bytes(bytes), how)
}

// outside says how much of what is there autograd saved outside of modules, where no plan sees it; "" if it
// is little. The loss may be computed there, or a program calls forward() itself.
func outside(p *plan.Problem, pl *plan.Plan, there map[plan.InstanceID]bool, peak int64,
	u timeline.Units) string {
	if !p.SavesKnown {
		return ""
	}
	var bytes int64
	for i := range there {
		id := pl.Instances[i].Buffer
		if b := &p.Buffers[id]; b.Life == plan.Inside && !b.Saved && savedOutside(p, id) {
			bytes += pl.Instances[i].Size
		}
	}
	if float64(bytes) < outsideShare*float64(peak) {
		return ""
	}
	return fmt.Sprintf(" %s of that were computed outside of modules and are kept for the backward pass, "+
		"where no plan can move them: compute them in a module's forward, and call model(x) instead of "+
		"model.forward(x).", u.Bytes(bytes))
}

// twiceDerived says how much of what is there a backward pass made for a later one: a network that solves an
// equation has derivatives in its loss. It is "" if that is little. Between the two passes the program goes
// on with a forward pass, at least with its loss.
func twiceDerived(p *plan.Problem, pl *plan.Plan, there map[plan.InstanceID]bool, peak int64,
	u timeline.Units) string {
	if !p.SavesKnown {
		return ""
	}
	var forward []plan.OpID
	for i := range p.Ops {
		op := &p.Ops[i]
		if op.Phase == traces.PhaseForward && op.Name != plan.HostOp && op.Name != plan.SaveOp {
			forward = append(forward, plan.OpID(i))
		}
	}
	var bytes int64
	for i := range there {
		id := pl.Instances[i].Buffer
		b, touches := &p.Buffers[id], p.TouchesOf(id)
		if b.Life != plan.Inside || b.Saved || b.Category == timeline.Gradient || len(touches) == 0 {
			continue
		}
		first, last := touches[0].Op, touches[len(touches)-1].Op
		if p.Ops[first].Phase != traces.PhaseBackward || p.Ops[last].Phase != traces.PhaseBackward {
			continue
		}
		if k, _ := slices.BinarySearch(forward, first); k < len(forward) && forward[k] < last {
			bytes += pl.Instances[i].Size
		}
	}
	if float64(bytes) < outsideShare*float64(peak) {
		return ""
	}
	return fmt.Sprintf(" %s of that a backward pass made for a later one (create_graph=True), and plans "+
		"move only what forward passes save: compute derivatives of derivatives on fewer samples at a time.",
		u.Bytes(bytes))
}

// savedOutside reports whether an op outside of modules makes a buffer in the forward pass that the backward
// pass reads.
func savedOutside(p *plan.Problem, b plan.BufferID) bool {
	touches := p.TouchesOf(b)
	if len(touches) == 0 {
		return false
	}
	first := &p.Ops[touches[0].Op]
	return first.Phase == traces.PhaseForward && first.Module == "" &&
		p.Ops[touches[len(touches)-1].Op].Phase == traces.PhaseBackward
}
