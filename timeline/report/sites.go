package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// newStackRows returns the largest rows of a breakdown by stack. Stacks that differ in C++ frames only are one call site to a
// user and
// one row, with the stack of the largest. Sites that would still read the same get the nearest caller that tells them apart,
// or else what they call: "forward softmax.py:14 < attend model.py:80".
func newStackRows(tr *traces.Trace, groups []timeline.Group, top int) []StackRow {
	rows := []StackRow{}
	at := map[string]int{}
	for _, g := range groups {
		stack := StackText(tr, g.Stack)
		key := siteKey(g.Name, stack)
		if i, ok := at[key]; ok {
			rows[i].Bytes += g.Bytes
			rows[i].Blocks += g.Blocks
			continue
		}
		at[key] = len(rows)
		rows = append(rows, StackRow{g.Name, stack, g.Bytes, g.Blocks})
	}
	slices.SortStableFunc(rows, func(a, b StackRow) int { return cmp.Compare(b.Bytes, a.Bytes) })
	rows = first(rows, top)
	tellApart(rows)
	return rows
}

// tellApart renames the rows of which another has the same site.
func tellApart(rows []StackRow) {
	twins := map[string][]int{}
	for i, r := range rows {
		twins[r.Site] = append(twins[r.Site], i)
	}
	for _, same := range twins {
		names := make([]string, len(same))
		for k, i := range same {
			names[k] = ownName(rows, same, i)
		}
		for k, i := range same {
			rows[i].Site = names[k]
		}
	}
}

// siteKey is equal for stacks that share their Python frames, and for no others; without such frames every frame counts.
func siteKey(name string, stack []string) string {
	var b strings.Builder
	b.WriteString(name)
	python := slices.ContainsFunc(stack, isPython)
	for _, f := range stack {
		if !python || isPython(f) {
			b.WriteByte(0)
			b.WriteString(f)
		}
	}
	return b.String()
}

func isPython(frame string) bool { return strings.Contains(frame, ".py:") }

// ownName returns the site of row i with the nearest Python frame that one of the other rows does not have, without its folder: a
// caller, or else a frame further in; C++ frames tell a user nothing.
func ownName(rows []StackRow, same []int, i int) string {
	site, stack := rows[i].Site, rows[i].Stack
	own := func(frame string) bool {
		return isPython(frame) && slices.ContainsFunc(same, func(j int) bool {
			return j != i && !slices.Contains(rows[j].Stack,
				frame)
		})
	}
	at := len(stack)
	for k, frame := range slices.Backward(stack) {
		if shortFrame(frame) == site {
			at = k
			break
		}
	}
	for _, frame := range slices.Backward(stack[:at]) {
		if own(frame) {
			return site + " < " + shortFrame(frame)
		}
	}
	for _, frame := range stack[min(at, len(stack)):] {
		if own(frame) {
			return shortFrame(frame) + " < " + site
		}
	}
	return site
}

// shortFrame drops the folders of a frame's file.
func shortFrame(s string) string {
	fn, file, ok := strings.Cut(s, " ")
	if !ok {
		return s
	}
	return fn + " " + file[strings.LastIndexAny(file, "/\\")+1:]
}
