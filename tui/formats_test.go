package tui

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/live"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

// opened is a file of some format, written and read again as a user would open it.
func opened(t *testing.T, name string, write func(io.Writer) error) *timeline.Timeline {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	tr, err := load.Open(t.Context(), path, load.Options{NoCache: true})
	if err != nil {
		t.Fatal(err)
	}
	tr.Source.Path = "runs/" + name // the same on every machine
	tl, err := timeline.Build(t.Context(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

// snapshot is a snapshot by PyTorch's name of the trace of a training.
func snapshot(t *testing.T, of viewtest.Training, change func(*traces.Trace)) *timeline.Timeline {
	t.Helper()
	tr := of.Timeline(t).Trace
	if change != nil {
		change(tr)
	}
	return opened(t, "snapshot.pickle", func(w io.Writer) error {
		return torchsnapshot.Write(context.Background(), w, tr)
	})
}

// jax is a memory profile as jax.profiler.save_device_memory_profile writes it.
func jax(w io.Writer) error {
	function := func(id uint64, name, file string) *profile.Function {
		return &profile.Function{ID: id, Name: name, Filename: file}
	}
	step, initial := function(1, "train_step", "train.py"), function(2, "init", "model.py")
	outer := &profile.Location{ID: 1, Line: []profile.Line{{Function: step, Line: 40}}}
	inner := &profile.Location{ID: 2,
		Line: []profile.Line{{Function: initial, Line: 7}, {Function: step, Line: 38}}}
	sample := func(count, size int64, kind string, at ...*profile.Location) *profile.Sample {
		return &profile.Sample{Value: []int64{count, size}, Location: at,
			Label: map[string][]string{"kind": {kind}, "device": {"gpu:0"}}}
	}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{
			{Type: "allocations", Unit: "count"}, {Type: "space", Unit: "bytes"},
		},
		Function: []*profile.Function{step, initial}, Location: []*profile.Location{outer, inner},
		Sample: []*profile.Sample{
			sample(24, 3<<30, "buffer", inner, outer), sample(9, 700<<20, "buffer", outer),
			sample(2, 6<<20, "executable"),
		},
		TimeNanos: 1_700_000_000e9,
	}
	return p.Write(w)
}

// pipedream is a profile of layers, as PipeDream's profiler writes them.
func pipedream(w io.Writer) error {
	var b strings.Builder
	kinds := []string{"Conv2d", "ReLU(inplace)", "Conv2d", "MaxPool2d", "Linear", "Linear"}
	fmt.Fprintln(&b, "node1 -- Input -- forward_compute_time=0.0, backward_compute_time=0.0, "+
		"activation_size=19267584.0, parameter_size=0.0")
	for i, kind := range kinds {
		fmt.Fprintf(&b, "node%d -- %s -- forward_compute_time=%d.0, backward_compute_time=%d.0, "+
			"activation_size=%d.0, parameter_size=%d.0\n", i+2, kind, 3+i, 5+2*i, 411041792>>i, 6912<<(2*i))
	}
	for i := range kinds {
		fmt.Fprintf(&b, "\tnode%d -- node%d\n", i+1, i+2)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// TestScreensOfEveryFormat shows the views of a recording of each kind, as the readers make them: what a
// snapshot, an out-of-memory, one moment of it, a profile, a memory profile of JAX and one of PipeDream can
// answer differs, and so do the sentences for what they cannot.
func TestScreensOfEveryFormat(t *testing.T) {
	for name, tl := range map[string]*timeline.Timeline{
		"snapshot":      snapshot(t, viewtest.Training{Iterations: 3}, nil),
		"out-of-memory": snapshot(t, viewtest.Training{Iterations: 3, OOM: true}, nil),
		"profile":       sample(t, "resnet18-cpu"),
		"jax":           opened(t, "memory.prof", jax),
		"pipedream":     opened(t, "graph.txt", pipedream),
	} {
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%s-%dx%d", name, size[0], size[1]), func(t *testing.T) {
				d := start(t, Options{Loader: loaderOf(tl)}, size[0], size[1])
				d.goldenText(fmt.Sprintf("formats/%s-%dx%d", name, size[0], size[1]), d.everyView())
			})
		}
	}
}

// TestScreensOfACapturedStep shows every view of a step that was captured of a job, op by op.
func TestScreensOfACapturedStep(t *testing.T) {
	tl, step := recorded(t), captured(t, 3)
	for _, size := range sizes {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			f := &jobFeed{look: live.Look{Title: "gpt2.py"}}
			d := start(t, Options{Feed: f}, size[0], size[1])
			f.tell(d, func(l *live.Look) {
				step(l)
				l.Title, l.Windows[0].Timeline = "gpt2.py", tl
			})
			d.goldenText(fmt.Sprintf("formats/job-%dx%d", size[0], size[1]), d.everyView())
		})
	}
}

// everyView is the screen in each view of a recording, one below the other.
func (d *driver) everyView() string {
	var all strings.Builder
	for _, id := range []leaf.ID{
		leaf.Overview, leaf.Timeline, leaf.Peak, leaf.Segments, leaf.Iterations, leaf.Allocations, leaf.Ranks,
		leaf.OOM, leaf.Diff, leaf.Trace,
	} {
		d.press(string(rune(id)))
		fmt.Fprintf(&all, "view %c\n", id)
		for line := range strings.Lines(d.screen() + "\n") {
			all.WriteString(strings.TrimRight(line, " \n") + "\n")
		}
	}
	return all.String()
}
