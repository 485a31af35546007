package torchsnapshot

import (
	"github.com/gmemtop/gmemtop/traces"
)

// openEvent adds the row of a trace entry. Rows of one trace are consecutive, so only the last trace may
// grow.
func (f *fold) openEvent(parent value) (value, error) {
	switch {
	case parent.kind == kTraces && (len(f.traces) == 0 || f.traces[len(f.traces)-1].host != parent.ref):
		f.traces = append(f.traces, traceList{first: f.events.n, host: parent.ref})
	case parent.kind == kTrace && parent.ref != uint32(len(f.traces)-1):
		return value{}, limitf("a trace goes on after the next one has begun")
	}
	if n := f.events.n; n > 0 && f.events.at(n-1).flags&rowTouched == 0 {
		return value{}, limitf("a trace entry without any key")
	}
	r, err := f.events.add()
	if err != nil {
		return value{}, err
	}
	r.time, r.stack = traces.NoTime, int32(traces.NoStack)
	return value{kind: kEvent, ref: f.events.n - 1}, nil
}

// repeatEvent adds a copy of row i, for an entry that is listed again through the memo.
func (f *fold) repeatEvent(i uint32, parent value) (value, error) {
	v, err := f.openEvent(parent)
	if err == nil {
		*f.events.at(v.ref) = *f.events.at(i)
		if d := f.events.detail(i); d != 0 {
			f.events.setDetail(v.ref, d)
		}
	}
	return v, err
}

// setEvent writes items into a row.
func (f *fold) setEvent(ref uint32, items []value) error {
	r := f.events.at(ref)
	r.flags |= rowTouched
	known := f.events.detail(ref) // the value of d until it is written
	d := f.details.list[known]
	free, hasFree := uint64(0), false
	var more extra
	for i := 0; i+1 < len(items); i += 2 {
		k, v := &items[i], &items[i+1]
		if k.kind != kText {
			f.wrongType()
			continue
		}
		ok := true
		switch k.text() {
		case tActionKey:
			r.flags |= rowAction
			switch {
			case v.kind == kText && v.text() >= tFirstAction &&
				v.text() < tFirstAction+text(endAction-firstAction):
				r.action = firstAction + traces.Action(v.text()-tFirstAction)
			case v.kind == kText:
				d.Action, known = traces.StringID(v.ref), -1
			default:
				ok = false
			}
		case tAddr:
			r.addr, ok = v.asAddress()
			r.flags |= rowAddr
		case tSize:
			r.size, ok = f.size(*v)
		case tStream:
			var handle uint64
			if handle, ok = v.asAddress(); ok {
				r.stream = f.streams.id(handle, f.losses)
			}
		case tTimeUS:
			r.time, ok = f.micros(*v)
		case tFrames:
			var err error
			if r.stack, err = f.stackOf(*v, kEvent, tFrames); err != nil {
				return err
			}
		case tCompileContext:
			ok = setText(&d.CompileContext, &known, *v)
		case tUserMetadata:
			ok = setText(&d.UserMetadata, &known, *v)
		case tCategory:
			ok = setText(&d.Category, &known, *v)
		case tPoolID, tSegmentPoolID:
			if v.kind == kNone {
				break
			}
			if d.Pool, d.HasPool = f.asPool(*v); !d.HasPool {
				ok = false
			}
			known = -1
		case tForwardFrames:
			s, err := f.stackOf(*v, kEvent, tForwardFrames)
			if err != nil {
				return err
			}
			d.ForwardStack, known = traces.StackID(f.stacks.reversed(s)), -1
		case tDeviceFree:
			free, ok = v.asAddress()
			hasFree = ok
		default:
			f.unknownKey()
			f.add(&more, *k, *v)
		}
		if !ok {
			f.wrongType()
		}
	}
	if r.action == traces.OOM && !hasFree {
		r.addr = traces.UnknownFree
	}
	if hasFree {
		if r.action == traces.OOM || r.flags&rowAddr == 0 {
			r.addr = free
		} else {
			f.unknownKey()
			f.add(&more, textValue(tDeviceFree), intValue(int64(free)))
		}
	}
	if len(more) > 0 {
		d.Extra, known = f.join(d.Extra, more), -1
	}
	if known < 0 {
		f.events.setDetail(ref, f.details.intern(d))
	}
	return nil
}

// setText sets a string of a detail. PyTorch writes N/A for no compile context, which means the same as an
// absent key.
func setText(dst *traces.StringID, known *int32, v value) bool {
	t := v.text()
	switch v.kind {
	case kNone:
		return true
	case kText:
	default:
		return false
	}
	if t == tNoContext {
		t = tEmpty
	}
	if *dst != traces.StringID(t) {
		*dst, *known = traces.StringID(t), -1
	}
	return true
}
