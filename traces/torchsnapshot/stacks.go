package torchsnapshot

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

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
