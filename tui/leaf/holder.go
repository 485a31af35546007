package leaf

import (
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/sites"
)

// Holder is a group of blocks that are held at a moment. Logits is set if its largest block is logits, the
// name that sentences may use for it.
type Holder struct {
	sites.Group
	Logits bool
}

// Holders returns what holds memory at a moment, the largest first, in time linear in the number of blocks.
func Holders(d *timeline.Device, m timeline.Moment, by sites.By) []Holder {
	var logits func(timeline.AllocID) bool
	if by == sites.BySite || by == sites.ByStack {
		logits = autopsy.Logits(d, m)
	}
	groups := sites.Breakdown(d, m, by)
	list := make([]Holder, len(groups))
	for i, g := range groups {
		list[i] = Holder{g, logits != nil && logits(g.Largest)}
	}
	return list
}
