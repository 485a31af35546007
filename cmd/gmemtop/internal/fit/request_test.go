package fit

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
)

// asked returns a request as the flags' defaults make it, changed by f.
func asked(f func(r *Request)) *Request {
	r := &Request{Steps: 3, Allocator: Model, Outside: DefaultOutside}
	f(r)
	return r
}

var (
	plain  = []string{"python", "train.py"}
	sizing = []string{"python", "train.py", "--batch-size", "{batch}"}
)

func TestFlagsThatDoNotGoTogetherAreMistakes(t *testing.T) {
	for want, r := range map[string]*Request{
		"neither model nor real":        asked(func(r *Request) { r.Allocator = "best" }),
		"--snapshot needs":              asked(func(r *Request) { r.Snapshot = "s.pickle" }),
		"--steps 0 is not":              asked(func(r *Request) { r.Steps = 0 }),
		"--world-size -1 is not":        asked(func(r *Request) { r.WorldSize = -1 }),
		"several sizes of --batch need": asked(func(r *Request) { r.Sizes.Batches = []int{8, 16} }),
		"real is for GPUs":              asked(func(r *Request) { r.Allocator, r.CPU = Own, true }),
		"needs {batch}":                 asked(func(r *Request) { r.Allocator, r.MaxBatch = Own, true }),
		"are two tables": asked(func(r *Request) {
			r.Allocator, r.Hardware, r.AllocConf = Own, "all", []string{"a:1", "b:1"}
		}),
		"takes each card's own memory": asked(func(r *Request) {
			r.Allocator, r.Hardware, r.Budget = Own, "all", "8GiB"
		}),
		"--hardware all is a table of one size": asked(func(r *Request) {
			r.Allocator, r.Hardware, r.Output = Own, "all", "x.gmt"
		}),
		"several --alloc-conf is a table of one size": asked(func(r *Request) {
			r.AllocConf, r.Output = []string{"a:1", "b:1"}, "x.gmt"
		}),
		"leave --json out": asked(func(r *Request) {
			r.AllocConf, r.JSON = []string{"a:1", "b:1"}, true
		}),
		`--budget "much"`: asked(func(r *Request) { r.Budget = "much" }),
		`--hardware: unknown device "abacus"`: asked(func(r *Request) {
			r.Allocator, r.Hardware = Own, "abacus"
		}),
	} {
		if _, err := r.Prepare(plain); err == nil || !strings.Contains(err.Error(), want) ||
			!exit.IsMistake(err) {
			t.Errorf("%+v: %v, want a mistake with %q", *r, err, want)
		}
	}
}

// What a training must fit in is what --budget says, or what the device's driver reports; the CPU has no CUDA
// context.
func TestARequestFindsItsDeviceAndMemory(t *testing.T) {
	h100 := func(r *Request) { r.Hardware = "h100" }
	model, err := asked(h100).Prepare(plain)
	if err != nil {
		t.Fatal(err)
	}
	own, err := asked(func(r *Request) { h100(r); r.Allocator = Own }).Prepare(plain)
	if err != nil {
		t.Fatal(err)
	}
	if model.Budget != own.Budget || model.Budget < 70<<30 || model.Outside != 600<<20 ||
		model.IsTable() || own.IsTable() {
		t.Errorf("%d and %d in %d", model.Budget, own.Budget, model.Outside)
	}
	w := own.way(own.cards)
	if w.Card == nil || w.Card.Model != "h100" || model.way(model.cards).Card != nil {
		t.Errorf("%+v", w)
	}
	small, err := asked(func(r *Request) { h100(r); r.CPU, r.Budget = true, "8GiB" }).Prepare(plain)
	if err != nil || small.Budget != 8<<30 || small.Outside != 0 {
		t.Errorf("%+v %v", small, err)
	}
}

func TestWhichRequestsAreTables(t *testing.T) {
	all, err := asked(func(r *Request) { r.Allocator, r.Hardware = Own, "all" }).Prepare(plain)
	if err != nil || !all.IsTable() || len(all.cards) < 5 || all.Budget != all.cards[0].Memory {
		t.Fatalf("%+v %v", all, err)
	}
	for i := 1; i < len(all.cards); i++ {
		if all.cards[i].Memory < all.cards[i-1].Memory {
			t.Errorf("the %s comes after the %s", all.cards[i].Name, all.cards[i-1].Name)
		}
	}
	conf := []string{"default", "expandable_segments:True"}
	settings, err := asked(func(r *Request) { r.AllocConf = conf }).Prepare(plain)
	if err != nil || !settings.IsTable() {
		t.Errorf("%+v %v", settings, err)
	}
	sizes, err := asked(func(r *Request) {
		r.Sizes.Batches, r.AllocConf = []int{8, 16}, conf[1:]
	}).Prepare(sizing)
	if err != nil || sizes.IsTable() || sizes.way(nil).AllocConf != conf[1] {
		t.Errorf("%+v %v", sizes, err)
	}
}

func TestWhatAFailedCommandSeemsToMiss(t *testing.T) {
	const trace = "Traceback (most recent call last):\n"
	const during = "During handling of the above exception, another exception occurred:\n"
	for printed, want := range map[string]string{
		"RuntimeError: CUDA error: invalid device ordinal":                    "more GPUs",
		"MisconfigurationException: but your machine only has: [0]":           "more GPUs",
		"OSError: We couldn't connect to 'https://huggingface.co'":            "network",
		"ConnectionError: gmemtop refuses connections in an estimate":         "network",
		"OSError: Cannot reach the files: offline mode is enabled.":           "network",
		"[INFO] Offline mode: forcing local_files_only=True\nKeyError":        "",
		"gmemtop refuses connections\n" + trace + "AssertionError":            "",
		trace + "gmemtop refuses connections\n" + trace + "RuntimeError":      "",
		trace + "gmemtop refuses connections\n" + during + trace + "KeyError": "network",
		"RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3)":       "",
	} {
		got := (&Request{Allocator: Own}).Hint(printed)
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", printed, got, want)
		}
	}
}
