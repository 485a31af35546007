package capture

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// A viewer draws at its own pace, and a source sends at its own. History is between them: everything is
// appended under one lock, and a snapshot is slices of what was appended, shared and never copied. That is
// sound because an entry is never written twice: steps are in a slice that is only appended to. Once it holds
// an eighth more than the limit, the newest move to a new slice and the others are rolled up, so that the
// amortised cost of a step is constant and a snapshot that is still drawn keeps the old one. Rejected: a
// ring, which overwrites in place what a viewer may be reading; moving at twice the limit, which keeps half
// of the memory for steps that nobody sees.

// Default limits of a History.
const (
	MaxSteps       = 200_000
	maxWindowBytes = 512 << 20
	maxOutput      = 4 << 20
)

// maxAnswers is how many answers a History keeps: more than all viewers of a process can be waiting for.
const maxAnswers = 1000

// Limits bound a History; zero fields have the defaults above.
type Limits struct {
	Steps       int
	WindowBytes int64
	Output      int
	// Spans is how many spans sum up the steps before.
	Spans int
}

// Most is how many steps are kept one by one at most, before those beyond Steps are rolled up.
func (l Limits) Most() int { return l.Steps + max(l.Steps/8, 1) }

// Lost is a count of things that were seen and not kept.
type Lost struct {
	Name, Detail string
	Count        int64
}

// View is the content of a History at one moment. Its slices are shared and must not be written to.
type View struct {
	Info  Info
	Began bool
	// Steps are the newest steps, oldest first: all of them, or at least as many as the limit. Rolled sums up
	// those before, oldest first.
	Steps  []Step
	Rolled []Span
	// Windows are the newest windows, oldest first, as many as the limit of bytes allows and at least one.
	Windows []Window
	Notices []Notice
	// Answers are the newest answers to orders, oldest first.
	Answers []Answer
	Losses  []Lost
	// Output is the tail of what the command wrote; OutputCut is the number of bytes that stood before it.
	Output    []byte
	OutputCut int64
	// Severed says why nothing comes from the source any more although the job goes on, "" while it is
	// connected. Missing means that this has lasted for so long that its machine counts as lost.
	Severed string
	Missing bool
	Ended   bool
	End     End
	// Version grows with every change.
	Version uint64
}

// History is a Sink that keeps what viewers show. It is safe for concurrent use.
type History struct {
	mu      sync.Mutex
	limits  Limits
	view    View
	bytes   int64
	spans   Spans         // what the view's Rolled shares
	changed chan struct{} // closed at the next change; nil while nothing waits
}

// NewHistory returns an empty History.
func NewHistory(l Limits) *History {
	if l.Steps <= 0 {
		l.Steps = MaxSteps
	}
	if l.WindowBytes <= 0 {
		l.WindowBytes = maxWindowBytes
	}
	if l.Output <= 0 {
		l.Output = maxOutput
	}
	return &History{limits: l, spans: NewSpans(l.Spans)}
}

// Limits are what bounds the history.
func (s *History) Limits() Limits { return s.limits }

// Snapshot returns what the history holds now, in constant time.
func (s *History) Snapshot() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.view
	v.Steps, v.Rolled = slices.Clip(v.Steps), slices.Clip(v.Rolled)
	v.Windows, v.Notices = slices.Clip(v.Windows), slices.Clip(v.Notices)
	v.Answers = slices.Clip(v.Answers[max(len(v.Answers)-maxAnswers, 0):])
	v.Losses, v.Output = slices.Clip(v.Losses), slices.Clip(v.Output)
	return v
}

// Wait returns the first view that is newer than version, or ctx.Err() when ctx is done before there is one.
func (s *History) Wait(ctx context.Context, version uint64) (View, error) {
	for {
		s.mu.Lock()
		if s.view.Version != version {
			s.mu.Unlock()
			return s.Snapshot(), nil
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return View{}, ctx.Err()
		}
	}
}

// Until calls f with the current view and each newer one, until f reports that it is done or returns an
// error, or ctx is done. Views between two calls of f may be skipped.
func (s *History) Until(ctx context.Context, f func(v *View) (done bool, err error)) error {
	for v := s.Snapshot(); ; {
		done, err := f(&v)
		if done || err != nil {
			return err
		}
		if v, err = s.Wait(ctx, v.Version); err != nil {
			return err
		}
	}
}

// change runs f under the lock and wakes the waiters.
func (s *History) change(f func(v *View)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.view)
	s.view.Version++
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// Begin implements Sink.
func (s *History) Begin(t Info) {
	s.change(func(v *View) { v.Info, v.Began, v.Severed, v.Missing = t, true, "", false })
}

// Sever says why nothing comes from the source any more, until the source begins again. missing is
// [View.Missing].
func (s *History) Sever(why string, missing bool) {
	s.change(func(v *View) { v.Severed, v.Missing = why, missing })
}

