package timeline

import "sync"

// Memo is a question whose answer is found once for each Device, or each Timeline, and kept with it. It may
// be asked from many goroutines: all wait for the one that finds the answer.
type Memo[K keeper, T any] struct{ find func(K) T }

// keeper is what answers are kept with: by the memo, as functions that return them.
type keeper interface{ answers() *sync.Map }

func (t *Timeline) answers() *sync.Map { return &t.memos }

func (d *Device) answers() *sync.Map { return &d.memos }

// NewMemo returns the memo of a question, which is to be a variable of its package. What find returns must
// not be written to.
func NewMemo[K keeper, T any](find func(K) T) *Memo[K, T] { return &Memo[K, T]{find} }

// Of returns the answer for k.
func (m *Memo[K, T]) Of(k K) T {
	answer, ok := k.answers().Load(m)
	if !ok {
		answer, _ = k.answers().LoadOrStore(m, sync.OnceValue(func() T { return m.find(k) }))
	}
	return answer.(func() T)()
}
