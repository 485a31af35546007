package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/scripts/internal/trial"
)

// TestThePageSaysWhatWasFound writes the page of kept results: a plan that is as predicted, one that is not,
// one that was refused, two that were not even made, a program that learned something else, and one that was
// not run.
func TestThePageSaysWhatWasFound(t *testing.T) {
	a, err := txtar.ParseFile("testdata/page.txtar")
	if err != nil {
		t.Fatal(err)
	}
	o := options{results: t.TempDir()}
	want := ""
	for _, f := range a.Files {
		if f.Name == "want" {
			want = string(f.Data)
			continue
		}
		if err := os.WriteFile(filepath.Join(o.results, f.Name), f.Data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var page strings.Builder
	if err := o.write(&page); err != nil {
		t.Fatal(err)
	}
	got := strings.TrimPrefix(page.String(), head)
	before, rest, _ := strings.Cut(got, "\nNot run: ") // all other programs
	_, after, _ := strings.Cut(rest, "\n")
	if got = before + after; got != want {
		t.Errorf("the page is\n%s\nand not\n%s", got, want)
	}
}

// TestThePageIsThatOfTheKeptResults: a change of a result, or of how the page says it, needs the page anew.
func TestThePageIsThatOfTheKeptResults(t *testing.T) {
	page, err := os.ReadFile("../../docs/programs.md")
	if err != nil {
		t.Fatal(err)
	}
	o := options{results: filepath.Join("../..", kept)}
	var want strings.Builder
	if err := o.write(&want); err != nil {
		t.Fatal(err)
	}
	if string(page) != want.String() {
		t.Error("docs/programs.md is not made of the kept results: " +
			"go run ./scripts/programs -table > docs/programs.md")
	}
}

// Where gmemtop advises expandable segments the page says what they take, and whether that helps.
func TestThePageSaysWhetherExpandableSegmentsHelp(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		reason     string
		expandable int64
		want       string
	}{
		{"pad, or set expandable_segments:True", 84 * mib, "expandable_segments:True takes 84.0 MiB, where " +
			"PyTorch's allocator takes 96.0."},
		{"pad, or set expandable_segments:True", 96 * mib, "expandable_segments:True does not help: it " +
			"takes 96.0 MiB, and PyTorch's allocator 96.0."},
		{"its arena takes more", 84 * mib, ""},
	} {
		var page table
		page.segments(&trial.Comparison{Results: []trial.Row{
			{Manager: "caching", Target: "sim", Available: true, Footprint: 96 * mib},
			{Manager: "expandable", Target: "sim", Available: true, Footprint: c.expandable},
			{Manager: "smartpool", Target: "live", Reason: c.reason},
		}})
		_, got, _ := strings.Cut(strings.TrimSpace(page.sentences.String()), "recording, ")
		if got != c.want {
			t.Errorf("%s: %q, not %q", c.reason, got, c.want)
		}
	}
}

func TestAProgramThatTakesTooLongSaysWhatWasDone(t *testing.T) {
	o := options{limit: 14 * time.Minute}
	err := errors.New("compare: signal: killed: gmemtop: waiting for a step of process 7 to end\ngmemtop: " +
		"describing the training's steps\n")
	want := "no plan was carried out within 14m0s, after which gmemtop was still describing the training's " +
		"steps"
	if got := o.late(err).Error(); got != want {
		t.Error(got)
	}
}

func TestEachChangeThatWasTriedIsOfAProgram(t *testing.T) {
	for name := range tried {
		if !slices.ContainsFunc(programs, func(p program) bool { return p.name == name }) {
			t.Errorf("there is no program %s", name)
		}
	}
}

// TestAProgramWithoutStepsSaysWhatWasAwaited runs one that trains nothing.
func TestAProgramWithoutStepsSaysWhatWasAwaited(t *testing.T) {
	dir := t.TempDir()
	idle := filepath.Join(dir, "python")
	if err := os.WriteFile(idle, []byte("#!/bin/sh\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := options{python: idle, results: dir, limit: time.Millisecond}
	r := o.try(t.Context(), &program{name: "idle"})
	const want = "no plan was carried out within 1ms, after which gmemtop was still waiting for the program"
	if r.Failed != want {
		t.Errorf("%q, not %q", r.Failed, want)
	}
}
