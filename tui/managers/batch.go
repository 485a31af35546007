package managers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// The largest batch and the longest sequence, manager by manager.
//
// "What fits" has a second form: not how little memory this batch needs, but how large a batch, or how long a
// sequence, fits this memory. Every answer takes a dozen plans, so a key starts the search. It runs in the
// background beside planning, and its answer is kept by the same question as the plans, so another budget
// never shows an old answer. The user must know what the sizes at other batches are based on: from one
// recording they are marked ~; from two, opened side by side, they are fitted. Two recordings at different
// sequence lengths separate length from batch; then a list lets the user choose what to search for.

// Batcher is a [Planner] that also finds the largest batch or the longest sequence. MaxBatch takes the named
// managers one after another. recorded are one or two recordings of one training at different sizes, the
// first of them the one in view. It reports each size that it tries and each answer.
type Batcher interface {
	MaxBatch(ctx context.Context, recorded []Recorded, goal Goal, names []string, budget int64,
		update func(BatchNews)) error
}

// Recorded is a problem with the batch size of its recording, and the sequence length, 0 if that does not
// matter.
type Recorded struct {
	Batch, Sequence int
	Problem         *plan.Problem
}

// Goal is what to search for: the largest batch at a sequence length, 0 for the recorded one, or the longest
// sequence at a batch size.
type Goal struct {
	Longest bool
	At      int
}

// String completes "the": "largest batch at 2,048 tokens".
func (g Goal) String() string {
	switch {
	case g.Longest:
		return "longest sequence at batch " + leaf.Count(int64(g.At))
	case g.At > 0:
		return "largest batch at " + leaf.Count(int64(g.At)) + " tokens"
	}
	return "largest batch"
}

// BatchNews is how far the search is with one manager.
type BatchNews struct {
	Manager string
	// Trying is the size that is planned at this moment; Largest, once it is Done, the largest that fits, 0
	// where not even one sample does.
	Trying, Largest int
	Done            bool
	// Inferred says that sizes at other batches follow from a rule, because there is only one recording, or
	// two with the same batch.
	Inferred bool
}

// batches is what is known about the largest batches of one question.
type batches struct {
	job[BatchNews]
	goal  Goal
	by    map[string]BatchNews
	names []string // the requested managers, in the order in which they are tried
	began map[string]time.Time
	err   error
}

type (
	// roomMsg is the typed size of the memory that something should fit in.
	roomMsg struct{ bytes int64 }
	// batchMsg has the typed sizes of the recordings.
	batchMsg struct{ sizes []extent }
	// goalMsg is the chosen goal, with the sizes typed before.
	goalMsg struct {
		sizes []extent
		goal  Goal
	}
	// otherMsg asks for the other size of a goal.
	otherMsg struct {
		sizes   []extent
		longest bool
	}
)

// extent is the size of a recording; length is 0 if it was not given.
type extent struct{ batch, length int }

func (x extent) String() string {
	if x.length > 0 {
		return fmt.Sprintf("%dx%d", x.batch, x.length)
	}
	return strconv.Itoa(x.batch)
}

// search finds the largest batch and keeps the answers. It knows no other part of the view.
type search struct {
	with  Batcher // nil if searching is not possible
	found map[question]*batches
	sizes string // that were typed last
}

func newSearch(p Planner) search {
	with, _ := p.(Batcher)
	return search{with: with, found: map[question]*batches{}}
}

// ask lets the user type the recorded sizes, two if a second recording is open, and before that a budget if
// there is none. impossible says that nothing fits in the budget.
func (x *search) ask(s *leaf.State, q question, impossible bool) tea.Cmd {
	switch {
	case q.budget <= 0:
		return askRoom(s, q)
	case impossible:
		text := "nothing fits in this budget, at any batch size that was recorded"
		return leaf.Send(leaf.ToastMsg{Text: text, Error: true})
	}
	open := 1
	title, hint := "recorded at batch", "32; the answer is inferred (~). For lengths, open two: replay A B"
	if otherThan(s) != nil {
		open = 2
		title, hint = "recorded at", "both batches: 32,64 · or at one batch, with the "+
			"sequence lengths: 8x512,8x1024"
	}
	return leaf.Send(leaf.AskMsg{Title: title, Text: x.sizes, Hint: hint,
		Answer: func(text string) (tea.Msg, error) {
			sizes, err := parseSizes(text, open)
			return batchMsg{sizes}, err
		}})
}

// askRoom lets the user type how much memory there is. The default is the device's, if known.
func askRoom(s *leaf.State, q question) tea.Cmd {
	text := ""
	if n := q.setup.device.Info.TotalBytes; n > 0 {
		text = strings.ReplaceAll(s.Units.Bytes(n), " ", "")
	}
	return leaf.Send(leaf.AskMsg{Title: "the largest batch that fits in", Text: text,
		Hint: "the memory of the GPU: 80GiB", Answer: func(text string) (tea.Msg, error) {
			n, err := parseBudget(text, q.setup.held)
			if err == nil && n <= 0 {
				err = errors.New("write how much memory there is: 80GiB")
			}
			return roomMsg{n}, err
		}})
}

