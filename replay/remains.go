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
)

// leastShare is the share of a plan's peak from which on a category of memory is named.
const leastShare = 0.02

// Remains says what is in memory at a plan's peak, by category, the largest first: "9.3 MiB of activations
// and 4.2 MiB of parameters". where is the op that runs there, as "where aten::mm runs", or the next one if
// the peak lies between two ops; "" if none does.
func Remains(p *plan.Problem, pl *plan.Plan, u timeline.Units) (text, where string) {
	p, err := pl.Of(p)
	if err != nil {
		return "", ""
	}
	held := map[timeline.Category]int64{}
	count := func(i plan.InstanceID, sign int64) {
		x := pl.Instances[i]
		held[p.Buffers[x.Buffer].Category] += sign * x.Size
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
	between := false
	for _, s := range pl.Steps[at+1:] {
		if s.Kind != plan.Run && s.Kind != plan.Again {
			continue
		}
		name := p.Ops[s.Op].Name
		if name == plan.HostOp || name == plan.SaveOp || name == plan.LoadOp {
			between = true
			continue
		}
		if where = "where " + report.Printable(name) + " runs"; between {
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
	if n := len(words); n > 1 {
		words = append(words[:n-2:n-2], words[n-2]+" and "+words[n-1])
	}
	return strings.Join(words, ", "), where
}

// LeftOver says how much of what is in memory at a plan's peak is left over from the step before, and how to
// get rid of it, as a sentence that begins with a space; "" if it is little. A variable keeps the last
// batch's output until the next one replaces it, and gradients stay until they are cleared.
func LeftOver(p *plan.Problem, pl *plan.Plan, u timeline.Units) string {
	p, err := pl.Of(p)
	if err != nil {
		return ""
	}
	peak, at := pl.PeakLive()
	there, before := map[plan.InstanceID]bool{}, map[plan.InstanceID]bool{}
	for _, i := range pl.Resident {
		there[i], before[i] = true, true
	}
	for _, s := range pl.Steps[:at+1] {
		switch s.Kind {
		case plan.Alloc:
			there[s.Instance] = true
		case plan.Free:
			delete(there, s.Instance)
		}
	}
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
		if twice || b.Life == plan.Carried && before[i] {
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
