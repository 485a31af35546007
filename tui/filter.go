package tui

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// filter selects the blocks of interest on a device, and keeps the ones it found.
type filter struct {
	*leaf.Filter
	device *timeline.Device
	found  foundMsg
}

// foundMsg brings the blocks that a filter selects, for n and N.
type foundMsg struct {
	text   string
	device *timeline.Device
	blocks []timeline.AllocID
	err    error
}

// open filters another device; nil for none.
func (f *filter) open(d *timeline.Device) tea.Cmd {
	f.device = d
	return f.find()
}

// set applies a filter at a moment; an invalid one is an error and changes nothing.
func (f *filter) set(text string, at timeline.Moment) (tea.Cmd, error) {
	q, err := parseQuery(text)
	if err != nil {
		return nil, err
	}
	q.LiveAt = at
	f.Query, f.QueryText = q, text
	return f.find(), nil
}

// clear takes the filter away.
func (f *filter) clear() { *f.Filter = leaf.Filter{} }

// at searches again for the blocks that are alive at the cursor, if the filter asks for those.
func (f *filter) at(m timeline.Moment) tea.Cmd {
	if !f.Query.Live || f.Query.LiveAt == m {
		return nil
	}
	f.Query.LiveAt = m
	return f.find()
}

// find searches for the filter's blocks, for n and N.
func (f *filter) find() tea.Cmd {
	if f.QueryText == "" || f.device == nil {
		f.found = foundMsg{}
		return nil
	}
	q, d, text := f.Query, f.device, f.QueryText
	q.Sort, q.Descending = sites.SortStart, false
	return func() tea.Msg {
		blocks, err := sites.Search(context.Background(), d, q)
		slices.Sort(blocks)
		return foundMsg{text, d, blocks, err}
	}
}

// take keeps the search's result, unless it belongs to an earlier filter or device.
func (f *filter) take(msg foundMsg) {
	if msg.text == f.QueryText && msg.device == f.device {
		f.found = msg
	}
}

// count says how many blocks a filter selects; ok is false while that is unknown, and if the search failed.
func (f *filter) count(text string) (n string, ok bool) {
	return leaf.Count(int64(len(f.found.blocks))), f.found.text == text && f.found.err == nil
}

// next returns the filter's block after the selected one, or before it, with a message. It is NoAlloc if
// there is none, or none yet, or if the search failed.
func (f *filter) next(selected timeline.AllocID, by int) (to timeline.AllocID, say leaf.ToastMsg) {
	if f.found.text != f.QueryText || f.found.device != f.device {
		return timeline.NoAlloc, leaf.ToastMsg{Text: "still searching: try again in a moment"}
	}
	if err := f.found.err; err != nil {
		return timeline.NoAlloc, leaf.ToastMsg{Text: err.Error(), Error: true}
	}
	list := f.found.blocks
	if len(list) == 0 {
		return timeline.NoAlloc, leaf.ToastMsg{Text: "no block matches " + f.QueryText, Error: true}
	}
	i := sort.Search(len(list), func(i int) bool { return list[i] >= selected })
	switch {
	case selected == timeline.NoAlloc:
		i = 0
	case by > 0 && i < len(list) && list[i] == selected:
		i++
	case by < 0:
		i--
	}
	i = (i + len(list)) % len(list)
	text := fmt.Sprintf("match %s of %s", leaf.Count(int64(i+1)), leaf.Count(int64(len(list))))
	return list[i], leaf.ToastMsg{Text: text}
}

// prompt returns the dialog to type a filter.
func (f *filter) prompt() *dialog.Filter {
	parse := func(text string) error {
		_, err := parseQuery(text)
		return err
	}
	return dialog.NewFilter(f.QueryText, parse, func(text string, w int) string {
		if text == "" {
			return filterHelp(w)
		}
		if n, ok := f.count(text); ok {
			return " " + n + " blocks"
		}
		return ""
	})
}

// logits are what the sentences on top call so.
var logits = sites.Called{Word: "logits", Blocks: func(d *timeline.Device) func(timeline.AllocID) bool {
	return autopsy.Logits(d, autopsy.At(d))
}}

// parseQuery parses a filter. Beyond timeline's terms it knows site:N and stack:N, which views create when a
// call site or one of its stacks is opened: N is a stack, -1 for blocks without one.
func parseQuery(text string) (sites.Query, error) {
	var rest []string
	var of sites.Query
	for _, term := range strings.Fields(text) {
		kind, n, _ := strings.Cut(term, ":")
		if kind != "site" && kind != "stack" {
			rest = append(rest, term)
			continue
		}
		id, err := strconv.ParseInt(n, 10, 32)
		if err != nil {
			return sites.Query{}, fmt.Errorf("%s is not the number of a stack", term)
		}
		of.Stack, of.BySite, of.ByStack = traces.StackID(id), kind == "site", kind == "stack"
	}
	q, err := sites.ParseQuery(strings.Join(rest, " "))
	q.Called = &logits
	q.Stack, q.BySite, q.ByStack = of.Stack, of.BySite, of.ByStack
	return q, err
}

// filterTerms are the terms of filters, most useful first; the prompt shows as many as fit.
var filterTerms = []string{
	"a word of stack, module or category", "size>1MiB", "life<5ms", "live", "cat:activation",
	"0x7f3a00001200, the blocks at an address", "leaked", "sort:-size",
}

// filterHelp returns the terms that fit in w cells.
func filterHelp(w int) string {
	text := filterTerms[0]
	for _, t := range filterTerms[1:] {
		if canvas.Width(text)+3+canvas.Width(t) > w {
			break
		}
		text += " · " + t
	}
	return text
}
