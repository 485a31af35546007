package torchsnapshot

import (
	"github.com/gmemtop/gmemtop/traces"
)

// Folding: a snapshot of ten million trace entries takes fifty gigabytes as objects and half a gigabyte as
// columns, so no objects are made. Both front ends (pickle and JSON) know a container's role as soon as it is
// opened, from the role of the container around it (the key "frames" of a trace entry holds a stack, an
// element of a stack is a frame), and pass on its items when they are complete. Opening a trace entry makes a
// row, and setting its items writes into that row; a stack becomes its index, a frame its index. A container
// without a role (settings, unknown keys) becomes a plain object and finally JSON.
//
// A container may get its role late: if LIST or DICT make it, which know their items first, or if the memo
// shares it with a place without a role. adopt then makes the row from the plain object, once.
//
// Rejected: building objects and walking them afterwards (memory), and recognising entries by their shape
// (the order of keys is not fixed, and any of them may be missing).

// fold takes containers as they open and close, and makes rows of those that have a role.
type fold struct {
	values
	segmentTable
	top
	machine func() int64 // bytes of the front end's stack and memo
	checked int64        // see room

	events  eventTable
	traces  []traceList
	details detailTable
	streams streamTable
	notes   annotations

	// What the top level has: index 0 is for devices, 1 for the host.
	opened, taken struct {
		segments, traces [2]bool
		annotations      bool
	}
	lastChild kind // the container of the top level that was opened last
}

type traceList struct {
	first uint32 // row of its first event; it ends where the next trace begins
	host  uint32
}

func newFold(offset func() int64) *fold {
	f := &fold{
		values: values{
			losses: losses{}, offset: offset, texts: newTexts(), poolIndex: map[traces.Pool]uint32{},
		},
		machine: func() int64 { return 0 },
	}
	f.stacks.init()
	f.frames.init()
	f.details.init()
	f.streams.init()
	return f
}

// childOf returns the role of a container that opens as an element of a list, or under key of a dict, of kind
// parent.
func childOf(parent kind, key text, dict bool) kind {
	if dict {
		switch parent {
		case kSegments:
			return kSegment
		case kBlocks:
			return kBlock
		case kTrace, kTraces: // a bare list of entries is the trace of one device
			return kEvent
		case kStack:
			return kFrame
		case kAnnotations:
			return kAnnotation
		}
		return kDict
	}
	switch {
	case parent == kTraces:
		return kTrace
	case parent == kRoot && (key == tSegments || key == tHostSegments):
		return kSegments
	case parent == kRoot && (key == tDeviceTraces || key == tHostTraces):
		return kTraces
	case parent == kRoot && key == tExternalAnnotations:
		return kAnnotations
	case parent == kSegment && key == tBlocks:
		return kBlocks
	case key == tFrames && (parent == kSegment || parent == kBlock || parent == kEvent), parent == kEvent &&
		key == tForwardFrames:
		return kStack
	}
	return kList
}

// hostKey returns 1 for the keys of pinned host memory.
func hostKey(key text) uint32 {
	if key == tHostSegments || key == tHostTraces {
		return 1
	}
	return 0
}

// open makes an empty container of kind k inside parent; key is its key if parent is a dict.
func (f *fold) open(k kind, parent value, key text) (value, error) {
	if parent.kind == kRoot || k == kSegments {
		f.lastChild = k
	}
	switch k {
	case kEvent:
		return f.openEvent(parent)
	case kTrace:
		if len(f.traces) == maxRows {
			return value{}, limitf("more than %d traces", maxRows)
		}
		f.traces = append(f.traces, traceList{first: f.events.n, host: parent.ref})
		return value{kind: kTrace, ref: uint32(len(f.traces) - 1)}, nil
	case kSegment:
		return f.openSegment(parent)
	case kBlocks:
		f.blockLists = append(f.blockLists, blockList{first: int32(len(f.blocks))})
		return value{kind: kBlocks, ref: uint32(len(f.blockLists) - 1)}, nil
	case kBlock:
		return f.openBlock(parent)
	case kStack:
		return f.stacks.open()
	case kFrame:
		return f.frames.open()
	case kAnnotation:
		return f.notes.open()
	case kSegments:
		return f.openOnce(k, hostKey(key), &f.opened.segments[hostKey(key)], len(f.segments) > 0)
	case kTraces:
		return f.openOnce(k, hostKey(key), &f.opened.traces[hostKey(key)], f.events.n > 0)
	case kAnnotations:
		return f.openOnce(k, 0, &f.opened.annotations, len(f.notes) > 0)
	case kRoot:
		return value{kind: kRoot}, nil
	}
	return f.openObject(k, nil)
}

// openOnce refuses a second non-empty list of one sort, since their rows would be mixed.
func (f *fold) openOnce(k kind, host uint32, seen *bool, filled bool) (value, error) {
	if *seen && filled {
		return value{}, limitf("the snapshot has %s twice", k)
	}
	*seen = true
	return value{kind: k, ref: host}, nil
}

// set puts items, keys and values by turns, into a dict.
func (f *fold) set(target value, items []value) error {
	switch target.kind {
	case kEvent:
		return f.setEvent(target.ref, items)
	case kFrame:
		return f.setFrame(target.ref, items)
	case kBlock:
		return f.setBlock(target.ref, items)
	case kSegment:
		return f.setSegment(target.ref, items)
	case kAnnotation:
		return f.notes.set(&f.values, target.ref, items)
	case kRoot:
		return f.setRoot(items)
	case kDict:
		return f.addToObject(target, items)
	}
	return limitf("keys are set on %s", target.kind)
}

// append puts items at the end of a list.
func (f *fold) append(target value, items []value) error {
	want := childOf(target.kind, tEmpty, target.kind != kTraces)
	switch target.kind {
	case kStack:
		return f.extendStack(target.ref, items)
	case kList:
		return f.addToObject(target, items)
	case kSegments, kBlocks, kTraces, kTrace, kAnnotations:
		for _, v := range items {
			if v.kind == want || v.kind == kEvent && target.kind == kTraces {
				continue // its row was made when it was opened
			}
			if _, err := f.adopt(v, want, target, tEmpty); err != nil {
				return err
			}
		}
		return nil
	}
	return limitf("elements are appended to %s", target.kind)
}

// adopt returns v as the container want inside parent under key. It makes rows from a plain object; anything
// else that is not such a container is counted and becomes None.
func (f *fold) adopt(v value, want kind, parent value, key text) (value, error) {
	switch {
	case v.kind == want:
		return v, nil
	case want.isDict() && v.kind == kDict, want.isList() && (v.kind == kList || v.kind == kTuple):
	case want.isList() && v.kind == kPool && want != kStack:
		f.wrongType()
		return value{kind: kNone}, nil
	default:
		if v.kind != kNone {
			f.wrongType()
		}
		return value{kind: kNone}, nil
	}
	if as := f.objects[v.ref].as; as.kind == want && (want == kStack || want == kFrame) {
		return as, nil
	} else if as.kind != kAbsent {
		return value{}, limitf("%s appears in two places", want)
	}
	made, err := f.open(want, parent, key)
	if err != nil {
		return made, err
	}
	f.objects[v.ref].as = made
	if want.isList() {
		return made, f.append(made, f.objects[v.ref].items)
	}
	return made, f.set(made, f.objects[v.ref].items)
}

// container adopts v as the list under key of parent.
func (f *fold) container(v, parent value, key text) (value, error) {
	return f.adopt(v, childOf(parent.kind, key, false), parent, key)
}

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
			f.setSettings(&f.values, v)
		case tGmemtop:
			f.setOwn(&f.values, v)
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
