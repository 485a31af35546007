package tui

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/samples"
	"github.com/gmemtop/gmemtop/tui/leaf"
	screen "github.com/gmemtop/gmemtop/tui/managers"
)

// sample returns the timeline of an embedded sample.
func sample(t *testing.T, name string) *timeline.Timeline {
	t.Helper()
	data, err := samples.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := gmt.Read(context.Background(), bytes.NewReader(data), nil)
	if err != nil {
		t.Fatal(err)
	}
	tr.Source.Path = name + ".gmt"
	tl, err := timeline.Build(context.Background(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

// network plans one step of ResNet-50 on an A100 with real managers, leaving out those that search for seconds and what they measured of their own
// time: the same picture on every machine.
type network struct{ answers map[string]*replay.Comparison }

var pictured = []string{"caching", "smartpool", "vdnn-all", "autoswap", "dtr", "capuchin", "delta", "home", "joint"}

func (*network) Managers() []screen.Manager {
	var list []screen.Manager
	for _, m := range managers.All() {
		if slices.Contains(pictured, m.Info().Name) {
			list = append(list, screen.Manager{Info: m.Info(), On: true})
		}
	}
	return list
}

func (*network) Hardware() []plan.Hardware {
	hw, _ := hardware.ByName("A100")
	return []plan.Hardware{hw}
}

func (*network) Problem(_ context.Context, _ *timeline.Device, hw plan.Hardware) (*plan.Problem, int64, error) {
	n, err := networks.ByName("resnet-50")
	if err != nil {
		return nil, 0, err
	}
	p, err := n.Problem(64, hw, networks.Options{})
	if err != nil {
		return nil, 0, err
	}
	live, _ := p.PeakLive()
	return p, live, nil
}

func (n *network) Compare(ctx context.Context, p *plan.Problem, names []string, budget int64, update func(replay.Progress)) (*replay.Comparison, error) {
	list, err := managers.Select(strings.Join(names, ","))
	if err != nil {
		return nil, err
	}
	key := fmt.Sprint(names, budget)
	c := n.answers[key]
	if c == nil { // two pictures ask the same
		if c, err = replay.Compare(ctx, p, list, replay.Options{Budget: budget, Seed: 1, Targets: []replay.Target{replay.Simulated{Charts: true}}}); err != nil {
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

func TestThePicturesInTheDocumentsAreTheScreensAsTheyAre(t *testing.T) {
	folder := filepath.Join("..", "docs", "screens")
	planner := &network{answers: map[string]*replay.Comparison{}}
	gpt := []*timeline.Timeline{sample(t, "gpt-cpu")}
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
		{"managers", gpt, leaf.Managers, 120, 40, []string{"b", "ctrl+u", "5", "0", "%", "enter"}},
		{"inside", gpt, leaf.Managers, 120, 44, []string{"b", "ctrl+u", "5", "0", "%", "enter", "d", "enter"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := start(t, Options{Loader: loaderOf(c.tls...), View: c.view, Color: "always", Planner: planner}, c.w, c.h)
			d.press(c.keys...)
			var picture bytes.Buffer
			if err := (sharer{d.m}).writePicture()(context.Background(), &picture); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(folder, c.name+".svg")
			if *update {
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, picture.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v; run go test ./tui -run Pictures -update", err)
			}
			if !bytes.Equal(picture.Bytes(), want) {
				t.Errorf("%s is stale: run go test ./tui -run Pictures -update and look at it", path)
			}
		})
	}
}
