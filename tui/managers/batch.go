package managers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// The largest batch, manager by manager.
//
// "What fits" has a second form: not how little memory this batch can do with, but how large a batch this memory can do. Every answer takes a dozen plans, so
// it is asked for with a key, runs in the background beside planning, and is kept by the same question as the plans are: another budget
// shows no answer of an old one. What the sizes at other batches rest on is the user's to know: from one recording they are marked ~, from two, opened side by
// side, they are fitted.

// Batcher is a [Planner] that also finds the largest batch. MaxBatch takes the named managers one after the other; recorded are one or two recordings of
// one training at different batch sizes, the first of them the one in view. It tells each size that it tries and each answer.
type Batcher interface {
	MaxBatch(ctx context.Context, recorded []Recorded, names []string, budget int64, update func(BatchNews)) error
}

// Recorded is a problem with the batch size that it was recorded at.
type Recorded struct {
	Batch   int
	Problem *plan.Problem
}

// BatchNews is how far the search is with one manager.
type BatchNews struct {
	Manager string
	// Trying is the batch that is planned at this moment; Largest, once it is Done, the largest that fits, 0 where not even one sample does.
	Trying, Largest int
	Done            bool
	// Inferred says that sizes at other batches follow from one recording.
	Inferred bool
}

// batches is what is known about the largest batches of one question.
type batches struct {
	by     map[string]BatchNews
	names  []string // that were asked for, in the order in which they are taken
	cancel context.CancelFunc
	err    error
	ended  bool // the search is over: it came to its end, failed, or was stopped

	mu    sync.Mutex
	fresh []BatchNews
	began map[string]time.Time
	fail  error
	fault any
	stack []byte

	wake     chan struct{}
	finished chan struct{}
}

// batchNewsMsg says that a search has news.
type batchNewsMsg struct {
	search *batches
	done   bool
	fault  any
	stack  []byte
}

// Panic implements leaf.Panicked.
func (n batchNewsMsg) Panic() (value any, stack []byte) { return n.fault, n.stack }

// batchMsg is what was typed as the recordings' batch sizes.
type batchMsg struct{ sizes []int }

// batcher is the View as what looks for the largest batch.
type batcher struct{ *View }

// able reports whether there is something to look for the largest batch with.
func (v batcher) able() bool {
	_, ok := v.planner.(Batcher)
	return ok
}

// ask lets the user type the batch size that was recorded, or takes back a search that is under way.
func (v batcher) ask(s *leaf.State) tea.Cmd {
	q, ok := v.question(s)
	switch {
	case !ok:
		return nil
	case q.budget <= 0:
		return leaf.Send(leaf.ToastMsg{Text: "the largest batch is one that fits in a budget: set one with b or the arrows"})
	case v.answersTo(q).err != nil:
		return leaf.Send(leaf.ToastMsg{Text: "nothing fits in this budget, at any batch size that was recorded", Error: true})
	}
	title, hint := "recorded at batch", "samples in a batch of this recording: 32; what grows with it is inferred, and marked ~"
	if v.other(s) != nil {
		hint = "of both recordings, in their order: 32,64"
	}
	return leaf.Send(leaf.AskMsg{Title: title, Text: v.sizes, Hint: hint, Answer: func(text string) (tea.Msg, error) {
		sizes, err := parseSizes(text)
		return batchMsg{sizes}, err
	}})
}

// parseSizes reads one batch size or two.
func parseSizes(text string) ([]int, error) {
	var sizes []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 || n > 1<<20 {
			return nil, fmt.Errorf("%q is no batch size: write 32, or 32,64 for two recordings", strings.TrimSpace(part))
		}
		sizes = append(sizes, n)
	}
	switch {
	case len(sizes) > 2:
		return nil, errors.New("two recordings are the most that is open: write 32,64")
	case len(sizes) == 2 && sizes[0] == sizes[1]:
		return nil, errors.New("two recordings at one batch size say nothing about others: write the two that differ, or one")
	}
	return sizes, nil
}

// other is the second recording's device, nil where one is open.
func (v batcher) other(s *leaf.State) *timeline.Device {
	for _, t := range s.Timelines {
		if t != s.Timeline {
			return t.Main()
		}
	}
	return nil
}

