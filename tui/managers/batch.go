package managers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	job[BatchNews]
	by    map[string]BatchNews
	names []string // that were asked for, in the order in which they are taken
	began map[string]time.Time
	err   error
}

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
	b := &batches{by: map[string]BatchNews{}, began: map[string]time.Time{}}
	for i := range v.managers {
		if m := &v.managers[i]; m.on && q.setup.p.Serve(m.Info) == nil {
			b.names = append(b.names, m.Info.Name)
		}
	}
	v.largest[q] = b
	v.version++
	recorded := []Recorded{{Batch: sizes[0], Problem: q.setup.p}}
	planner, hw := v.planner, v.planner.Hardware()[v.hardware]
	return b.start(func(ctx context.Context) error {
		if len(sizes) == 2 {
			p, _, err := planner.Problem(ctx, other, hw)
			if err != nil {
				return err
			}
			recorded = append(recorded, Recorded{Batch: sizes[1], Problem: p})
		}
		return with.MaxBatch(ctx, recorded, b.names, q.budget, b.tell)
	})
}

// onNews takes what a search has to say, unless it was stopped.
func (v batcher) onNews(msg jobMsg[BatchNews]) tea.Cmd {
	var of question
	var b *batches
	for q, x := range v.largest {
		if &x.job == msg.job {
			of, b = q, x
		}
	}
	if b == nil || b.ended {
		return nil
	}
	fresh, err := b.take()
	for _, n := range fresh {
		if b.began[n.Manager].IsZero() {
			b.began[n.Manager] = time.Now()
		}
		b.by[n.Manager] = n
	}
	b.err = err
	if !msg.done {
		return b.news
	}
	b.ended = true
	if b.err != nil && len(b.by) == 0 {
		delete(v.largest, of)
		return leaf.Send(leaf.ToastMsg{Text: "the largest batch: " + b.err.Error(), Error: true})
	}
	return nil
}

// stop ends the search that is under way; what it found stays.
func (v batcher) stop() {
	for _, b := range v.largest {
		b.stop()
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
			if d := time.Since(b.began[name]); d >= time.Second {
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
