package managers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Planning in the background.
//
// Problem: planning with a dozen managers takes from a blink to minutes; meanwhile the budget is dragged,
// managers are switched on and off, the screen wants sixty frames a second, and no answer may ever be shown
// beside a question that it does not answer.
//
// Way chosen: answers are kept by what they answer (problem, budget, manager), and the view draws what is
// kept for the question in force. There is at most one run at a time, for the managers of the question in
// force that have no answer yet; a run writes its news under a lock and a command brings it to the event
// loop, ten times a second at most. A run of another budget is cancelled when the budget changes, and what it
// still says is dropped: its pointer is its generation. While the budget is being dragged nothing is started:
// a run begins when it has rested for a moment, or at once where all answers are kept. Memory is bounded: of
// the budgets asked for, those looked at longest ago go.
//
// Rejected: one message a progress report (thousands a second from some planners, each a frame); one question
// for all managers (switching one on would plan with all anew).

// Planner plans for the view, off the event loop. Its methods may be called from several goroutines, and stop
// when their context is cancelled.
type Planner interface {
	// Managers are all managers in the order of the table, baselines first.
	Managers() []Manager
	// Hardware are the descriptions of hardware to choose from; the first is in force at first.
	Hardware() []plan.Hardware
	// Problem takes one iteration of a device to plan, and the bytes that PyTorch's caching allocator takes
	// for it with what lies outside, of which budgets in % are. What a recording cannot serve is an error
	// that wraps a [*plan.Unavailable].
	Problem(ctx context.Context, d *timeline.Device, h plan.Hardware) (p *plan.Problem, caching int64, err error)
	// Compare is [replay.Compare] with the named managers, measured with usage and spans.
	Compare(ctx context.Context, p *plan.Problem, names []string, budget int64, update func(replay.Progress)) (*replay.Comparison, error)
}

// Manager is one row's manager.
type Manager struct {
	Info plan.Info
	// On says that it is compared at first.
	On bool
}

// setup is what is planned for: one iteration on one hardware, with the figures that the view needs and that
// take longer than a frame.
type setup struct {
	device   *timeline.Device
	hardware string
	p        *plan.Problem
	caching  int64 // what 100 % is
	floor    int64 // what no budget can be below
	live     int64 // alive at the peak when everything is kept
}

type setupKey struct {
	device   *timeline.Device
	hardware int
}

func makeSetup(ctx context.Context, pl Planner, k setupKey) (*setup, error) {
	hw := pl.Hardware()[k.hardware]
	p, caching, err := pl.Problem(ctx, k.device, hw)
	if err != nil {
		return nil, err
	}
	s := &setup{device: k.device, hardware: p.Hardware.Name, p: p, caching: max(caching, 1), floor: p.MustReside().Total() + p.Outside}
	s.live, _ = p.PeakLive()
	return s, nil
}

// firstShare is the budget that opens, in % of what the caching allocator takes.
const firstShare = 70

// firstBudget is a budget that makes managers differ: well below what is taken today, and so far above what
// cannot be avoided that some should fit, where most of the memory is weights too. Where nothing can leave
// the device it is none.
func (s *setup) firstBudget() int64 {
	if !s.canMove() {
		return 0
	}
	return max(s.share(firstShare), s.floor+(s.caching-s.floor)/2)
}

// canMove reports whether the recording serves managers that move or drop buffers.
func (s *setup) canMove() bool {
	return s.p.Serve(plan.Info{Needs: accesses}) == nil
}

func (s *setup) share(percent int64) int64 { return int64(float64(s.caching) / 100 * float64(percent)) }

// result is one manager's result under one executor, with what charts draw of it.
type result struct {
	replay.Result
	shape *shape
}

// question is what answers are kept by.
type question struct {
	setup  *setup
	budget int64
}

// answers are what is known about a question, by manager.
type answers struct {
	by            map[string][]result
	err           error // concerns all managers: a budget that nothing can meet
	net, baseline int64
	used          int // when it was looked at last
}

// kept is how many questions' answers are kept: a plan and what was measured take up to a few megabytes a
// manager.
const kept = 24

// point is what stays of a result when it is forgotten: where it stood in the trade-off.
type point struct{ footprint, step int64 }

// run is one comparison under way.
type run struct {
	job[planNews]
	of       question
	names    []string
	progress map[string]replay.Progress
}

// planNews is news of one manager; net and baseline are the whole comparison's, and come last, of no manager.
type planNews struct {
	replay.Progress
	digested      []result // what was found, once it is done
	net, baseline int64
}

// settledMsg says that the budget has rested since generation.
type settledMsg struct {
	view       *View
	generation int
}

// begin starts a run and returns the command that brings its first news.
func begin(pl Planner, of question, names []string) (*run, tea.Cmd) {
	r := &run{of: of, names: names, progress: map[string]replay.Progress{}}
	return r, r.start(func(ctx context.Context) error {
		c, err := pl.Compare(ctx, of.setup.p, names, of.budget, func(u replay.Progress) {
			if ctx.Err() != nil { // what a manager says when it is stopped is no result
				return
			}
			n := planNews{Progress: u}
			if u.Done {
				n.digested = digest(of.setup.p, u.Results)
			}
			r.tell(n)
		})
		if c != nil {
			r.tell(planNews{net: c.Net, baseline: c.Baseline})
		}
		return err
	})
}

