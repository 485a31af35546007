package job

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/gmemtop/gmemtop/capture"
)

// roster is the processes of a job, and which of them the messages to the job's sink come from.
type roster struct {
	mu      sync.Mutex
	list    []*Process // the first is the one that the job's output is kept with
	current *Process
	counted int // first steps and ends of processes
}

// add adds a process and gives it its ID.
func (r *roster) add(p *Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.ID = len(r.list)
	r.list = append(r.list, p)
	if r.current == nil {
		r.current = p
	}
}

// all returns the processes in the order in which they came.
func (r *roster) all() []*Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// find returns the process with this description, or nil.
func (r *roster) find(t capture.Info) *Process {
	for _, p := range slices.Backward(r.all()) {
		if same(p.Info(), t) {
			return p
		}
	}
	return nil
}

// same reports whether two descriptions are of one process.
func same(a, b capture.Info) bool {
	return a.PID == b.PID && (a.Started == b.Started || a.Started == 0 || b.Started == 0)
}

// sending returns the current process.
func (r *roster) sending() *Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// passTo makes a process the current one.
func (r *roster) passTo(p *Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = p
}

// count returns the number of the next first step or end of a process.
func (r *roster) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counted++
	return r.counted
}

// training returns the processes that have stepped, by rank if they have one.
func (r *roster) training() []*Process {
	list := slices.DeleteFunc(r.all(), func(p *Process) bool { return !p.hasStepped() })
	rank := map[*Process]int64{}
	for _, p := range list {
		rank[p] = p.Info().Rank.Or(math.MaxInt64)
	}
	slices.SortStableFunc(list, func(a, b *Process) int { return cmp.Compare(rank[a], rank[b]) })
	return list
}
