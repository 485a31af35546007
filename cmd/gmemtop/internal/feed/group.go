package feed

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/stats"
	"github.com/gmemtop/gmemtop/tui/live"
)

// ranks compares the processes of a job, off the event loop.
type ranks struct {
	mu    sync.Mutex
	group *runs.Group
	sites map[int]site // by process: what a capture found
}

// site is the call site that holds more in a process than in a typical one.
type site struct {
	name  string
	bytes int64
}

const (
	// compareEvery is the least time between two comparisons: many fast processes send news all the time.
	compareEvery = 500 * time.Millisecond
	// lookBack is how many steps are searched for the first one in which a process differs, and lookAt the
	// number of other processes with which it is compared there.
	lookBack = 512
	lookAt   = 64
	// skewSteps is of how many steps the skew is shown. Ranks may be ahead of others by as many.
	skewSteps = 64
)

// now returns the newest comparison, nil before the first.
func (r *ranks) now() *runs.Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.group
}

func (r *ranks) set(g *runs.Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.group = g
}

// found notes what a capture found about a process.
func (r *ranks) found(id int, s site) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sites == nil {
		r.sites = map[int]site{}
	}
	r.sites[id] = s
}

func (r *ranks) site(id int) (s site, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok = r.sites[id]
	return s, ok
}

// compare keeps the comparison up to date until the feed ends.
func (f *Job) compare() {
	for version := int64(0); f.Wait(f.ctx, version) == nil; {
		version = f.Now()
		if list := f.job.Processes(); len(list) > 1 {
			f.ranks.set(f.groupOf(list))
			f.Tell()
			version = f.Now()
		}
		select {
		case <-f.ctx.Done():
			return
		case <-time.After(compareEvery):
		}
	}
}

// groupOf compares processes.
func (f *Job) groupOf(list []*job.Process) *runs.Group {
	ranks := make([]runs.GroupRank, len(list))
	views := make(map[int]capture.View, len(list))
	for i, p := range list {
		v := p.History.Snapshot()
		views[p.ID] = v
		r := f.of(p).rank()
		ranks[i] = groupRank(&r, &v)
		ranks[i].Growth = f.of(p).growth()
	}
	g := runs.NewGroup(ranks)
	alone := make([][]runs.Sample, len(g.Ranks))
	for i := range g.Ranks {
		list := views[g.Ranks[i].ID].Steps
		alone[i] = samplesOf(list[max(len(list)-2*skewSteps, 0):], true)
	}
	g.Skews = runs.SkewsOf(g.Class, alone, skewSteps)
	if g.First < 0 {
		return g
	}
	var others [][]runs.Sample
	stride := max(g.Classes[g.Class[g.First]].Size/lookAt, 1)
	for i := 0; i < len(g.Ranks); i += stride {
		if i != g.First && g.Class[i] == g.Class[g.First] {
			others = append(others, samplesOf(views[g.Ranks[i].ID].Steps, g.Why.Slow))
		}
	}
	first := &g.Ranks[g.First]
	g.Why.Since, g.Why.Always = runs.Since(samplesOf(views[first.ID].Steps, g.Why.Slow), others)
	if s, ok := f.ranks.site(first.ID); ok && !g.Why.Slow {
		g.Why.Site, g.Why.SiteBytes = s.name, s.bytes
	}
	return g
}

// samplesOf returns the figure of the last steps in which a process differs.
func samplesOf(steps []capture.Step, time bool) []runs.Sample {
	steps = steps[max(len(steps)-lookBack, 0):]
	list := make([]runs.Sample, 0, len(steps))
	for i := range steps {
		s := &steps[i]
		figure := maybe.First(s.Allocated, s.RSS)
		if time {
			p := runs.Peer{Duration: maybe.Known(s.End - s.Start), Forward: s.Forward, Optimizer: s.Optimizer}
			figure = p.Alone()
		}
		if v, ok := figure.Value(); ok {
			list = append(list, runs.Sample{Step: s.Index, Value: v})
		}
	}
	return list
}

// groupRank returns a process as a rank of a group.
func groupRank(r *live.Rank, v *capture.View) runs.GroupRank {
	t := &v.Info
	m := runs.GroupRank{ID: r.ID, Rank: t.Rank, PID: t.PID, Host: report.Printable(t.Host), Axes: axesOf(t),
		Step: r.Step, Usual: r.Typical, Room: roomOf(t), Lost: r.Lost, Captured: r.Captured}
	switch {
	case r.State == live.Ended && r.Failed:
		m.State = runs.State{Is: runs.Failed, Word: cmp.Or(r.Word, "failed")}
	case r.State == live.Ended:
		m.State = runs.State{Is: runs.Done, Word: strings.TrimSuffix("ended: "+r.Word, ": ")}
	case v.Missing:
		m.State = runs.State{Is: runs.Missing, Word: report.Printable(v.Severed)}
	case v.Severed != "":
		m.State = runs.State{Is: runs.Late, Word: report.Printable(v.Severed)}
	case len(v.Steps) == 0:
		m.State = runs.State{Is: runs.Starting}
	}
	for i := len(v.Steps) - 1; i >= max(len(v.Steps)-64, 0); i-- { // some figures are taken less often
		s := &v.Steps[i]
		held := maybe.First(s.Allocated, s.RSS)
		if !s.Parameters.IsKnown() || !held.IsKnown() {
			continue
		}
		rest := held.Minus(maybe.Sum(s.Parameters, s.Gradients, s.OptimizerState))
		m.Entries = [...]maybe.Int{s.Parameters, s.Gradients, s.OptimizerState, rest}
		break
	}
	return m
}

// axesOf returns where a process stands, with names that may be printed.
func axesOf(t *capture.Info) []traces.Axis {
	list := slices.Clone(t.Axes)
	for i := range list {
		list[i].Name = report.Printable(list[i].Name)
	}
	return list
}

// roomOf is how much memory a process may have: what its first step found, or else the memory of its GPU.
func roomOf(t *capture.Info) maybe.Int {
	number, ok := strings.CutPrefix(t.Device, "cuda:")
	if t.Room.IsKnown() || !ok {
		return t.Room
	}
	ordinal, err := strconv.Atoi(number)
	i := slices.IndexFunc(t.GPUs, func(d traces.Device) bool { return d.Ordinal == ordinal })
	if err != nil || i < 0 || t.GPUs[i].TotalBytes <= 0 {
		return maybe.Int{}
	}
	return maybe.Known(t.GPUs[i].TotalBytes)
}

// growth is by how many bytes the process's memory grows with each step, 0 if it does not. A single jump
// makes a slope as well, so the last steps have to grow, too.
func (f *Process) growth() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.look.Report.Trend
	if !t.Leaking || t.Slope <= 0 || f.look.State == live.Ended {
		return 0
	}
	last := f.look.Steps[max(len(f.look.Steps)-2*growsFor, 0):]
	half := len(last) / 2
	if lately := middle(last[half:]) - middle(last[:half]); float64(lately) < t.Slope*float64(half)/4 {
		return 0
	}
	return t.Slope
}

// growsFor is for how many of its last steps a process's memory must have grown against as many before.
const growsFor = 32

// middle is the median of what steps held.
func middle(list []live.Step) int64 {
	var known []int64
	for i := range list {
		if v, ok := list[i].Bytes.Value(); ok {
			known = append(known, v)
		}
	}
	return stats.Median(known)
}

// Capturer captures the same steps of some processes of a job. tell is called with progress messages.
type Capturer func(ctx context.Context, list []*job.Process, steps int, tell func(text string)) []job.Taken