// parseSizes reads one size or two, at most one per open recording: 32 is a batch, 8x512 a batch with its
// sequence length.
func parseSizes(text string, open int) ([]extent, error) {
	var sizes []extent
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		size, length, both := strings.Cut(strings.ReplaceAll(strings.ToLower(part), "×", "x"), "x")
		x := extent{}
		var err error
		if x.batch, err = sizeOf(size); err == nil && both {
			x.length, err = sizeOf(length)
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not a batch size: write 32, or 32x512 with the sequence length",
				part)
		}
		sizes = append(sizes, x)
	}
	switch {
	case len(sizes) > 2:
		return nil, errors.New("this view takes two recordings at most: " +
			"gmemtop compare --max-batch --sequence takes three or four")
	case open == 1 && sizes[0].length > 0:
		return nil, errors.New("one recording says nothing about other lengths: " +
			"write the batch alone, or open two with gmemtop replay A B")
	case len(sizes) > open:
		return nil, errors.New("one recording is open: gmemtop replay A B opens two")
	case len(sizes) < 2:
		return sizes, nil
	}
	a, b := sizes[0], sizes[1]
	switch {
	case a == b:
		return nil, errors.New("two recordings at one size say nothing about others: write the " +
			"two that differ, or one")
	case (a.length > 0) != (b.length > 0):
		return nil, errors.New("write the sequence length of both, or of neither")
	case a.batch != b.batch && a.length != b.length:
		return nil, errors.New("they differ in both batch and length, so neither can be fitted: " +
			"gmemtop compare --max-batch --sequence takes three recordings")
	}
	return sizes, nil
}

// sizeOf reads a batch size or a sequence length.
func sizeOf(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err == nil && (n < 1 || n > 1<<20) {
		err = errors.New("out of range")
	}
	return n, err
}

// pickGoal lets the user choose what to search for if the sizes allow more than one goal; otherwise it is
// nil.
func pickGoal(sizes []extent, room string) tea.Cmd {
	if len(sizes) < 2 || sizes[0].length == sizes[1].length {
		return nil
	}
	var choices []leaf.Choice
	offer := func(g Goal, detail string) {
		choices = append(choices, leaf.Choice{Title: "the " + g.String(), Detail: detail,
			Msg: goalMsg{sizes, g}})
	}
	at := sizes[0].batch
	short, long := min(sizes[0].length, sizes[1].length), max(sizes[0].length, sizes[1].length)
	offer(Goal{Longest: true, At: at}, "the batch that was recorded")
	offer(Goal{At: short}, "the shorter of the recordings")
	offer(Goal{At: long}, "the longer of the recordings")
	offer(Goal{At: min(2*long, 1<<20)}, "twice as long")
	choices = append(choices,
		leaf.Choice{Title: "the largest batch at another length …", Msg: otherMsg{sizes, false}},
		leaf.Choice{Title: "the longest sequence at another batch …", Msg: otherMsg{sizes, true}})
	return leaf.Send(leaf.PickMsg{Title: "What should fit in " + room + "?", Choices: choices,
		Footer: "This is a straight line through two lengths; attention that is not fused grows faster."})
}

// askOther lets the user type the length or the batch that a goal is at.
func askOther(msg otherMsg) tea.Cmd {
	title, hint := "sequence length", "tokens in a sample: 4096"
	if msg.longest {
		title, hint = "batch", "samples in a batch: 16"
	}
	return leaf.Send(leaf.AskMsg{Title: title, Hint: hint, Answer: func(text string) (tea.Msg, error) {
		n, err := sizeOf(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a %s", text, title)
		}
		return goalMsg{msg.sizes, Goal{Longest: msg.longest, At: n}}, nil
	}})
}

// otherThan returns the device of the recording beside the one in view, nil if there is none.
func otherThan(s *leaf.State) *timeline.Device {
	for _, t := range s.Timelines {
		if t != s.Timeline {
			return t.Main()
		}
	}
	return nil
}

// find looks for the largest size with the named managers, on the hardware of a subject.
func (x *search) find(s *leaf.State, q question, msg goalMsg, names []string, of *subject) tea.Cmd {
	other := otherThan(s)
	if len(msg.sizes) == 2 && other == nil { // it was closed meanwhile
		return nil
	}
	planner, hw := of.with, of.with.Hardware()[of.hardware]
	return x.begin(q, msg, names, func(ctx context.Context) (*plan.Problem, error) {
		p, err := planner.Problem(ctx, other, hw)
		return p, err
	})
}