// Step implements Sink.
func (s *History) Step(x Step) {
	s.change(func(v *View) {
		if most := s.limits.Most(); len(v.Steps) >= most {
			s.roll(v, len(v.Steps)-s.limits.Steps)
		}
		v.Steps = append(v.Steps, x)
	})
}

// roll sums up the oldest steps.
func (s *History) roll(v *View, old int) {
	s.spans.List = slices.Clone(s.spans.List) // views share it
	for i := range v.Steps[:old] {
		p := SpanOf(&v.Steps[i])
		s.spans.Add(&p)
	}
	v.Rolled = s.spans.List
	v.Steps = append(make([]Step, 0, s.limits.Most()), v.Steps[old:]...)
}

// Bridge adds spans of steps that are missing between others. The steps before the last of these spans are
// summed up, too, since all spans are older than all single steps.
func (s *History) Bridge(list []Span) {
	if len(list) == 0 {
		return
	}
	s.change(func(v *View) {
		old, _ := slices.BinarySearchFunc(v.Steps, list[len(list)-1].Last,
			func(x Step, at int64) int { return cmp.Compare(x.Index, at) })
		s.roll(v, old)
		for i := range list {
			s.spans.Insert(&list[i])
		}
		v.Rolled = s.spans.List
	})
}

// Precede adds spans of steps that came before all others.
func (s *History) Precede(list []Span) {
	s.change(func(v *View) {
		all := NewSpans(s.limits.Spans)
		for i := range list {
			all.Add(&list[i])
		}
		for i := range v.Rolled {
			all.Add(&v.Rolled[i])
		}
		s.spans, v.Rolled = all, all.List
	})
}

// Window implements Sink. The oldest windows go when the limit of bytes is passed; the newest always stays.
func (s *History) Window(w Window) {
	if w.Bytes == 0 && w.Trace != nil {
		w.Bytes = Size(w.Trace)
	}
	s.change(func(v *View) {
		s.bytes += w.Bytes
		kept := append(slices.Clone(v.Windows), w)
		for len(kept) > 1 && s.bytes > s.limits.WindowBytes {
			s.bytes -= kept[0].Bytes
			kept = kept[1:]
		}
		v.Windows = slices.Clone(kept)
	})
}

// Notice implements Sink.
func (s *History) Notice(n Notice) {
	s.change(func(v *View) {
		kept := slices.DeleteFunc(slices.Clone(v.Notices), func(o Notice) bool { return o.Key == n.Key })
		if n.Text != "" {
			kept = append(kept, n)
		}
		v.Notices = kept
	})
}

// Answer implements Sink.
func (s *History) Answer(a Answer) {
	s.change(func(v *View) {
		if len(v.Answers) >= 2*maxAnswers {
			v.Answers = append(make([]Answer, 0, 2*maxAnswers), v.Answers[len(v.Answers)-maxAnswers:]...)
		}
		v.Answers = append(v.Answers, a)
	})
}

// Answered returns the newest answer to an order. ok is false if there is no answer yet.
func (v *View) Answered(id OrderID) (a Answer, ok bool) {
	for i := len(v.Answers) - 1; i >= 0; i-- {
		if v.Answers[i].Order == id {
			return v.Answers[i], true
		}
	}
	return Answer{}, false
}

// Said returns the notice of a key, "" for none.
func (v *View) Said(key string) string {
	for _, n := range v.Notices {
		if n.Key == key {
			return n.Text
		}
	}
	return ""
}

// Lose implements Sink.
func (s *History) Lose(name string, n int64, detail string) {
	s.change(func(v *View) {
		kept := slices.Clone(v.Losses)
		i := slices.IndexFunc(kept, func(l Lost) bool { return l.Name == name })
		if i < 0 {
			i = len(kept)
			kept = append(kept, Lost{Name: name, Detail: detail})
		}
		if kept[i].Count += n; kept[i].Count == 0 { // they have come after all
			kept = slices.Delete(kept, i, i+1)
		}
		v.Losses = kept
	})
}

// Output implements Sink.
func (s *History) Output(p []byte) {
	s.change(func(v *View) {
		if cut := len(p) - s.limits.Output; cut > 0 {
			p = p[cut:]
			v.OutputCut += int64(cut)
		}
		if len(v.Output)+len(p) > 2*s.limits.Output {
			cut := len(v.Output) - max(s.limits.Output-len(p), 0)
			v.Output = append(make([]byte, 0, 2*s.limits.Output), v.Output[cut:]...)
			v.OutputCut += int64(cut)
		}
		v.Output = append(v.Output, p...)
	})
}

// End implements Sink.
func (s *History) End(e End) {
	s.change(func(v *View) { v.End, v.Ended = e, true })
}
