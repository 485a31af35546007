package tui

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/live"
)

// everywhere stands for the keys that are not a view's own.
const everywhere = "everywhere"

// boundKeys returns what each key is said to do, by key and view.
func boundKeys(t *testing.T) map[string]map[string]string {
	t.Helper()
	keys := map[string]map[string]string{}
	add := func(view, desc string, bound []string) {
		for _, k := range bound {
			if keys[k] == nil {
				keys[k] = map[string]string{}
			}
			keys[k][view] = desc
		}
	}
	take := func(d *driver, view string) {
		for _, b := range d.own() {
			add(view, b.Help().Desc, b.Keys())
		}
	}
	planner := &network{answers: map[string]*replay.Comparison{}}
	open := func(view leaf.ID, tls ...*timeline.Timeline) *driver {
		return start(t, Options{Loader: loaderOf(tls...), View: view, Planner: planner}, 200, 60)
	}
	gpt, both := sample(t, "gpt-cpu"), []*timeline.Timeline{sample(t, "resnet18-cpu"), sample(t, "gpt-cpu")}
	for _, id := range []leaf.ID{
		leaf.Overview, leaf.Timeline, leaf.Peak, leaf.Iterations, leaf.Allocations, leaf.OOM, leaf.Trace,
	} {
		d := open(id, gpt)
		take(d, d.m.tabs.view().Name())
	}
	take(open(leaf.Diff, both...), "Diff")
	take(open(leaf.Segments, training(t, "made-up.gmt", 256<<20)), "Segments")
	d := open(leaf.Managers, planner.timeline(t))
	take(d, "Managers")
	d.press("enter")
	take(d, "Inside a plan")
	f := &jobFeed{look: live.Look{Title: "gpt2.py"}}
	job := start(t, Options{Feed: f}, 200, 60)
	f.tell(job, func(l *live.Look) {
		l.State, l.Output = live.Running, []string{"step 3"}
		l.Capture.Connected, l.Capture.Depths = true, make([]live.Depth, 2)
		l.Steps = append(l.Steps, live.Step{Index: 3, Duration: maybe.Known(300e6),
			Bytes: maybe.Known(1 << 20)})
	})
	take(job, "Live")
	f.tell(job, func(l *live.Look) { l.Group = aGroup() })
	job.press("7")
	take(job, "Ranks")
	for i := range d.m.actions {
		a := &d.m.actions[i]
		add(everywhere, a.binding.Help().Desc, a.binding.Keys())
	}
	return keys
}

// aGroup is two ranks of a training on two machines.
func aGroup() *runs.Group {
	return runs.NewGroup([]runs.GroupRank{{ID: 1, Rank: maybe.Known(0), Host: "a"},
		{ID: 2, Rank: maybe.Known(1), Host: "b"}})
}

// same lists descriptions that say one thing of different places: an arrow chooses a row, a block or a
// segment.
var same = [][]string{
	{"one column back", "one column forward", "block above, below", "buffer", "category", "row", "segment",
		"block",
		"time", "box", "row up", "row down", "scroll", "lever", "step", "rank"},
	{"half a window back", "half a window forward", "page", "first, last row", "first, last segment",
		"to the start", "to the end", "top, bottom"},
	{"zoom", "zoom in at the cursor", "zoom out", "larger", "smaller"},
	{"one event back", "one event forward", "op"},
	{"go to its start", "in the timeline", "its blocks", "show it at that moment", "look inside",
		"show it",
		"show its peak", "what holds it", "zoom to it"},
	{"back", "back: search, mark, zoom, view before"},
	{"each fills its line", "each over the whole axis", "one scale for all", "one time scale"},
	{"by category", "by manager", "by peak", "by size", "by step", "by rank"},
	{"on/off", "choose"},
	{"group by", "previous grouping", "holders", "ranks", "leaks"},
	{"compare this moment with the marked one", "side by side"},
	{"peak", "to the peak"},
	{"the whole recording", "whole step", "all steps", "the last steps"},
	{"next stall", "next block found"},
	{"reverse order", "swap A and B"},
}

// exceptions are keys that mean something else in one view, by view and key, with the reason.
var exceptions = map[string]string{
	"Managers left": budgetKeys, "Managers right": budgetKeys, "Managers h": budgetKeys,
	"Managers l": budgetKeys,
	"Managers +": budgetKeys, "Managers =": budgetKeys, "Managers -": budgetKeys, "Managers _": budgetKeys,
}

const budgetKeys = "plans have no moments to move through: the budget is the axis"

// TestAKeyMeansOneThing finds keys that do one thing in a view and something else in another.
func TestAKeyMeansOneThing(t *testing.T) {
	meaning := func(desc string) string {
		for _, group := range same {
			if slices.Contains(group, desc) {
				return group[0]
			}
		}
		return desc
	}
	keys, used := boundKeys(t), map[string]bool{}
	for _, view := range []string{
		"Overview", "Timeline", "Peak", "Segments", "Diff", "Managers", "Inside a plan", "Live", "Ranks",
	} {
		bound := func(by map[string]string) bool { return by[view] != "" }
		if !slices.ContainsFunc(slices.Collect(maps.Values(keys)), bound) {
			t.Errorf("%s has no keys in this test", view)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		by := map[string][]string{}
		for view, desc := range keys[k] {
			if exceptions[view+" "+k] == "" {
				by[meaning(desc)] = append(by[meaning(desc)], fmt.Sprintf("%q in %s", desc, view))
			}
		}
		for view := range keys[k] {
			used[view+" "+k] = len(keys[k]) > 1
		}
		if len(by) > 1 {
			all := slices.Concat(slices.Collect(maps.Values(by))...)
			slices.Sort(all)
			t.Errorf("%s is %s", k, strings.Join(all, ", "))
		}
	}
	for _, where := range slices.Sorted(maps.Keys(exceptions)) {
		if !used[where] {
			t.Errorf("%s is no exception any more: no other view has the key", where)
		}
	}
}
