package torchsnapshot

// The stack of the pickle machine, and how containers are made, filled and recognised on it.

func (u *unpickler) push(v value) error {
	if len(u.stack) == cap(u.stack) && len(u.stack) >= maxStack {
		return limitf("more than %d values at once", maxStack)
	}
	u.stack = append(u.stack, v)
	return nil
}

// base returns the stack's height at the last mark.
func (u *unpickler) base() int {
	if len(u.marks) == 0 {
		return 0
	}
	return int(u.marks[len(u.marks)-1])
}

func (u *unpickler) popMark() (int, error) {
	n := len(u.marks)
	if n == 0 {
		return 0, limitf("no mark to go back to")
	}
	base := int(u.marks[n-1])
	u.marks = u.marks[:n-1]
	return base, nil
}

func (u *unpickler) pop() error {
	n := len(u.stack)
	switch {
	case n > u.base() && u.stack[n-1].kind == kEvent:
		return limitf("POP of a trace entry")
	case n > u.base():
		u.stack = u.stack[:n-1]
	case len(u.marks) > 0: // POP takes a mark too
		u.marks = u.marks[:len(u.marks)-1]
	default:
		return limitf("POP of nothing")
	}
	return nil
}

func (u *unpickler) memoize(i uint32) error {
	if len(u.stack) == u.base() {
		return limitf("nothing to memoize")
	}
	return u.memo.put(i, u.stack[len(u.stack)-1])
}

func (u *unpickler) get(i uint32) error {
	v, ok := u.memo.get(i)
	if !ok {
		return limitf("memo entry %d was never put", i)
	}
	if v.kind == kEvent {
		if k, parent, _ := u.role(true); k == kEvent {
			v, err := u.f.repeatEvent(v.ref, parent)
			if err != nil {
				return err
			}
			return u.push(v)
		}
	}
	return u.push(v)
}

// role finds the role of a container that opens now from the container that it will be put into: the list or
// dict below the last mark, or the one on top of the stack if a single element or item follows without a
// mark.
func (u *unpickler) role(dict bool) (k kind, parent value, key text) {
	n, base := len(u.stack), u.base()
	if n == 0 {
		if dict {
			return kRoot, value{}, tEmpty
		}
		return kSegments, value{}, tSegments // a bare list of segments
	}
	below := value{}
	if base > 0 {
		below = u.stack[base-1]
	}
	if n > base {
		switch top := u.stack[n-1]; {
		case top.kind.isList() && (top.kind == kTraces || dict && top.kind != kList):
			return childOf(top.kind, tEmpty, dict), top, tEmpty
		case top.kind == kText && below.kind.isDict() && (n-base)%2 == 1:
			return childOf(below.kind, top.text(), dict), below, top.text()
		case top.kind == kText && n-2 >= base && u.stack[n-2].kind.isDict():
			return childOf(u.stack[n-2].kind, top.text(), dict), u.stack[n-2], top.text()
		}
	}
	if below.kind.isList() {
		return childOf(below.kind, tEmpty, dict), below, tEmpty
	}
	if dict {
		return kDict, value{}, tEmpty
	}
	return kList, value{}, tEmpty
}

// open pushes an empty container. Consecutive trace entries of one list share a stack slot, since some
// writers leave all elements of a list on the stack before they append them.
func (u *unpickler) open(dict bool) error {
	n, base := len(u.stack), u.base()
	if dict && base > 0 && u.stack[base-1].kind == kTrace && (n == base || u.stack[n-1].kind == kEvent) {
		// the way nearly all are made
		v, err := u.f.openEvent(u.stack[base-1])
		if err != nil {
			return err
		}
		if n > base {
			u.stack[n-1].ref = v.ref
			return nil
		}
		return u.push(v)
	}
	k, parent, key := u.role(dict)
	v, err := u.f.open(k, parent, key)
	if err != nil {
		return err
	}
	return u.push(v)
}

func (u *unpickler) setItems() error {
	base, err := u.popMark()
	if err != nil {
		return err
	}
	items := u.stack[base:]
	if base == 0 || base <= u.base() || len(items)%2 != 0 {
		return limitf("SETITEMS without a dict and pairs")
	}
	err = u.f.set(u.stack[base-1], items)
	u.stack = u.stack[:base]
	return err
}

func (u *unpickler) setItem() error {
	n := len(u.stack)
	if n < u.base()+3 {
		return limitf("SETITEM without a dict and a pair")
	}
	err := u.f.set(u.stack[n-3], u.stack[n-2:])
	u.stack = u.stack[:n-2]
	return err
}

func (u *unpickler) appends() error {
	base, err := u.popMark()
	if err != nil {
		return err
	}
	if base == 0 || base <= u.base() {
		return limitf("APPENDS without a list")
	}
	err = u.f.append(u.stack[base-1], u.stack[base:])
	u.stack = u.stack[:base]
	return err
}

func (u *unpickler) appendOne() error {
	n := len(u.stack)
	if n < u.base()+2 {
		return limitf("APPEND without a list")
	}
	err := u.f.append(u.stack[n-2], u.stack[n-1:])
	u.stack = u.stack[:n-1]
	return err
}

// tuple makes a tuple of the values from base on. A pair of integers, which is what pools are named by, needs
// no object.
func (u *unpickler) tuple(base int) error {
	if base < u.base() {
		return limitf("a tuple of more values than there are")
	}
	items := u.stack[base:]
	if len(items) == 2 && items[0].kind == kInt && items[1].kind == kInt {
		u.stack = append(u.stack[:base], u.f.pair(items[0], items[1]))
		return nil
	}
	v, err := u.f.openObject(kTuple, items)
	u.stack = append(u.stack[:base], v)
	return err
}

// collect makes a plain list or dict of the values above the last mark.
func (u *unpickler) collect(op byte) error {
	base, err := u.popMark()
	if err != nil {
		return err
	}
	k := kList
	if op == opDict {
		k = kDict
		if (len(u.stack)-base)%2 != 0 {
			return limitf("DICT of a key without a value")
		}
	}
	v, err := u.f.openObject(k, u.stack[base:])
	u.stack = append(u.stack[:base], v)
	return err
}
