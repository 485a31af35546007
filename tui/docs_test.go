package tui

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/samples"
	"github.com/gmemtop/gmemtop/tui/leaf"
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

func TestThePicturesInTheDocumentsAreTheScreensAsTheyAre(t *testing.T) {
	folder := filepath.Join("..", "docs", "screens")
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
	} {
		t.Run(c.name, func(t *testing.T) {
			d := start(t, Options{Loader: loaderOf(c.tls...), View: c.view, Color: "always"}, c.w, c.h)
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