// begin looks for the largest size with the named managers; read makes the problem of the second recording.
func (x *search) begin(
	q question, msg goalMsg, names []string, read func(context.Context) (*plan.Problem, error),
) tea.Cmd {
	sizes := msg.sizes
	if x.with == nil || q.budget <= 0 || len(sizes) == 0 {
		return nil
	}
	texts := make([]string, len(sizes))
	for i, size := range sizes {
		texts[i] = size.String()
	}
	x.sizes = strings.Join(texts, ",")
	x.stop()
	if len(x.found) >= kept {
		clear(x.found)
	}
	b := &batches{goal: msg.goal, names: names, by: map[string]BatchNews{}, began: map[string]time.Time{}}
	x.found[q] = b
	with := x.with
	recorded := []Recorded{{Batch: sizes[0].batch, Sequence: sizes[0].length, Problem: q.setup.p}}
	return b.start(func(ctx context.Context) error {
		if len(sizes) == 2 {
			p, err := read(ctx)
			if err != nil {
				return err
			}
			recorded = append(recorded, Recorded{Batch: sizes[1].batch, Sequence: sizes[1].length,
				Problem: p})
		}
		return with.MaxBatch(ctx, recorded, msg.goal, names, q.budget, b.tell)
	})
}

// take handles a search's messages, unless it was stopped; ok is false for any other message.
func (x *search) take(msg tea.Msg) (cmd tea.Cmd, ok bool) {
	if msg, ok := msg.(jobMsg[BatchNews]); ok {
		return x.onNews(msg), true
	}
	return nil, false
}

func (x *search) onNews(msg jobMsg[BatchNews]) tea.Cmd {
	var of question
	var b *batches
	for q, found := range x.found {
		if &found.job == msg.job {
			of, b = q, found
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
		delete(x.found, of)
		return leaf.Send(leaf.ToastMsg{Text: "the " + b.goal.String() + ": " + b.err.Error(), Error: true})
	}
	return nil
}

// stop ends the current search; its answers stay.
func (x *search) stop() {
	for _, b := range x.found {
		b.stop()
	}
}

// running reports whether a search is under way.
func (x *search) running() bool {
	for _, b := range x.found {
		if !b.ended {
			return true
		}
	}
	return false
}

// keep drops everything that is not about a setup.
func (x *search) keep(st *setup) {
	maps.DeleteFunc(x.found, func(q question, _ *batches) bool { return q.setup != st })
}

// text says what the largest batches are, including that of the manager in use today, or how far the search
// is; "" if nobody asked.
func (x *search) text(u timeline.Units, q question, today string) string {
	b := x.found[q]
	if b == nil {
		return ""
	}
	done, best, its := 0, "", ""
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
			if name == today {
				its = largestText(n)
			}
		}
	}
	goal := fmt.Sprintf("%s in %s", b.goal, u.Bytes(q.budget))
	tokens := ""
	if b.goal.Longest {
		tokens = " tokens"
	}
	switch {
	case !b.ended:
		return fmt.Sprintf("Looking for the %s: %d of %d managers%s.", goal, done, len(b.names), under)
	case done == 0:
		return ""
	case most == 0:
		if b.goal.Longest {
			return fmt.Sprintf("The %s: none, not even one token fits.", goal)
		}
		return fmt.Sprintf("The %s: none, not even a batch of 1 fits.", goal)
	}
	text := fmt.Sprintf("The %s: %s%s, with %s", goal, largestText(b.by[best]), tokens, best)
	if its != "" && best != today {
		text += fmt.Sprintf("; %s with %s", its, today)
	}
	if done < len(b.names) {
		text += fmt.Sprintf(" (of %d managers; the search was stopped)", done)
	}
	return text + "."
}

// largestText returns a largest batch, marked if it was inferred.
func largestText(n BatchNews) string {
	if n.Largest == 0 {
		return "none"
	}
	if n.Inferred {
		return "~" + leaf.Count(int64(n.Largest))
	}
	return leaf.Count(int64(n.Largest))
}

// cell returns a cell of the column of largest batches.
func (x *search) cell(th *theme.Theme, q question, r *row) table.Cell {
	b := x.found[q]
	if b == nil || r.of != plan.Ideal {
		return table.Cell{Text: " "}
	}
	switch n, known := b.by[r.m.Info.Name]; {
	case !known:
		return table.Cell{Text: " "}
	case !n.Done && b.ended:
		return table.Cell{Text: "–", Style: th.Faint}
	case !n.Done:
		return table.Cell{Text: strconv.Itoa(n.Trying) + "?", Style: th.Dim}
	case n.Largest == 0:
		return table.Cell{Text: "0", Style: th.Bad}
	default:
		return table.Cell{Text: largestText(n)}
	}
}

// title returns the heading of that column, "" if nobody asked.
func (x *search) title(q question) string {
	switch b := x.found[q]; {
	case b == nil:
		return ""
	case b.goal.Longest:
		return "length"
	}
	return "batch"
}

// of returns a row's largest batch, and whether it is known.
func (x *search) of(q question, r *row) (int, bool) {
	if b := x.found[q]; b != nil {
		if n, ok := b.by[r.m.Info.Name]; ok && n.Done {
			return n.Largest, r.of == plan.Ideal
		}
	}
	return 0, false
}
