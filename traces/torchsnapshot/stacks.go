package torchsnapshot

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// stackTable interns call stacks. PyTorch shares the list of frames between the entries of one traceback, and
// the memo keeps that sharing: a list is its index in lists, and seeing it again costs nothing. Different
// lists with equal frames (each traceback makes its own) become one by their content.
type stackTable struct {
	offsets []int32
	ids     []traces.FrameID
	slots   []uint32 // open addressing, stack+1; 0 is free
	seed    uint64
	// lists holds the stack of each list of frames: noStack while it is empty, openStack while it grows
	// beyond one batch.
	lists   []int32
	growing map[uint32][]traces.FrameID
	// reopened counts the frames copied from lists that grew after they were closed. It is bounded, since
	// each use would make another stack.
	reopened int64
	turned   map[int32]int32
	scratch  []traces.FrameID
}

const (
	noStack   = int32(traces.NoStack)
	openStack = int32(-2)

	maxReopened = 4 << 20
)

func (t *stackTable) init() {
	t.offsets = []int32{0}
	t.slots = make([]uint32, 1<<8)
	t.seed = rand.Uint64()
	t.growing = map[uint32][]traces.FrameID{}
	t.turned = map[int32]int32{}
}

func (t *stackTable) open() (value, error) {
	if len(t.lists) == maxRows {
		return value{}, limitf("more than %d stacks", maxRows)
	}
	t.lists = append(t.lists, noStack)
	return value{kind: kStack, ref: uint32(len(t.lists) - 1)}, nil
}

func (t *stackTable) len() int { return len(t.offsets) - 1 }

func (t *stackTable) at(i int32) []traces.FrameID {
	if i < 0 {
		return nil
	}
	return t.ids[t.offsets[i]:t.offsets[i+1]]
}

func (t *stackTable) hash(ids []traces.FrameID) uint64 {
	h := t.seed
	for _, id := range ids {
		hi, lo := bits.Mul64(h^uint64(uint32(id))^0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)
		h = hi ^ lo
	}
	return h
}

// intern returns the stack of ids; it copies a new one.
func (t *stackTable) intern(ids []traces.FrameID) (int32, error) {
	if len(ids) == 0 {
		return noStack, nil
	}
	mask := uint64(len(t.slots) - 1)
	i := t.hash(ids) & mask
	for ; t.slots[i] != 0; i = (i + 1) & mask {
		if s := int32(t.slots[i] - 1); slices.Equal(t.at(s), ids) {
			return s, nil
		}
	}
	if len(t.ids)+len(ids) > math.MaxInt32 {
		return noStack, limitf("stacks of more than %d frames together", math.MaxInt32)
	}
	s := int32(t.len())
	t.ids = append(t.ids, ids...)
	t.offsets = append(t.offsets, int32(len(t.ids)))
	t.slots[i] = uint32(s) + 1
	if 2*t.len() > len(t.slots) {
		t.rehash()
	}
	return s, nil
}

func (t *stackTable) rehash() {
	t.slots = make([]uint32, 2*len(t.slots))
	mask := uint64(len(t.slots) - 1)
	for s := range int32(t.len()) {
		i := t.hash(t.at(s)) & mask
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = uint32(s) + 1
	}
}

// reversed returns the stack with the frames of s in the other order.
func (t *stackTable) reversed(s int32) int32 {
	if s < 0 {
		return s
	}
	if r, ok := t.turned[s]; ok {
		return r
	}
	ids := slices.Clone(t.at(s))
	slices.Reverse(ids)
	r, err := t.intern(ids)
	if err != nil { // full: the original order is better than no stack
		r = s
	}
	t.turned[s] = r
	return r
}

// resolve returns the stack of list i, closing it where it has been growing.
func (t *stackTable) resolve(i uint32) (int32, error) {
	s := t.lists[i]
	if s != openStack {
		return s, nil
	}
	s, err := t.intern(t.growing[i])
	delete(t.growing, i)
	t.lists[i] = s
	return s, err
}

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

// frameTable interns frames; objects holds the frame of each frame dict, -1 while it is empty.
type frameTable struct {
	list    []traces.Frame
	index   map[traces.Frame]traces.FrameID
	objects []traces.FrameID
	strings map[text]traces.FrameID // of frames that came as strings
}

func (t *frameTable) init() {
	t.index = map[traces.Frame]traces.FrameID{}
	t.strings = map[text]traces.FrameID{}
}

func (t *frameTable) open() (value, error) {
	if len(t.objects) == maxRows {
		return value{}, limitf("more than %d frames", maxRows)
	}
	t.objects = append(t.objects, -1)
	return value{kind: kFrame, ref: uint32(len(t.objects) - 1)}, nil
}

func (t *frameTable) intern(fr traces.Frame) traces.FrameID {
	if id, ok := t.index[fr]; ok {
		return id
	}
	id := traces.FrameID(len(t.list))
	t.list = append(t.list, fr)
	t.index[fr] = id
	return id
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

// word interns s, or returns the empty string if the table is full.
func (vs *values) word(s string) value {
	t, err := vs.texts.intern([]byte(s))
	if err != nil {
		t = tEmpty
	}
	return textValue(t)
}
