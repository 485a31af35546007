package torchsnapshot

// memo is the pickle machine's table of values for later reference. CPython memoizes every string and every
// container, so that a million trace entries make a million entries here; an entry therefore takes four
// bytes, the kind and the row or index. The few values that need 64 bits (only hand-made pickles memoize
// numbers) are in others.
//
// It consists of pages, so that growing does not copy it. Writers number entries consecutively. An index far
// beyond the count is refused, so that an entry cannot cost more memory than bytes of the file.
type memo struct {
	pages  []*[memoPage]uint32
	count  uint32 // entries put so far, which is also the next index that MEMOIZE takes
	others []value
}

const (
	memoBits = 12
	memoPage = 1 << memoBits
	memoGap  = 16 * memoPage
	memoRef  = 27
	// maxMemoNumbers bounds others, since memoizing a number takes one byte of the file and sixteen of
	// memory.
	maxMemoNumbers = 1 << 16
	memoOther      = 31 // the kind that stands for an index into others
)

func (m *memo) get(i uint32) (value, bool) {
	if int(i>>memoBits) >= len(m.pages) {
		return value{}, false
	}
	e := m.pages[i>>memoBits][i&(memoPage-1)]
	k, ref := e>>memoRef, e&(1<<memoRef-1)
	if k == memoOther {
		return m.others[ref], true
	}
	return value{kind: kind(k), ref: ref}, k != 0
}

func (m *memo) put(i uint32, v value) error {
	if i>>memoBits >= uint32(len(m.pages)) {
		if i > m.count && i-m.count > memoGap {
			return limitf("memo index %d where %d entries were put before it", i, m.count)
		}
		for uint32(len(m.pages)) <= i>>memoBits {
			m.pages = append(m.pages, new([memoPage]uint32))
		}
	}
	k, ref := uint32(v.kind), v.ref
	switch v.kind {
	case kNone, kBool, kInt, kUint, kFloat:
		if len(m.others) == maxMemoNumbers {
			return limitf("more than %d numbers are memoized, which Python never does", maxMemoNumbers)
		}
		k, ref = memoOther, uint32(len(m.others))
		m.others = append(m.others, v)
	}
	m.pages[i>>memoBits][i&(memoPage-1)] = k<<memoRef | ref
	m.count++
	return nil
}
