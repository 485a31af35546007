package torchsnapshot

// Limits of the machine.
const (
	maxMarks = 256     // nesting
	maxStack = 4 << 20 // values: a writer that does not batch leaves every element of a list on the stack
)

// machine is the stack of the pickle machine, and how containers are made, filled and recognised on it.
type machine struct {
	f     *fold
	memo  memo
	stack []value
	marks []int32
}

func (m *machine) push(v value) error {
	if len(m.stack) == cap(m.stack) && len(m.stack) >= maxStack {
		return limitf("more than %d values at once", maxStack)
	}
	m.stack = append(m.stack, v)
	return nil
}

// base returns the stack's height at the last mark.
func (m *machine) base() int {
	if len(m.marks) == 0 {
		return 0
	}
	return int(m.marks[len(m.marks)-1])
}

func (m *machine) mark() error {
	if len(m.marks) == maxMarks {
		return limitf("nested deeper than %d", maxMarks)
	}
	m.marks = append(m.marks, int32(len(m.stack)))
	return nil
}

func (m *machine) popMark() (int, error) {
	n := len(m.marks)
	if n == 0 {
		return 0, limitf("no mark to go back to")
	}
	base := int(m.marks[n-1])
	m.marks = m.marks[:n-1]
	return base, nil
}

func (m *machine) pop() error {
	n := len(m.stack)
	switch {
	case n > m.base() && m.stack[n-1].kind == kEvent:
		return limitf("POP of a trace entry")
	case n > m.base():
		m.stack = m.stack[:n-1]
	case len(m.marks) > 0: // POP takes a mark too
		m.marks = m.marks[:len(m.marks)-1]
	default:
		return limitf("POP of nothing")
	}
	return nil
}

func (m *machine) memoize(i uint32) error {
	if len(m.stack) == m.base() {
		return limitf("nothing to memoize")
	}
	return m.memo.put(i, m.stack[len(m.stack)-1])
}

func (m *machine) get(i uint32) error {
	v, ok := m.memo.get(i)
	if !ok {
		return limitf("memo entry %d was never put", i)
	}
	if v.kind == kEvent {
		if k, parent, _ := m.role(true); k == kEvent {
			v, err := m.f.repeatEvent(v.ref, parent)
			if err != nil {
				return err
			}
			return m.push(v)
		}
	}
	return m.push(v)
}

// role finds the role of a container that opens now from the container that it will be put into: the list or
// dict below the last mark, or the one on top of the stack if a single element or item follows without a
// mark.
func (m *machine) role(dict bool) (k kind, parent value, key text) {
	n, base := len(m.stack), m.base()
	if n == 0 {
		if dict {
			return kRoot, value{}, tEmpty
		}
		return kSegments, value{}, tSegments // a bare list of segments
	}
	below := value{}
	if base > 0 {
		below = m.stack[base-1]
	}
	if n > base {
		switch top := m.stack[n-1]; {
		case top.kind.isList() && (top.kind == kTraces || dict && top.kind != kList):
			return childOf(top.kind, tEmpty, dict), top, tEmpty
		case top.kind == kText && below.kind.isDict() && (n-base)%2 == 1:
			return childOf(below.kind, top.text(), dict), below, top.text()
		case top.kind == kText && n-2 >= base && m.stack[n-2].kind.isDict():
			return childOf(m.stack[n-2].kind, top.text(), dict), m.stack[n-2], top.text()
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
func (m *machine) open(dict bool) error {
	n, base := len(m.stack), m.base()
	if dict && base > 0 && m.stack[base-1].kind == kTrace && (n == base || m.stack[n-1].kind == kEvent) {
		// the way nearly all are made
		v, err := m.f.openEvent(m.stack[base-1])
		if err != nil {
			return err
		}
		if n > base {
			m.stack[n-1].ref = v.ref
			return nil
		}
		return m.push(v)
	}
	k, parent, key := m.role(dict)
	v, err := m.f.open(k, parent, key)
	if err != nil {
		return err
	}
	return m.push(v)
}

func (m *machine) setItems() error {
	base, err := m.popMark()
	if err != nil {
		return err
	}
	items := m.stack[base:]
	if base == 0 || base <= m.base() || len(items)%2 != 0 {
		return limitf("SETITEMS without a dict and pairs")
	}
	err = m.f.set(m.stack[base-1], items)
	m.stack = m.stack[:base]
	return err
}

func (m *machine) setItem() error {
	n := len(m.stack)
	if n < m.base()+3 {
		return limitf("SETITEM without a dict and a pair")
	}
	err := m.f.set(m.stack[n-3], m.stack[n-2:])
	m.stack = m.stack[:n-2]
	return err
}

func (m *machine) appends() error {
	base, err := m.popMark()
	if err != nil {
		return err
	}
	if base == 0 || base <= m.base() {
		return limitf("APPENDS without a list")
	}
	err = m.f.append(m.stack[base-1], m.stack[base:])
	m.stack = m.stack[:base]
	return err
}

func (m *machine) appendOne() error {
	n := len(m.stack)
	if n < m.base()+2 {
		return limitf("APPEND without a list")
	}
	err := m.f.append(m.stack[n-2], m.stack[n-1:])
	m.stack = m.stack[:n-1]
	return err
}

// tuple makes a tuple of the values from base on. A pair of integers, which is what pools are named by, needs
// no object.
func (m *machine) tuple(base int) error {
	if base < m.base() {
		return limitf("a tuple of more values than there are")
	}
	items := m.stack[base:]
	if len(items) == 2 && items[0].kind == kInt && items[1].kind == kInt {
		m.stack = append(m.stack[:base], m.f.pair(items[0], items[1]))
		return nil
	}
	v, err := m.f.openObject(kTuple, items)
	m.stack = append(m.stack[:base], v)
	return err
}

// collect makes a plain list or dict of the values above the last mark.
func (m *machine) collect(op byte) error {
	base, err := m.popMark()
	if err != nil {
		return err
	}
	k := kList
	if op == opDict {
		k = kDict
		if (len(m.stack)-base)%2 != 0 {
			return limitf("DICT of a key without a value")
		}
	}
	v, err := m.f.openObject(k, m.stack[base:])
	m.stack = append(m.stack[:base], v)
	return err
}
