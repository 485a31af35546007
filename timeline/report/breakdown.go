package report

import (
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
)

// Breakdown is who holds the memory of one moment, such as the peak. It has every category that holds bytes;
// the other lists are limited to Options.Top rows.
type Breakdown struct {
	ByCategory []CategoryRow `json:"by_category"`
	BySite     []StackRow    `json:"by_site"`
	ByStack    []StackRow    `json:"by_stack"`
	ByModule   []GroupRow    `json:"by_module"`
	BySize     []GroupRow    `json:"by_size"`
}

// CategoryRow is a category's share of the peak. Name is torch.profiler's name of the category, or says that
// the bytes appear only in the source's own total.
type CategoryRow struct {
	Name      string `json:"name"`
	Bytes     int64  `json:"bytes"`
	Requested *int64 `json:"requested_bytes"`
	Blocks    int    `json:"blocks"`
	Inferred  bool   `json:"inferred"`
}

// StackRow is a stack's or a call site's share of the peak. Stack is outermost frame first, empty if none was
// recorded; for a call site it is the stack of the largest block.
type StackRow struct {
	Site      string   `json:"site"`
	Stack     []string `json:"stack"`
	Bytes     int64    `json:"bytes"`
	Requested *int64   `json:"requested_bytes"`
	Blocks    int      `json:"blocks"`
}

// GroupRow is a module's or size class's share of the peak.
type GroupRow struct {
	Name      string `json:"name"`
	Bytes     int64  `json:"bytes"`
	Requested *int64 `json:"requested_bytes"`
	Blocks    int    `json:"blocks"`
	Inferred  bool   `json:"inferred"`
}

// blocks returns how many blocks are held.
func (b *Breakdown) blocks() int {
	n := 0
	for i := range b.ByCategory {
		n += b.ByCategory[i].Blocks
	}
	return n
}

// BreakdownAt returns who holds what is allocated at a moment, with at most top rows in each list but that of
// the categories.
func BreakdownAt(d *timeline.Device, at timeline.Moment, top int) Breakdown {
	b := Breakdown{ByCategory: []CategoryRow{},
		BySite:  newStackRows(d, sites.Breakdown(d, at, sites.BySite), top),
		ByStack: newStackRows(d, sites.Breakdown(d, at, sites.ByStack), top)}
	for _, g := range sites.Breakdown(d, at, sites.ByCategory) {
		if g.Bytes > 0 { // g.Name, since bytes that only the source's total shows have no category
			b.ByCategory = append(b.ByCategory, CategoryRow{g.Name, g.Bytes, requestedOf(d, g), g.Blocks,
				g.Inferred})
		}
	}
	rows := func(by sites.By) []GroupRow {
		out := []GroupRow{}
		for _, g := range first(sites.Breakdown(d, at, by), top) {
			out = append(out, GroupRow{g.Name, g.Bytes, requestedOf(d, g), g.Blocks, g.Inferred})
		}
		return out
	}
	b.ByModule, b.BySize = rows(sites.ByModule), rows(sites.BySize)
	return b
}

// newStackRows returns the largest rows of a breakdown by site or stack.
func newStackRows(d *timeline.Device, groups []sites.Group, top int) []StackRow {
	rows := []StackRow{}
	for _, g := range first(groups, top) {
		rows = append(rows, StackRow{g.Name, StackText(d.Timeline().Places(), g.Stack), g.Bytes,
			requestedOf(d, g), g.Blocks})
	}
	return rows
}

// requestedOf returns the requested bytes of a group, nil if the source does not record them.
func requestedOf(d *timeline.Device, g sites.Group) *int64 {
	if !d.RequestedKnown() {
		return nil
	}
	return &g.Requested
}

func first[T any](s []T, n int) []T { return s[:min(n, len(s))] }
