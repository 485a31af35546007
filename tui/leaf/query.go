package leaf

import (
	"context"
	"fmt"
	"runtime/debug"

	tea "charm.land/bubbletea/v2"
)

// Query is a slow question that a view asks off the event loop; it remembers the last answer. A new key
// cancels the question in progress, and late answers to other keys are dropped. So a view shows the answer to
// its latest question or, until that arrives, an older one. The zero Query is ready. Use it from Update and
// Draw only.
type Query[K comparable, V any] struct {
	asked, answered K
	number          int // of the latest question: a cancelled one may be asked again
	pending, known  bool
	value           V
	err             error
	cancel          context.CancelFunc
}

// Panicked is a message that may carry a panic of the goroutine that computed it: the root writes it to the
// crash log, the view shows it as the question's error, and the program lives on. Value is nil without a
// panic.
type Panicked interface {
	Panic() (value any, stack []byte)
}

type answer[K comparable, V any] struct {
	to     *Query[K, V]
	number int
	key    K
	value  V
	err    error
	fault  any
	stack  []byte
}

// Panic implements Panicked.
func (a answer[K, V]) Panic() (value any, stack []byte) { return a.fault, a.stack }

// Ask asks for the answer to key unless it is known or in progress; f runs on another goroutine and must stop
// when its context is cancelled. The view's Update must return the command.
func (q *Query[K, V]) Ask(key K, f func(ctx context.Context) (V, error)) tea.Cmd {
	if q.pending && q.asked == key || !q.pending && q.known && q.answered == key {
		return nil
	}
	if q.cancel != nil {
		q.cancel()
	}
	ctx, cancel := context.WithCancel(context.Background())
	q.asked, q.pending, q.cancel = key, true, cancel
	q.number++
	number := q.number
	return func() (msg tea.Msg) {
		defer func() {
			if r := recover(); r != nil {
				msg = answer[K, V]{
					to: q, number: number, key: key, err: fmt.Errorf("internal error: %v", r), fault: r,
					stack: debug.Stack(),
				}
			}
		}()
		v, err := f(ctx)
		return answer[K, V]{to: q, number: number, key: key, value: v, err: err}
	}
}

// Take takes an answer, and reports whether msg was one of this Query's, current or stale.
func (q *Query[K, V]) Take(msg tea.Msg) bool {
	a, ok := msg.(answer[K, V])
	if !ok || a.to != q {
		return false
	}
	if q.pending && a.number == q.number {
		q.cancel()
		q.pending, q.cancel = false, nil
		q.answered, q.known, q.value, q.err = a.key, true, a.value, a.err
	}
	return true
}

// Cancel gives up the question in progress, if any; it may be asked again.
func (q *Query[K, V]) Cancel() {
	if q.pending {
		q.cancel()
		q.pending, q.cancel = false, nil
	}
}

// Value returns the latest answer and its key; ok is false before the first answer.
func (q *Query[K, V]) Value() (key K, v V, ok bool) {
	return q.answered, q.value, q.known && q.err == nil
}

// Err returns the error of the latest answer, nil for none.
func (q *Query[K, V]) Err() error { return q.err }

// Pending reports whether a question is in progress.
func (q *Query[K, V]) Pending() bool { return q.pending }
