package tui

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	news "github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/samples"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/live"
	shown "github.com/gmemtop/gmemtop/tui/managers"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

// sample returns the timeline of an embedded sample.
func sample(t *testing.T, name string) *timeline.Timeline {
	t.Helper()
	data, err := samples.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, data, name+".gmt")
}

func read(t *testing.T, data []byte, path string) *timeline.Timeline {
	t.Helper()
	tr, err := gmt.Read(context.Background(), bytes.NewReader(data), nil)
	if err != nil {
		t.Fatal(err)
	}
	tr.Source.Path = path
	tl, err := timeline.Build(context.Background(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

// network plans one step of ResNet-50 on an A100 with real managers, leaving out those that search for
// seconds and their measured planning times: the same picture on every machine.
type network struct {
	answers map[string]*replay.Comparison
	// nil to leave out what PyTorch can run today
	eager func(context.Context, *plan.Problem, *plan.Plan) (*plan.Plan, error)
}

var pictured = []string{"caching", "smartpool", "vdnn-all", "autoswap", "dtr", "capuchin", "delta", "home",
	"joint"}

// recorded is two steps of examples/gpt2.py on a CPU, op by op: --batch 8 --sequence 96 --layers 4 --width
// 128 --heads 4 --vocabulary 500.
func recorded(t *testing.T) *timeline.Timeline {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "gpt2-steps.gmt"))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, data, "gpt2.py")
}

// toggled plans a recorded training for the machine that ran it, and reports for a plan what that training
// reported when it ran: the figures of the live line are those that gmemtop run showed on the recording's
// machine, a busy one with 2 cores.
type toggled struct{ network }

func (*toggled) Problem(ctx context.Context, d *timeline.Device, hw plan.Hardware) (*plan.Problem, error) {
	return plan.FromDevice(ctx, d, plan.BuildOptions{Iteration: plan.SteadyIteration, Hardware: hw,
		Name: "gpt2.py"})
}

var _ shown.Trainer = (*toggled)(nil)

func (*toggled) Elsewhere() string { return "" }

func (*toggled) TakeAway(context.Context) error { return nil }

func (*toggled) Training() string { return "process 4242: python gpt2.py" }

func (*toggled) Train(ctx context.Context, _ string, _ int64, _ plan.Hardware, tell func(news.News)) error {
	tell(news.News{Stage: news.On, Steps: 63, Before: 292e6, Step: 404e6, PredictedStep: 292e6,
		PeakBefore: 42_677_043, Peak: 20_027_801, Predicted: 20_027_801})
	<-ctx.Done()
	return nil
}

func (*network) Managers() []shown.Manager {
	var list []shown.Manager
	for _, m := range managers.All() {
		if slices.Contains(pictured, m.Info().Name) {
			list = append(list, shown.Manager{Info: m.Info(), On: true})
		}
	}
	return list
}

func (*network) Hardware() []plan.Hardware {
	hw, _ := hardware.ByName("A100")
	return []plan.Hardware{hw}
}

func (*network) Problem(_ context.Context, _ *timeline.Device, hw plan.Hardware) (*plan.Problem, error) {
	n, err := networks.ByName("resnet-50")
	if err != nil {
		return nil, err
	}
	return n.Problem(64, hw, networks.Options{})
}

