package joint

import (
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// version is the problem as it is, or with large buffers cut into sections, and what plans for it leave out.
type version struct {
	p        *plan.Problem
	section  int64           // bytes; 0 if buffers are whole
	sections []plan.BufferID // for each whole buffer, its first section; one more entry for the end
	m        *model
	off      mechanisms
}

// sectionSize returns the least multiple of a page by a power of two at which the problem has few enough
// sections. It returns 0 if cutting changes nothing or takes too long, if there are no copy engines (a target
// that maps memory by pages has some), and for eager PyTorch, which moves a tensor as a whole.
func sectionSize(m *model, off mechanisms) int64 {
	p, par := m.p, &m.params
	if off.sections || p.EagerOnly || m.inline || p.Kind < traces.Accesses ||
		m.n+len(p.Buffers) > par.sectionRows || len(p.Buffers) > par.sectionBuffers {
		return 0
	}
	for size := par.page; ; size *= 2 {
		var count, cut int64
		for i := range p.Buffers {
			if b := &p.Buffers[i]; b.Life != plan.Persistent {
				count += (b.Size + size - 1) / size
				if b.Size > size {
					cut++
				}
			}
		}
		if cut == 0 {
			return 0
		}
		if count <= par.mostSections+int64(len(p.Buffers)) {
			return size
		}
	}
}

// sectionsOf returns, for each whole buffer, its first section; one more entry for the end.
func sectionsOf(whole, cut *plan.Problem) []plan.BufferID {
	first := make([]plan.BufferID, 0, len(whole.Buffers)+1)
	at := plan.BufferID(0)
	for i := range whole.Buffers {
		first = append(first, at)
		for left := whole.Buffers[i].Size; ; at++ {
			if left -= cut.Buffers[at].Size; left <= 0 {
				break
			}
		}
		at++
	}
	return append(first, at)
}
