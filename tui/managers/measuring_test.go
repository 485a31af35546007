package managers

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// device measures by itself; asked are the plans that it was given, by their managers.
type device struct {
	Planner
	asked []string
	fail  error
}

func (d *device) Targets(context.Context) []Target {
	return []Target{{Name: "cuda:0", About: "a device"}, {Name: "cuda:1", Why: "it is busy"}}
}

func (d *device) Measure(
	_ context.Context, c *replay.Comparison, target string, update func(replay.Progress),
) error {
	d.asked = nil
	for _, r := range c.Results {
		d.asked = append(d.asked, r.Info.Name)
		u := replay.Progress{Manager: r.Info.Name, Target: target, Doing: "time"}
		update(u)
		r.Target, r.Measurement.Footprint, r.Overhead = target, 3<<20, 0.5
		u.Done, u.Results = true, []replay.Result{r}
		update(u)
	}
	return d.fail
}

// measuringOn measures with p on cuda:0.
func measuringOn(p Planner) measuring {
	m := newMeasuring(p)
	m.target = "cuda:0"
	return m
}

// slowDevice stays inside a step until leave is closed, even if asked to stop, and then until it is stopped.
type slowDevice struct {
	Planner
	inside atomic.Int32
	leave  chan struct{}
}

func (d *slowDevice) Targets(context.Context) []Target { return nil }

func (d *slowDevice) Measure(
	ctx context.Context, _ *replay.Comparison, _ string, _ func(replay.Progress),
) error {
	d.inside.Add(1)
	defer d.inside.Add(-1)
	<-d.leave
	<-ctx.Done()
	return ctx.Err()
}

// answered are rows with a plan each, and the question that they answer.
func answered(names ...string) (question, []*row) {
	var rows []*row
	for i, name := range names {
		r := &result{Result: replay.Result{Info: plan.Info{Name: name}, Plan: &plan.Plan{}, Available: true}}
		rows = append(rows, &row{manager: i, m: called(name), result: r, stands: true})
	}
	return question{&setup{p: plantest.Chain(4, 1<<20, 1e6)}, 8 << 20}, rows
}

// measured runs a measurement to its end and returns its last message to others.
func measured(t *testing.T, m *measuring, q question, rows []*row) any {
	t.Helper()
	for cmd := m.begin(q, replay.Comparison{Problem: q.setup.p}, rows); cmd != nil; {
		said := cmd()
		next, ok := m.take(said)
		if !ok {
			return said
		}
		cmd = next
	}
	return nil
}

func TestADeviceMeasuresWhatItHasNotMeasuredYet(t *testing.T) {
	d := &device{}
	m := measuringOn(d)
	q, rows := answered("caching", "ours")
	for _, c := range []struct {
		rows  []*row
		asked string
	}{{rows[:1], "caching"}, {rows, "ours"}, {rows, "caching ours"}} {
		if said := measured(t, &m, q, c.rows); said != nil || strings.Join(d.asked, " ") != c.asked {
			t.Errorf("asked is %v, want %s; said is %v", d.asked, c.asked, said)
		}
	}
	if x, ok := m.of(q, rows[1]); !ok || x.Overhead != 0.5 {
		t.Errorf("measured is %v, %v", x, ok)
	}
	cell := m.cell(theme.Dark(), q, rows[1], colMeasured, timeline.IEC.Bytes)
	list, _ := m.results(q)
	if cell.Text != "3.00 MiB" || len(list) != 2 || list[1].Measurement.Footprint != 3<<20 ||
		list[1].Overhead != 0.5 {
		t.Errorf("it shows %q, and the results are %v", cell.Text, list)
	}
	if text := m.text(q, []row{*rows[1]}, rows[1].key()); text != "" {
		t.Errorf("though nothing failed it says %q", text)
	}
	if status := m.status(timeline.IEC, q, rows[1]); !strings.Contains(status, "not as simulated") {
		t.Errorf("the status is %q", status)
	}
	replanned := *rows[1]
	again := *replanned.result
	again.Plan = &plan.Plan{}
	replanned.result = &again
	if _, ok := m.of(q, &replanned); ok {
		t.Error("another plan of the manager has the figures of the old one")
	}
	if _, ok := m.of(question{q.setup, 1}, rows[1]); ok {
		t.Error("another budget has them")
	}
	if m.keep(q.setup); m.known(q) == nil {
		t.Error("they are forgotten")
	}
	if m.keep(nil); m.known(q) != nil {
		t.Error("what is about another problem is kept")
	}
}

func TestADeviceThatIsStoppedIsNotHeard(t *testing.T) {
	m := measuringOn(&device{})
	q, rows := answered("ours")
	cmd := m.begin(q, replay.Comparison{}, rows)
	if !m.running() || m.begin(q, replay.Comparison{}, rows) != nil {
		t.Fatal("it does not run, or twice")
	}
	m.choose("")
	m.target = "cuda:0"
	m.take(cmd())
	if _, ok := m.of(q, rows[0]); ok || m.running() {
		t.Error("it goes on")
	}
}

func TestADeviceHasOneMeasurementAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slowDevice{leave: make(chan struct{})}
		m := measuringOn(d)
		q, rows := answered("ours")
		for range kept + 2 { // enough that the first ones are forgotten
			q.budget++
			go m.begin(q, replay.Comparison{}, rows)()
			synctest.Wait()
			if n := d.inside.Load(); n != 1 {
				t.Errorf("at a budget of %d bytes, %d measurements are on the device", q.budget, n)
			}
		}
		close(d.leave)
		synctest.Wait()
		if n := d.inside.Load(); n != 1 || !m.running() {
			t.Errorf("%d measurements are on the device, and %v that the last one runs", n, m.running())
		}
		m.stop()
		synctest.Wait()
		if n := d.inside.Load(); n != 0 {
			t.Fatalf("%d measurements cannot be stopped any more", n)
		}
	})
}

func TestADeviceThatFailsSaysWhy(t *testing.T) {
	m := measuringOn(&device{fail: errors.New("the device is gone")})
	q, rows := answered("ours")
	toast, _ := measured(t, &m, q, rows).(leaf.ToastMsg)
	if toast.Text != "the device is gone" || !toast.Error {
		t.Errorf("it says %v", toast)
	}
	toast, _ = measured(t, &m, q, nil).(leaf.ToastMsg)
	if !strings.HasPrefix(toast.Text, "there is no plan to run") {
		t.Errorf("with nothing to run it says %v", toast)
	}
}

func TestTargetsAreOffered(t *testing.T) {
	m := measuringOn(&device{})
	cmd, _ := m.take(m.pick()())
	choices := cmd().(leaf.PickMsg).Choices
	if len(choices) != 4 || choices[1].Title != "• cuda:0" || !choices[2].Off {
		t.Errorf("the choices are %v", choices)
	}
	none := measuring{}
	cmd, _ = none.take(none.pick()())
	choices = cmd().(leaf.PickMsg).Choices
	if choices[1].Detail != "this session has no devices" || choices[2].Detail != howToWatch {
		t.Errorf("without devices they are %v", choices)
	}
}
