package managers

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/replay"
)

// headway is how far planning with one manager is.
type headway struct {
	planning bool // it is being planned with, or waits its turn
	waits    bool
	percent  int // 0 if unknown
	elapsed  time.Duration
	near     string // how near its bound its best plan so far is, "" if unknown
}

// String returns it in a few words: "34 %, 12 s, within 4 % of the bound".
func (h headway) String() string {
	var parts []string
	if h.percent > 0 {
		parts = append(parts, strconv.Itoa(h.percent)+" %")
	}
	if h.elapsed >= time.Second {
		parts = append(parts, elapsed(h.elapsed))
	}
	if h.near != "" {
		parts = append(parts, h.near)
	}
	return strings.Join(parts, ", ")
}

// elapsed prints a duration to the second.
func elapsed(d time.Duration) string {
	n := int(d.Seconds())
	if n >= 60 {
		return fmt.Sprintf("%d min %d s", n/60, n%60)
	}
	return fmt.Sprintf("%d s", n)
}

// progressOf returns how far planning with a manager is.
func (p *planning) progressOf(name string) headway {
	r := p.run
	if r == nil || r.halted || !slices.Contains(r.names, name) {
		return headway{}
	}
	u, begun := r.progress[name]
	if u.Done {
		return headway{}
	}
	h := headway{planning: true, waits: !begun}
	if u.Total > 0 {
		h.percent = int(min(100*float64(u.Finished)/float64(u.Total), 99))
	}
	if !u.Began.IsZero() {
		h.elapsed = time.Since(u.Began)
	}
	if u.Bounded {
		h.near = replay.Near(u.Gap)
	}
	return h
}

// underWay names the manager that has planned for longest: "joint is still planning (34 %, 12 s)".
func (p *planning) underWay(names []string) string {
	type underway struct {
		name string
		headway
	}
	var list []underway
	for _, name := range names {
		if h := p.progressOf(name); h.planning && !h.waits {
			list = append(list, underway{name, h})
		}
	}
	slices.SortStableFunc(list, func(a, b underway) int { return cmp.Compare(b.elapsed, a.elapsed) })
	if len(list) == 0 || list[0].elapsed < time.Second { // what takes a blink need not be named
		return ""
	}
	return list[0].name + " is still planning (" + list[0].String() + ")"
}
