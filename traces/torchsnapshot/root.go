package torchsnapshot

import (
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// setRoot takes the keys of the top level.
func (f *fold) setRoot(items []value) error {
	root := value{kind: kRoot}
	for i := 0; i+1 < len(items); i += 2 {
		k, v := items[i], items[i+1]
		if k.kind != kText {
			f.wrongType()
			continue
		}
		key := k.text()
		switch key {
		case tSegments, tHostSegments, tDeviceTraces, tHostTraces, tExternalAnnotations:
			v, err := f.container(v, root, key)
			if err != nil {
				return err
			}
			f.take(v)
		case tAllocatorSettings:
			f.setSettings(v)
		case tGmemtop:
			f.setOwn(v)
		default:
			if key != tCategories { // memory_viz adds these to what it saves
				f.unknownKey()
			}
			f.extra = append(f.extra, traces.Setting{Key: f.texts.string(key), Value: f.json(v)})
		}
	}
	return nil
}

// take notes that the list v belongs to the top level rather than to a dict under an unknown key.
func (f *fold) take(v value) {
	switch v.kind {
	case kSegments:
		f.taken.segments[v.ref] = true
	case kTraces:
		f.taken.traces[v.ref] = true
	case kAnnotations:
		f.taken.annotations = true
	}
}

// setSettings keeps the allocator's settings, each as JSON.
func (f *fold) setSettings(v value) {
	if v.kind != kDict {
		if v.kind != kNone {
			f.wrongType()
		}
		return
	}
	items := f.objects[v.ref].items
	for i := 0; i+1 < len(items); i += 2 {
		key := f.keyText(items[i])
		if key == "trace_alloc_overflowed" && items[i+1].kind == kBool && items[i+1].n == 1 {
			f.lose("history_overflowed", traces.DataLoss, 1,
				"the recorder ran over its limit and the oldest events are gone: record with a larger "+
					"max_entries")
		}
		f.settings = append(f.settings, traces.Setting{Key: key, Value: f.json(items[i+1])})
	}
}

// setOwn reads what Write adds to PyTorch's own keys.
func (f *fold) setOwn(v value) {
	if v.kind != kDict {
		return
	}
	items := f.objects[v.ref].items
	for i := 0; i+1 < len(items); i += 2 {
		x := items[i+1]
		n, isInt := x.asInt()
		switch key := f.keyText(items[i]); {
		case key == "host" && x.kind == kText:
			f.host.Host = f.texts.string(x.text())
		case key == "pid" && isInt:
			f.host.PID = maybe.NonNegative(n)
		case key == "rank" && isInt:
			f.host.Rank = maybe.NonNegative(n)
		case key == "world_size" && isInt:
			f.host.WorldSize = maybe.NonNegative(n)
		case key == "no_final_state":
			f.noState = true
		case key == "losses" && x.kind == kList:
			for _, l := range f.objects[x.ref].items {
				f.setLoss(l)
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
func (f *fold) setLoss(v value) {
	if v.kind != kList || len(f.objects[v.ref].items) != 4 {
		return
	}
	items := f.objects[v.ref].items
	severity, ok1 := items[1].asInt()
	count, ok2 := items[2].asInt()
	name := f.texts.string(items[0].text())
	if items[0].kind != kText || items[3].kind != kText || !ok1 || !ok2 || found[name] {
		return
	}
	severity = max(int64(traces.Info), min(severity, int64(traces.Fault)))
	f.lose(name, traces.Severity(severity), count, f.texts.string(items[3].text()))
}
