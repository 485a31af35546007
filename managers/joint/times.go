package joint

import "slices"

// times are what the bound knows of when ops can run, in nanoseconds. All but the shares change with the
// limit, because the fastest variant may not fit.
type times struct {
	m       *model
	dur     []int64   // of each op: the time of its fastest variant within the limit
	begin   []int64   // its earliest start
	head    []int64   // its earliest end
	tail    []int64   // the least time from its start to the end of the step; one more entry for the end
	busy    []int64   // time of the first stream's ops before it; one more entry for all
	shareOf []float64 // one by the number of buffers that it writes
}

func newTimes(m *model) times {
	return times{
		m:       m,
		dur:     slices.Clone(m.dur),
		begin:   make([]int64, m.n),
		head:    make([]int64, m.n),
		tail:    make([]int64, m.n+1),
		busy:    make([]int64, m.n+1),
		shareOf: make([]float64, m.n),
	}
}