// runner is the View as what plans in the background.
type runner struct{ *View }

// onNews takes what the run in force has to say.
func (v runner) onNews(s *leaf.State, msg jobMsg[planNews]) tea.Cmd {
	r := v.run
	if r == nil || msg.job != &r.job {
		return nil
	}
	a := v.answersTo(r.of)
	fresh, err := r.take()
	for _, n := range fresh {
		switch {
		case n.Manager == "":
			if n.baseline > 0 {
				a.net, a.baseline = n.net, n.baseline
			}
			continue
		case n.Done:
			a.by[n.Manager] = n.digested
			v.remember(r.of, n.digested)
		}
		r.progress[n.Manager] = n.Progress
	}
	v.version++
	if !msg.done {
		return tea.Batch(r.news, ranking(v).refresh(s))
	}
	v.run = nil
	if err != nil && !errors.Is(err, context.Canceled) {
		a.err = err
	}
	return tea.Batch(ranking(v).refresh(s), v.plan(s))
}

// answersTo returns what is kept for a question, and lets the oldest go where there are too many.
func (v *View) answersTo(q question) *answers {
	v.looks++
	a := v.answers[q]
	if a == nil {
		a = &answers{by: map[string][]result{}}
		v.answers[q] = a
		for len(v.answers) > kept {
			var oldest question
			least := v.looks + 1
			for k, x := range v.answers {
				if x.used < least && x != a {
					oldest, least = k, x.used
				}
			}
			delete(v.answers, oldest)
		}
	}
	a.used = v.looks
	return a
}

// remember keeps where a manager stood under a budget, for its curve in the trade-off.
func (v runner) remember(q question, list []result) {
	for i := range list {
		r := &list[i]
		if !r.Available {
			continue
		}
		key := trailKey{q.setup, r.Info.Name, r.Executor}
		p := point{r.Measurement.Footprint, r.Measurement.StepTime}
		known := v.trails[key]
		for _, x := range known {
			if x == p {
				return
			}
		}
		if len(known) < 256 {
			v.trails[key] = append(known, p)
		}
	}
}

type trailKey struct {
	setup    *setup
	manager  string
	executor plan.Executor
}

// question is the one in force, and whether there is one.
func (v *View) question(s *leaf.State) (question, bool) {
	st := v.setup(s)
	if st == nil {
		return question{}, false
	}
	return question{st, v.budget}, true
}

// missing are the managers that are on, serve the problem, and have no answer to the question yet.
func (v runner) missing(q question) []string {
	a := v.answersTo(q)
	if a.err != nil {
		return nil
	}
	var names []string
	for _, name := range v.managers.serving(q.setup.p) {
		if _, known := a.by[name]; !known {
			names = append(names, name)
		}
	}
	return names
}

// plan starts a run for what is missing, unless one is under way, planning was stopped, or the budget is
// still moving.
func (v runner) plan(s *leaf.State) tea.Cmd {
	q, ok := v.question(s)
	if !ok || v.stopped || v.moving || v.run != nil && v.run.of == q {
		return nil
	}
	v.stop()
	names := v.missing(q)
	if len(names) == 0 {
		return nil
	}
	v.measuring.stop() // a device is not measured while processors plan
	var cmd tea.Cmd
	v.run, cmd = begin(v.planner, q, names)
	return cmd
}

// stop cancels the run under way: what it still says is dropped.
func (v runner) stop() {
	if v.run != nil {
		v.run.job.stop()
		v.run = nil
	}
}

// headway is how far planning with one manager is.
type headway struct {
	planning bool // it is being planned with, or waits its turn
	waits    bool
	percent  int // 0 where that is not said
	elapsed  time.Duration
}

// String says it in a few words: "34 %, 12 s".
func (h headway) String() string {
	var parts []string
	if h.percent > 0 {
		parts = append(parts, strconv.Itoa(h.percent)+" %")
	}
	if h.elapsed >= time.Second {
		parts = append(parts, elapsed(h.elapsed))
	}
	return strings.Join(parts, ", ")
}

// elapsed prints how long something has been going on, to the second.
func elapsed(d time.Duration) string {
	n := int(d.Seconds())
	if n >= 60 {
		return fmt.Sprintf("%d min %d s", n/60, n%60)
	}
	return fmt.Sprintf("%d s", n)
}

// progressOf returns how far planning with a manager is.
func (v *View) progressOf(name string) headway {
	r := v.run
	if r == nil || !slices.Contains(r.names, name) {
		return headway{}
	}
	u, begun := r.progress[name]
	if u.Done {
		return headway{}
	}
	h := headway{planning: true, waits: !begun}
	if u.Total > 0 {
		h.percent = int(min(100*float64(u.Part)/float64(u.Total), 99))
	}
	if !u.Began.IsZero() {
		h.elapsed = time.Since(u.Began)
	}
	return h
}
