package torchsnapshot

import (
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// top is what the top level says besides its lists.
type top struct {
	settings []traces.Setting
	extra    []traces.Setting
	host     traces.Process
	noState  bool // our own writer says that its empty list of segments stands for none
}

// setSettings keeps the allocator's settings, each as JSON.
func (t *top) setSettings(vs *values, v value) {
	if v.kind != kDict {
		if v.kind != kNone {
			vs.wrongType()
		}
		return
	}
	items := vs.objects[v.ref].items
	for i := 0; i+1 < len(items); i += 2 {
		key := vs.keyText(items[i])
		if key == "trace_alloc_overflowed" && items[i+1].kind == kBool && items[i+1].n == 1 {
			vs.lose("history_overflowed", traces.DataLoss, 1,
				"the recorder ran over its limit and the oldest events are gone: record with a larger "+
					"max_entries")
		}
		t.settings = append(t.settings, traces.Setting{Key: key, Value: vs.json(items[i+1])})
	}
}

// setOwn reads what Write adds to PyTorch's own keys.
func (t *top) setOwn(vs *values, v value) {
	if v.kind != kDict {
		return
	}
	items := vs.objects[v.ref].items
	for i := 0; i+1 < len(items); i += 2 {
		x := items[i+1]
		n, isInt := x.asInt()
		switch key := vs.keyText(items[i]); {
		case key == "host" && x.kind == kText:
			t.host.Host = vs.texts.string(x.text())
		case key == "pid" && isInt:
			t.host.PID = maybe.NonNegative(n)
		case key == "rank" && isInt:
			t.host.Rank = maybe.NonNegative(n)
		case key == "world_size" && isInt:
			t.host.WorldSize = maybe.NonNegative(n)
		case key == "no_final_state":
			t.noState = true
		case key == "losses" && x.kind == kList:
			for _, l := range vs.objects[x.ref].items {
				vs.setLoss(l)
			}
		}
	}
}

// found names the losses that reading Write's output finds again.
var found = map[string]bool{
	"unknown_keys": true, "unknown_actions": true, "unknown_block_states": true,
	"events_without_action": true, "history_overflowed": true, "clock_steps_back": true,
}

// setLoss takes a loss that the trace had when it was written: name, severity, count and detail.
func (vs *values) setLoss(v value) {
	if v.kind != kList || len(vs.objects[v.ref].items) != 4 {
		return
	}
	items := vs.objects[v.ref].items
	severity, ok1 := items[1].asInt()
	count, ok2 := items[2].asInt()
	name := vs.texts.string(items[0].text())
	if items[0].kind != kText || items[3].kind != kText || !ok1 || !ok2 || found[name] {
		return
	}
	severity = max(int64(traces.Info), min(severity, int64(traces.Fault)))
	vs.lose(name, traces.Severity(severity), count, vs.texts.string(items[3].text()))
}