// timeline is the step that the network plans, as a recording of its tensors would show it.
func (n *network) timeline(t *testing.T) *timeline.Timeline {
	t.Helper()
	p, err := n.Problem(t.Context(), nil, n.Hardware()[0])
	if err != nil {
		t.Fatal(err)
	}
	b := traces.NewBuilder()
	b.T.Source = traces.Source{Format: "gmt", Path: "resnet-50-b64.gmt"}
	b.T.Clock.HasTime = true
	dev := b.Device(traces.DeviceGPU, 0)
	b.T.Devices[dev].Name, b.T.Devices[dev].TotalBytes = "A100", 40<<30
	addresses := make([]uint64, len(p.Buffers)) // one after the other: where they lie is what plans decide
	next := uint64(0x7f0000000000)
	for i := range p.Buffers {
		addresses[i] = next
		next += uint64(p.Buffers[i].Size+511) &^ 511
	}
	now := int64(0)
	event := func(i int, a traces.Action) {
		buf := &p.Buffers[i]
		d := b.Detail(traces.Detail{ForwardStack: traces.NoStack, Category: b.String(buf.Category.String())})
		b.Event(traces.Event{Time: now, Addr: addresses[i], Size: buf.Size, Stack: traces.NoStack,
			Device: dev, Action: a, Detail: d})
	}
	for i := range p.Buffers {
		if p.Buffers[i].Life == plan.Persistent {
			event(i, traces.Alloc)
		}
	}
	for op := range len(p.Ops) + 1 {
		for _, a := range []traces.Action{traces.FreeCompleted, traces.Alloc} {
			for i := range p.Buffers {
				buf := &p.Buffers[i]
				at := map[traces.Action]plan.OpID{traces.FreeCompleted: buf.End, traces.Alloc: buf.Start}[a]
				if buf.Life == plan.Inside && int(at) == op {
					event(i, a)
				}
			}
		}
		if op < len(p.Ops) {
			now += p.Ops[op].Duration
		}
	}
	tl, err := timeline.Build(t.Context(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func (n *network) Compare(ctx context.Context, p *plan.Problem, names []string, budget int64,
	update func(replay.Progress)) (*replay.Comparison, error) {
	list, err := managers.Select(strings.Join(names, ","))
	if err != nil {
		return nil, err
	}
	key := fmt.Sprint(names, budget)
	c := n.answers[key]
	if c == nil { // two pictures ask the same
		if c, err = replay.Compare(ctx, p, list, replay.Options{Budget: budget, Seed: 1, Eager: n.eager,
			Targets: []replay.Target{replay.Simulated{Charts: true}}}); err != nil {
			return nil, err
		}
		n.answers[key] = c
	}
	for i := range c.Results {
		r := c.Results[i]
		if r.Plan != nil {
			r.Plan.Planning = 0
		}
		update(replay.Progress{Manager: r.Info.Name, Done: true, Results: []replay.Result{r}})
	}
	return c, nil
}

func TestPicturesInTheDocsMatchTheScreens(t *testing.T) {
	folder := filepath.Join("..", "docs", "screens")
	planner := &network{answers: map[string]*replay.Comparison{}}
	gpt := []*timeline.Timeline{sample(t, "gpt-cpu")}
	resnet := []*timeline.Timeline{planner.timeline(t)}
	segments := []*timeline.Timeline{training(t, "made-up.gmt", 256<<20)}
	both := []*timeline.Timeline{sample(t, "resnet18-cpu"), gpt[0]}
	for _, c := range []struct {
		name string
		tls  []*timeline.Timeline
		view leaf.ID
		w, h int
		keys []string
	}{
		{"overview", gpt, leaf.Overview, 120, 36, nil},
		{"timeline", gpt, leaf.Timeline, 120, 36, []string{"up", "up", "up"}},
		{"peak", gpt, leaf.Peak, 120, 36, nil},
		{"segments", segments, leaf.Segments, 120, 30, nil},
		{"iterations", gpt, leaf.Iterations, 120, 36, nil},
		{"allocations", gpt, leaf.Allocations, 120, 30, nil},
		{"levers", gpt, leaf.OOM, 120, 36, nil},
		{"diff", both, leaf.Diff, 120, 36, nil},
		{"trace", gpt, leaf.Trace, 120, 30, nil},
		{"managers", resnet, leaf.Managers, 120, 40, []string{"b", "ctrl+u", "5", "0", "%", "enter"}},
		{"inside", resnet, leaf.Managers, 120, 44, []string{"b", "ctrl+u", "5", "0", "%", "enter", "d",
			"enter"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := start(t, Options{Loader: loaderOf(c.tls...), View: c.view, Color: "always",
				Planner: planner}, c.w, c.h)
			d.press(c.keys...)
			d.picture(filepath.Join(folder, c.name+".svg"))
		})
	}
	t.Run("train", func(t *testing.T) {
		f := &jobFeed{look: live.Look{Title: "gpt2.py"}}
		d := start(t, Options{Feed: f, Color: "always",
			Planner: &toggled{network{answers: map[string]*replay.Comparison{}, eager: managers.Eager}}}, 120,
			40)
		f.tell(d, func(l *live.Look) {
			l.State = live.Running
			l.Steps = append(l.Steps, live.Step{Index: 3, Duration: maybe.Known(300e6),
				Bytes: maybe.Known(1 << 20)})
			l.Windows = append(l.Windows, live.Window{ID: 1, First: 2, Last: 3, How: "op by op",
				Timeline: recorded(t)})
		})
		d.press("m", "-", "-", "-", "-") // a budget that it does not fit in as it is
		d.holding("T")
		d.press("up") // what the status line says of the row itself was not kept
		d.picture(filepath.Join(folder, "train.svg"))
		d.press("down", "T") // the training goes on without it
	})
}

// picture compares the screen with the picture in a file, or draws it again.
func (d *driver) picture(path string) {
	d.t.Helper()
	var picture bytes.Buffer
	if err := write(d.m.shot().picture)(context.Background(), &picture); err != nil {
		d.t.Fatal(err)
	}
	if *viewtest.Update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			d.t.Fatal(err)
		}
		if err := os.WriteFile(path, picture.Bytes(), 0o644); err != nil {
			d.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatalf("%v; run go test ./tui -run Pictures -update", err)
	}
	if !bytes.Equal(picture.Bytes(), want) {
		d.t.Errorf("%s is stale: run go test ./tui -run Pictures -update and look at it", path)
	}
}

// holding presses a key that starts something endless, and takes one message from it and the sentence about
// that.
func (d *driver) holding(key string) {
	_, cmd := d.m.Update(keyPress(key))
	d.each(cmd, func(msg tea.Msg) {
		if strings.HasPrefix(reflect.TypeOf(msg).Name(), "jobMsg[") {
			_, next := d.m.Update(msg)
			answers := make(chan tea.Msg, 1)
			go d.each(next, func(msg tea.Msg) { answers <- msg })
			for answer := range answers {
				if strings.HasPrefix(reflect.TypeOf(answer).Name(), "answer[") {
					d.m.Update(answer)
					return
				}
			}
		}
		d.send(msg)
	})
	d.m.toast.text = ""
	d.m.View()
}
