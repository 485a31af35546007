package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/live"
)

// together is the newest capture of the same step of some processes.
type together struct {
	capture Capturer

	mu     sync.Mutex
	newest live.Together
}

// errCapturing means that a capture is still on its way.
var errCapturing = errors.New("the last capture of several ranks is still on its way")

func (x *together) now() live.Together {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.newest
}

// begin begins a capture, unless one is on its way.
func (x *together) begin() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.newest.ID > 0 && !x.newest.Done {
		return errCapturing
	}
	x.newest = live.Together{ID: x.newest.ID + 1}
	return nil
}

func (x *together) change(f func(t *live.Together)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(&x.newest)
}

// captureSame begins to capture the same steps of some processes.
func (f *Job) captureSame(all []*job.Process, o live.Order) error {
	var list []*job.Process
	for _, id := range o.IDs { // in their order: the first is what the others are compared with
		if i := slices.IndexFunc(all, func(p *job.Process) bool { return p.ID == id }); i >= 0 {
			list = append(list, all[i])
		}
	}
	if len(list) == 0 {
		return errors.New("none of these ranks is in this job")
	}
	if err := f.same.begin(); err != nil {
		return err
	}
	f.work.Go(func() {
		taken := f.same.capture(f.ctx, list, max(o.Steps, 1), func(text string) {
			f.same.change(func(t *live.Together) { t.Word = text })
			f.Tell()
		})
		done := f.taken(taken)
		f.same.change(func(t *live.Together) {
			t.Windows, t.Ranks, t.Failed, t.Done = done.Windows, done.Ranks, done.Failed, true
		})
		f.Tell()
	})
	return nil
}

// taken makes timelines of what processes have captured together.
func (f *Job) taken(list []job.Taken) (done live.Together) {
	type side struct {
		id     int
		device *timeline.Device
		bytes  int64
	}
	var sides []side
	for _, x := range list {
		m := f.of(x.Process)
		r, t := m.rank(), x.Process.Info()
		r.Rank, r.PID = t.Rank, t.PID // its feed may not have come to it yet
		fail := func(err error) {
			if done.Failed != "" {
				done.Failed += "; "
			}
			done.Failed += fmt.Sprintf("%s was not captured: %v", r.Name(), err)
		}
		if x.Err != nil {
			fail(x.Err)
			continue
		}
		named := *x.Window.Trace // viewers tell traces of ranks apart by what they say of their process
		named.Process.Rank, named.Process.WorldSize, named.Process.Host = t.Rank, t.WorldSize, t.Host
		tl, err := timeline.Build(f.ctx, &named, nil)
		if err != nil {
			fail(err)
			continue
		}
		done.Windows = append(done.Windows, live.Window{ID: f.First.ids.Add(1), First: x.Window.First,
			Last: x.Window.Last, How: howCaptured(x.Window), Timeline: tl, Cost: x.Window.Cost})
		done.Ranks = append(done.Ranks, r)
		sides = append(sides, side{r.ID, tl.Main(), r.Typical.Bytes.Or(0)})
	}
	if len(sides) == 2 && sides[0].device != nil && sides[1].device != nil {
		small, large := sides[0], sides[1]
		if small.bytes > large.bytes {
			small, large = large, small
		}
		if s, ok := siteBetween(f.ctx, small.device, large.device); ok {
			f.ranks.found(large.id, s)
		}
	}
	return done
}

// siteBetween returns the call site that holds most more at the peak of b than at that of a.
func siteBetween(ctx context.Context, a, b *timeline.Device) (s site, ok bool) {
	x, err := runs.Compare(ctx, a, b)
	if err != nil {
		return s, false
	}
	for _, r := range x.Sites {
		if by := r.B - r.A; by > s.bytes && r.StackB != traces.NoStack {
			s, ok = site{r.Name, by}, true
		}
	}
	return s, ok
}
