package timeline

import "sync"

// Memo is a question whose answer is computed once for each Device, or each Timeline, and cached with it.
// Many goroutines may ask: all wait for the one that computes the answer.
type Memo[K keeper, T any] struct{ find func(K) T }

// keeper holds answers: by memo, as functions that return them.
type keeper interface{ answers() *sync.Map }

func (t *Timeline) answers() *sync.Map { return &t.memos }

func (d *Device) answers() *sync.Map { return &d.memos }

// NewMemo returns the memo of a question. Keep it in a package variable. Nobody may write to what find
// returns.
func NewMemo[K keeper, T any](find func(K) T) *Memo[K, T] { return &Memo[K, T]{find} }

// Of returns the answer for k.
func (m *Memo[K, T]) Of(k K) T {
	answer, ok := k.answers().Load(m)
	if !ok {
		answer, _ = k.answers().LoadOrStore(m, sync.OnceValue(func() T { return m.find(k) }))
	}
	return answer.(func() T)()
}
