package torchsnapshot

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// extendStack appends frames to list i. Nearly always it is one batch into an empty list.
func (f *fold) extendStack(i uint32, items []value) error {
	t := &f.stacks
	ids := t.scratch[:0]
	grown := t.lists[i] != noStack
	if grown {
		ids = t.growing[i]
		if t.lists[i] != openStack {
			ids = slices.Clone(t.at(t.lists[i]))
			if t.reopened += int64(len(ids)); t.reopened > maxReopened+f.offset() {
				return limitf("a stack that goes on after it was used, again and again")
			}
		}
	}
	for _, v := range items {
		id := traces.FrameID(-1)
		if v.kind == kFrame {
			id = f.frames.objects[v.ref]
		}
		if id < 0 {
			var err error
			if id, err = f.frameOf(v); err != nil {
				return err
			}
			if id < 0 {
				continue
			}
		}
		ids = append(ids, id)
	}
	if grown {
		t.growing[i], t.lists[i] = ids, openStack
		return nil
	}
	t.scratch = ids
	s, err := t.intern(ids)
	t.lists[i] = s
	return err
}

// stackOf returns the stack of v, which is under key of a parent.
func (f *fold) stackOf(v value, parent kind, key text) (int32, error) {
	if v.kind != kStack {
		var err error
		if v, err = f.container(v, value{kind: parent}, key); err != nil || v.kind != kStack {
			return noStack, err
		}
	}
	if s := f.stacks.lists[v.ref]; s != openStack {
		return s, nil
	}
	return f.stacks.resolve(v.ref)
}

// setFrame writes items into the frame of dict i.
func (vs *values) setFrame(i uint32, items []value) error {
	var fr traces.Frame
	var more extra
	if id := vs.frames.objects[i]; id >= 0 {
		fr = vs.frames.list[id]
	}
	for j := 0; j+1 < len(items); j += 2 {
		k, v := items[j], items[j+1]
		if k.kind != kText {
			vs.wrongType()
			continue
		}
		switch n, isInt := v.asInt(); {
		case k.text() == tFilename && v.kind == kText:
			fr.File = traces.StringID(v.ref)
		case k.text() == tName && v.kind == kText:
			fr.Func = traces.StringID(v.ref)
		case k.text() == tLine && isInt && n >= 0 && n <= math.MaxInt32:
			fr.Line = int32(n)
		case (k.text() == tFilename || k.text() == tName || k.text() == tLine) && v.kind == kNone:
		default: // torch.fx adds fx_node_op and others
			vs.unknownKey()
			vs.add(&more, k, v)
		}
	}
	fr.Extra = vs.join(fr.Extra, more)
	vs.frames.objects[i] = vs.frames.intern(fr)
	return nil
}

// frameOf returns the frame of v, -1 if it is not one. A string is a frame that Python has formatted.
func (f *fold) frameOf(v value) (traces.FrameID, error) {
	if v.kind == kText {
		id, ok := f.frames.strings[v.text()]
		if !ok {
			id = f.frames.intern(f.formattedFrame(v))
			f.frames.strings[v.text()] = id
		}
		return id, nil
	}
	v, err := f.adopt(v, kFrame, value{kind: kStack}, tEmpty)
	if err != nil || v.kind != kFrame {
		return -1, err
	}
	if f.frames.objects[v.ref] < 0 { // an empty dict is an unknown frame
		f.frames.objects[v.ref] = f.frames.intern(traces.Frame{})
	}
	return f.frames.objects[v.ref], nil
}

// formattedFrame splits what Python's traceback.format_stack makes:
//
//	File "model.py", line 12, in forward
//	  return self.proj(x)
//
// The text is kept in Extra. A string in another form becomes the frame's name.
func (vs *values) formattedFrame(v value) traces.Frame {
	s := vs.texts.string(v.text())
	var more extra
	vs.add(&more, vs.word(formattedKey), v)
	fr := traces.Frame{Func: traces.StringID(v.ref), Extra: vs.join(0, more)}
	first, _, _ := strings.Cut(strings.TrimLeft(s, " "), "\n")
	rest, ok := strings.CutPrefix(first, `File "`)
	at := strings.LastIndex(rest, `", line `)
	if !ok || at < 0 {
		return fr
	}
	line, name, ok := strings.Cut(rest[at+len(`", line `):], ", in ")
	n, err := strconv.ParseInt(line, 10, 32)
	if !ok || err != nil || n < 0 {
		return fr
	}
	fr.File, fr.Line, fr.Func = traces.StringID(vs.word(rest[:at]).ref), int32(n),
		traces.StringID(vs.word(name).ref)
	return fr
}

// formattedKey is the key of Frame.Extra that holds a formatted frame's own text.
const formattedKey = "formatted"