// begin looks for the largest batch of the managers that are on and serve the recording.
func (v batcher) begin(s *leaf.State, sizes []int) tea.Cmd {
	q, ok := v.question(s)
	with, able := v.planner.(Batcher)
	if !ok || !able || q.budget <= 0 || len(sizes) == 0 {
		return nil
	}
	other := v.other(s)
	if len(sizes) == 2 && other == nil {
		return leaf.Send(leaf.ToastMsg{Text: "one recording is open: gmemtop replay A B opens two, or give one batch size", Error: true})
	}
	texts := make([]string, len(sizes))
	for i, n := range sizes {
		texts[i] = strconv.Itoa(n)
	}
	v.sizes = strings.Join(texts, ",")
	v.stop()
	if len(v.largest) >= kept {
		clear(v.largest)
	}
	b := &batches{by: map[string]BatchNews{}, began: map[string]time.Time{}, wake: make(chan struct{}, 1), finished: make(chan struct{})}
	for i := range v.managers {
		if m := &v.managers[i]; m.on && q.setup.p.Serve(m.Info) == nil {
			b.names = append(b.names, m.Info.Name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	v.largest[q] = b
	v.version++
	recorded := []Recorded{{Batch: sizes[0], Problem: q.setup.p}}
	planner, hw := v.planner, v.planner.Hardware()[v.hardware]
	return func() tea.Msg {
		go b.work(func() error {
			defer cancel()
			if len(sizes) == 2 {
				p, _, err := planner.Problem(ctx, other, hw)
				if err != nil {
					return err
				}
				recorded = append(recorded, Recorded{Batch: sizes[1], Problem: p})
			}
			return with.MaxBatch(ctx, recorded, b.names, q.budget, b.tell)
		})
		return b.news()
	}
}

func (b *batches) work(search func() error) {
	defer close(b.finished)
	defer func() {
		if f := recover(); f != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.fail, b.fault, b.stack = fmt.Errorf("internal error: %v", f), f, debug.Stack()
		}
	}()
	err := search()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

// tell takes news from the search.
func (b *batches) tell(n BatchNews) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.began[n.Manager].IsZero() {
		b.began[n.Manager] = time.Now()
	}
	b.fresh = append(b.fresh, n)
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// news waits for news and brings it. What went wrong is only to be read once all is done.
func (b *batches) news() tea.Msg {
	if await(b.wake, b.finished) {
		return batchNewsMsg{search: b, done: true, fault: b.fault, stack: b.stack}
	}
	return batchNewsMsg{search: b}
}

// onNews takes what a search has to say, unless it was stopped.
func (v batcher) onNews(msg batchNewsMsg) tea.Cmd {
	b := msg.search
	if b.ended {
		return nil
	}
	b.mu.Lock()
	for _, n := range b.fresh {
		b.by[n.Manager] = n
	}
	b.fresh = b.fresh[:0]
	b.err = b.fail
	b.mu.Unlock()
	if !msg.done {
		return func() tea.Msg { return b.news() }
	}
	b.ended = true
	if b.err != nil && len(b.by) == 0 {
		for q, x := range v.largest {
			if x == b {
				delete(v.largest, q)
			}
		}
		return leaf.Send(leaf.ToastMsg{Text: "the largest batch: " + b.err.Error(), Error: true})
	}
	return nil
}

// stop ends the search that is under way; what it found stays.
func (v batcher) stop() {
	for _, b := range v.largest {
		if !b.ended {
			b.cancel()
			b.ended = true
		}
	}
}

// searching reports whether a search is under way.
func (v batcher) searching() bool {
	for _, b := range v.largest {
		if !b.ended {
			return true
		}
	}
	return false
}

// text says what the largest batches are, or how far the search for them is; "" where nobody asked.
func (v batcher) text(s *leaf.State, q question) string {
	b := v.largest[q]
	if b == nil {
		return ""
	}
	done, best, today := 0, "", ""
	most := -1
	under := ""
	for _, name := range b.names {
		n, known := b.by[name]
		switch {
		case !known:
		case !n.Done:
			under = fmt.Sprintf(", %s tries %d", name, n.Trying)
			if d := b.since(name); d >= time.Second {
				under += " for " + elapsed(d)
			}
		default:
			done++
			if n.Largest > most {
				most, best = n.Largest, name
			}
			if name == v.todayName() {
				today = size(n)
			}
		}
	}
	goal := "in " + s.Units.Bytes(q.budget)
	switch {
	case !b.ended:
		return fmt.Sprintf("Looking for the largest batch %s: %d of %d managers%s.", goal, done, len(b.names), under)
	case done == 0:
		return ""
	case most == 0:
		return fmt.Sprintf("The largest batch %s: none, not even a batch of 1 fits.", goal)
	}
	text := fmt.Sprintf("The largest batch %s: %s, with %s", goal, size(b.by[best]), best)
	if today != "" && best != v.todayName() {
		text += fmt.Sprintf("; %s with %s", today, v.todayName())
	}
	if done < len(b.names) {
		text += fmt.Sprintf(" (of %d managers; the search was stopped)", done)
	}
	return text + "."
}

// since is how long a manager has been searched with.
func (b *batches) since(name string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.began[name])
}

// todayName is the manager that others are read against.
func (v batcher) todayName() string {
	if i := (plotter(v)).baselineOf(); i >= 0 {
		return v.managers[i].Info.Name
	}
	return ""
}

// size prints a largest batch, marked where it was inferred.
func size(n BatchNews) string {
	if n.Largest == 0 {
		return "none"
	}
	if n.Inferred {
		return "~" + strconv.Itoa(n.Largest)
	}
	return strconv.Itoa(n.Largest)
}

// cell is what stands in the column of largest batches.
func (v batcher) cell(s *leaf.State, q question, r *row) table.Cell {
	b := v.largest[q]
	if b == nil || r.of != plan.Ideal {
		return table.Cell{Text: " "}
	}
	switch n, known := b.by[v.managers[r.manager].Info.Name]; {
	case !known:
		return table.Cell{Text: " "}
	case !n.Done && b.ended:
		return table.Cell{Text: "–", Style: s.Theme.Faint}
	case !n.Done:
		return table.Cell{Text: strconv.Itoa(n.Trying) + "?", Style: s.Theme.Dim}
	case n.Largest == 0:
		return table.Cell{Text: "0", Style: s.Theme.Bad}
	default:
		return table.Cell{Text: size(n)}
	}
}

// of returns a row's largest batch, and whether it is known.
func (v batcher) of(r *row) (int, bool) {
	for q, b := range v.largest {
		if n, ok := b.by[v.managers[r.manager].Info.Name]; ok && n.Done && q.budget == v.budget {
			return n.Largest, r.of == plan.Ideal
		}
	}
	return 0, false
}
