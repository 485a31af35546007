package timeline

import "sync"

// lazy holds what the core computes on the first question that needs it.
type lazy struct {
	categoryOnce  sync.Once
	categoryMarks [][NumCategories]int64

	requestedOnce, requestedActiveOnce sync.Once
	requested, requestedActive         *Series

	accessOnce sync.Once
	accesses   []int32

	runMu     sync.Mutex
	runsKnown bool
	runs      []run
	runDoubts int
}
