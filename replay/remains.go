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
