package tui

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

func TestExportAsksBeforeReplacingAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	csv := Exporter{Name: "CSV", Extension: ".csv",
		Write: func(_ context.Context, w io.Writer, _ *timeline.Timeline, d *timeline.Device) error {
			_, err := io.WriteString(w, "events\n")
			return err
		}}
	broken := Exporter{Name: "broken", Extension: ".broken",
		Write: func(_ context.Context, w io.Writer, _ *timeline.Timeline, _ *timeline.Device) error {
			io.WriteString(w, "half")
			return errors.New("no room")
		}}
	d := start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0)),
		Exporters: []Exporter{csv, broken}}, 80, 24)
	d.press("e")
	d.typeText("as text")
	d.press("enter")
	d.wants("wrote train.overview.txt")
	text, err := os.ReadFile("train.overview.txt")
	if err != nil || !strings.Contains(string(text), "At the peak") ||
		strings.Contains(string(text), "\x1b") {
		t.Errorf("the screen as text is %q, %v", text, err)
	}
	d.press("e")
	d.typeText("csv")
	d.press("enter")
	if got, _ := os.ReadFile("train.csv"); string(got) != "events\n" {
		t.Errorf("the export contains %q", got)
	}
	os.WriteFile("train.csv", []byte("mine"), 0o644)
	d.press("e")
	d.typeText("csv")
	d.press("enter")
	d.wants("train.csv exists")
	d.press("enter") // keep it
	if got, _ := os.ReadFile("train.csv"); string(got) != "mine" {
		t.Errorf("after keeping the file it contains %q", got)
	}
	d.press("e")
	d.typeText("csv")
	d.press("enter", "down", "enter")
	if got, _ := os.ReadFile("train.csv"); string(got) != "events\n" {
		t.Errorf("after replacing the file it contains %q", got)
	}
	d.press("e")
	d.typeText("broken")
	d.press("enter")
	d.wants("no room")
	left, _ := filepath.Glob("*")
	hidden, _ := filepath.Glob(".gmemtop-*")
	if len(left) != 2 || len(hidden) != 0 {
		t.Errorf("the folder contains %v and %v", left, hidden)
	}
}

func TestExportAsksForTheMoment(t *testing.T) {
	t.Chdir(t.TempDir())
	png := Exporter{Name: "PNG: as pixels", Extension: ".png",
		Moment: func(_ *timeline.Device, at string) (func(context.Context, io.Writer) error, error) {
			if at == "noon" {
				return nil, errors.New("noon is no moment")
			}
			return write("the picture of " + at), nil
		}}
	d := start(t, Options{Loader: loaderOf(training(t, "train.gmt", 0)), Exporters: []Exporter{png}}, 80, 24)
	choose := func(at string) {
		d.press("e")
		d.typeText("one moment")
		d.press("enter")
		d.typeText(at)
		d.press("enter")
	}
	for at, file := range map[string]string{"": "train.peak.png", "IT 3": "train.it3.png"} {
		choose(at)
		d.wants("wrote " + file)
		want := "the picture of " + cmp.Or(at, "peak")
		if got, err := os.ReadFile(file); string(got) != want {
			t.Errorf("%s contains %q, want %q, %v", file, got, want, err)
		}
	}
	choose("noon")
	d.wants("noon is no moment")
	d.press("esc", "2", "right") // off the peak
	at := strconv.Itoa(int(d.m.state.Cursor))
	choose("")
	d.wants("wrote train." + at + ".png")
}

func TestExportsAreNamedAfterTheirSource(t *testing.T) {
	for path, want := range map[string]string{
		"/a/train.pickle": "train", "run.pt.trace.json.gz": "run", "opt-1.3b.pickle": "opt-1.3b",
		"sample:gpt-cpu": "sample-gpt-cpu", "-": "gmemtop", ".gmt": ".gmt", "": "gmemtop",
	} {
		tr := traces.NewBuilder().Finish()
		tr.Source.Path = path
		tl, err := timeline.Build(t.Context(), tr, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := exportBase(tl); got != want {
			t.Errorf("%q is exported as %q, want %q", path, got, want)
		}
	}
}
