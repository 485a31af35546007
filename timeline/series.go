package timeline

import "sort"

// A series answers "what are the extremes between these two events?" for any window of a chart, at any zoom,
// without visiting each event. There is one value per event (or, if sparse, one per change) with a pyramid
// above them: each level keeps the minimum and the maximum of 64 neighbours of the level below. A range is
// then the raw values at its two ragged ends plus whole nodes between, at most 2·64 reads per level:
// O(64·log64 n), about 400 reads on ten million events. The pyramid costs 1/32 of the memory of the values.
//
// Rejected: averages (they lose peaks, which are the point), a segment tree of fan-out 2 (64 times the nodes
// for no fewer cache lines), and precomputed zoom levels (they answer only their own windows). The shape is
// that of the mipmaps of time-series viewers and of the min/max index of Lamport-style range trees; see
// Bender and Farach-Colton, "The LCA problem revisited", for why constant time would need n log n memory.

// fanOut is how many values, or nodes, one node of a pyramid covers.
const fanOut = 64

// Series is a step function over a device's events: the bytes after each of them. It is immutable.
type Series struct {
	start  int64
	values []int64
	// moment of each value if the series is sparse; nil if values[m] is the value after event m
	at []Moment

	low, high [][]int64 // low[k][i] is the minimum of the 64 values, or nodes of low[k-1], from 64·i
}

// newSeries returns the series that begins with start and takes on values[i] at at[i], or at event i if at is
// nil.
func newSeries(start int64, at []Moment, values []int64) *Series {
	s := &Series{start: start, at: at, values: values}
	low, high := values, values
	for len(low) > fanOut {
		l, h := fold(low, high)
		s.low, s.high = append(s.low, l), append(s.high, h)
		low, high = l, h
	}
	return s
}

// fold returns the minimum of each 64 values of low and the maximum of each 64 of high.
func fold(low, high []int64) (l, h []int64) {
	n := (len(low) + fanOut - 1) / fanOut
	l, h = make([]int64, n), make([]int64, n)
	for i := range n {
		end := min((i+1)*fanOut, len(low))
		lo, hi := low[i*fanOut], high[i*fanOut]
		for _, v := range low[i*fanOut+1 : end] {
			lo = min(lo, v)
		}
		for _, v := range high[i*fanOut+1 : end] {
			hi = max(hi, v)
		}
		l[i], h[i] = lo, hi
	}
	return l, h
}

// Last returns the value after the last event.
func (s *Series) Last() int64 { return s.At(Never) }

// At returns the value just after event m; At(Start) is the start value, and a moment after the last event
// has the last value.
func (s *Series) At(m Moment) int64 { return s.inForce(s.upTo(m)) }

// upTo returns how many of the values took effect at or before m.
func (s *Series) upTo(m Moment) int {
	if m < 0 {
		return 0
	}
	if s.at == nil {
		return min(int(m)+1, len(s.values))
	}
	return sort.Search(len(s.at), func(i int) bool { return s.at[i] > m })
}

// inForce returns the value after the first i changes.
func (s *Series) inForce(i int) int64 {
	if i == 0 {
		return s.start
	}
	return s.values[i-1]
}

// moment returns when values[i] took effect.
func (s *Series) moment(i int) Moment {
	if s.at == nil {
		return Moment(i)
	}
	return s.at[i]
}

// max returns the largest value, the start included, and the first moment at which it is reached.
func (s *Series) max() (int64, Moment) {
	c := s.Range(0, Never)
	return c.Max, c.MaxAt
}

// Range returns the extremes over the events [first, end) and the value before first, which counts among
// them. MaxAt is the first moment at which the maximum is reached, first-1 if the value before first is the
// maximum. An empty range has that value alone.
func (s *Series) Range(first, end Moment) Column {
	first = max(first, 0)
	i := s.upTo(first - 1)
	j := max(i, s.upTo(max(end, first)-1))
	left := s.inForce(i)
	c := Column{Min: left, Max: left, Last: s.inForce(j), First: first, End: max(end, first),
		MaxAt: first - 1}
	if i == j {
		return c
	}
	low, high, at := s.extremes(0, i, j)
	c.Min = min(c.Min, low)
	if high > c.Max {
		c.Max, c.MaxAt = high, s.moment(at)
	}
	return c
}

// level returns the minima and maxima of level k, level 0 being the values themselves.
func (s *Series) level(k int) (low, high []int64) {
	if k == 0 {
		return s.values, s.values
	}
	return s.low[k-1], s.high[k-1]
}

// extremes returns the extremes of nodes [i, j) of level k, which is not empty, and the first node that has
// the maximum.
func (s *Series) extremes(k, i, j int) (low, high int64, at int) {
	lows, highs := s.level(k)
	if k == len(s.low) || j-i <= 2*fanOut {
		return scan(lows, highs, i, j)
	}
	up, down := (i+fanOut-1)/fanOut, j/fanOut // whole nodes of the level above
	if up >= down {
		return scan(lows, highs, i, j)
	}
	low, high, at = s.extremes(k+1, up, down)
	at = firstEqual(highs, at*fanOut, high)
	if i < up*fanOut {
		l, h, a := scan(lows, highs, i, up*fanOut)
		low = min(low, l)
		if h >= high { // the head precedes the middle
			high, at = h, a
		}
	}
	if down*fanOut < j {
		l, h, a := scan(lows, highs, down*fanOut, j)
		low = min(low, l)
		if h > high {
			high, at = h, a
		}
	}
	return low, high, at
}

// firstEqual returns the first index from i on that has value v; there is one.
func firstEqual(v []int64, i int, want int64) int {
	for v[i] != want {
		i++
	}
	return i
}

func scan(lows, highs []int64, i, j int) (low, high int64, at int) {
	low, high, at = lows[i], highs[i], i
	for k := i + 1; k < j; k++ {
		low = min(low, lows[k])
		if highs[k] > high {
			high, at = highs[k], k
		}
	}
	return low, high, at
}
