package live

import (
	"iter"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// A tensor that ops read again, that autograd does not save, and that the program refers to after the forward
// pass (logits that a model returns, say) may be changed in place by the training loop before the backward
// pass. Without a plan that changes no gradient. With one, the ops would read the changed bytes.
//
// Approach: the process also notes the ops that made such a tensor. It runs them only if the tensor's version
// has changed by the time it is read. All they read is saved for backward or persistent, so noting them holds
// no memory. What has no such ops is copied if it is small. Otherwise nothing that reads it runs again.
//
// Rejected: planning as if such a tensor were gone (a language model's last layer would always run again, for
// programs that hardly exist); a lazy copy (torch._lazy_clone: kernels that only read make it a copy, and on
// a GPU that copy does not wait for other streams).

// A tensor is small up to the largest of these: a thousandth of what the step holds, within these bounds.
const (
	smallShare = 1000
	smallLeast = 4 << 10
	smallMost  = 1 << 20
)

// small returns up to how many bytes the process copies a tensor that the program may change.
func small(p *plan.Problem) int64 {
	return min(max(p.Held()/smallShare, smallLeast), smallMost)
}

// pinExposed makes ops run only once if they read something that the program may change and that is neither
// small nor can be made again. Nothing happens if a plan for the problem cannot be encoded.
func pinExposed(p *plan.Problem) {
	e := encoder{p: p}
	if e.number() != nil {
		return
	}
	most := small(p)
	for i := range p.Ops {
		o := plan.OpID(i)
		if !p.Ops[i].Rerunnable {
			continue
		}
		for _, x := range p.AccessesOf(o) {
			var ops []plan.OpID
			if x.Mode == plan.Read && p.Buffers[x.Buffer].Size > most && e.exposed(x.Buffer, o) &&
				!e.backup(x.Buffer, o, nil, &ops) {
				p.Ops[i].Rerunnable = false
			}
		}
	}
}

// mostBackupOps bounds the ops that make one such tensor again, which the process notes in every step.
const mostBackupOps = 4

// backupOps returns the ops that make each tensor that the program may change before it is read again, from
// what surely stays as it is.
func (e *encoder) backupOps() (all [][]plan.OpID) {
	again := map[plan.OpID]bool{} // ops that the plan reruns, or that are in another backup
	for _, r := range e.pl.Reruns {
		for _, o := range r.Ops {
			again[o] = true
		}
	}
	done := map[plan.BufferID]bool{}
	for _, r := range e.pl.Reruns {
		for _, o := range r.Ops {
			for _, x := range e.p.AccessesOf(o) {
				b := x.Buffer
				if x.Mode != plan.Read || done[b] || !e.exposed(b, o) {
					continue
				}
				done[b] = true
				var ops []plan.OpID
				if e.backup(b, o, again, &ops) {
					for _, op := range ops {
						again[op] = true
					}
					slices.Sort(ops)
					all = append(all, ops)
				}
			}
		}
	}
	return all
}

// backup adds the ops that made buffer b's value before op at, and what they read of it, to ops. It returns
// false if there are none, or too many.
func (e *encoder) backup(b plan.BufferID, at plan.OpID, again map[plan.OpID]bool, ops *[]plan.OpID) bool {
	makers, ok := e.p.Producer(b, at)
	if !ok || len(makers) != 1 {
		return false
	}
	o := makers[0]
	if slices.Contains(*ops, o) {
		return true
	}
	if e.nth[o] == unseen || !e.p.Ops[o].Rerunnable || again[o] || len(*ops) == mostBackupOps {
		return false
	}
	*ops = append(*ops, o)
	for _, x := range e.p.AccessesOf(o) {
		if x.Buffer == b {
			continue
		}
		if x.Mode != plan.Read || !e.stays(x.Buffer, o) && !e.backup(x.Buffer, o, again, ops) {
			return false
		}
	}
	return true
}

// stays reports whether a buffer that op at reads has the same bytes in the backward pass, or autograd raises
// an error.
func (e *encoder) stays(b plan.BufferID, at plan.OpID) bool {
	return e.own(b, at) || e.savedBefore(b, at)
}

// own reports whether a buffer is the program's own, such as a parameter. A buffer that the step makes and
// that the recording does not free counts as persistent, too.
func (e *encoder) own(b plan.BufferID, at plan.OpID) bool {
	_, made := e.p.Producer(b, at)
	return e.p.Buffers[b].Life == plan.Persistent && !made
}

// savedBefore reports whether a buffer was saved before op at: autograd raises an error if the program
// changes it before the backward pass.
func (e *encoder) savedBefore(b plan.BufferID, at plan.OpID) bool {
	return slices.ContainsFunc(e.p.TouchesOf(b), func(t plan.Touch) bool {
		return t.Op < at && e.p.Ops[t.Op].Name == plan.SaveOp
	})
}

// exposed reports whether the program may change a buffer between op at and the backward pass: autograd does
// not save it, and something else keeps it alive.
func (e *encoder) exposed(b plan.BufferID, at plan.OpID) bool {
	all := plan.OpID(len(e.p.Ops))
	if e.own(b, at) || e.savedBefore(b, all) {
		return false
	}
	x := &e.p.Buffers[b]
	end := x.End
	if x.Life == plan.Carried && at >= x.Start { // the next step frees it
		end = all
	}
	for ; at < end; at++ {
		if e.p.Ops[at].Name == plan.LoadOp {
			return true
		}
	}
	return false
}

// noted returns the ops of each rerun and of each backup.
func (e *encoder) noted() iter.Seq[[]plan.OpID] {
	return func(yield func([]plan.OpID) bool) {
		for _, r := range e.pl.Reruns {
			if !yield(r.Ops) {
				return
			}
		}
		for _, ops := range e.backups {
			if !yield(ops) {
				return
			}
		}
	}
}
