//go:build standin && linux && amd64

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/capture/usdt"
)

// asTheDriver returns an environment in which the stand-in is mapped under the driver's name, like a real
// driver: normally it is mapped once under its own name, where probes of libcuda.so.1 do not find it.
func asTheDriver(t *testing.T, lib *standin.Library, env []string) []string {
	t.Helper()
	dir := t.TempDir()
	b, err := os.ReadFile(lib.Path())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "libcuda.so.1"), b, 0o700)
	}
	entries, e := os.ReadDir(lib.Dir())
	if err != nil || e != nil {
		t.Fatal(err, e)
	}
	for _, x := range entries {
		if x.Name() == "libcuda.so.1" {
			continue
		}
		if err := os.Symlink("libcuda.so.1", filepath.Join(dir, x.Name())); err != nil {
			t.Fatal(err)
		}
	}
	env = slices.Clone(env)
	for i, v := range env {
		if strings.HasPrefix(v, "LD_PRELOAD=") || strings.HasPrefix(v, "LD_LIBRARY_PATH=") {
			v = strings.ReplaceAll(v, lib.Path(), filepath.Join(dir, "libcuda.so.1"))
			env[i] = strings.ReplaceAll(v, lib.Dir(), dir)
		}
	}
	return env
}

// probedDevice is a device of stats --json, as far as probes know it.
type probedDevice struct {
	Kind          string `json:"device_kind"`
	Events        int64
	Allocations   int64
	Segments      int64
	EndRequested  int64 `json:"end_allocated_requested_bytes"`
	PeakRequested int64 `json:"peak_allocated_requested_bytes"`
	EndReserved   int64 `json:"end_reserved_bytes"`
	PeakReserved  int64 `json:"peak_reserved_bytes"`
}

// Probes of PyTorch's own libc10_cuda.so and of a driver see each block and each segment of a training: the
// number, the sizes and the peak are those that the allocator counts. The training's results stay
// bit-identical.
func TestProbesCountWhatTheAllocatorOfAStandinGPUCounts(t *testing.T) {
	if _, err := usdt.Try(); err != nil {
		t.Skip("needs probes that the kernel permits (root, or CAP_BPF and CAP_PERFMON): ", err)
	}
	standintest.Computing(t)
	lib := standintest.Library(t)
	env, ended := standintest.Environ(t, standin.Machine{Order: standin.Late})
	// Segments of this kind are made by the driver's functions, which PyTorch calls by itself.
	env = append(env, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	exists := func(name string) func() bool {
		return func() bool { _, err := os.Stat(at(name)); return err == nil }
	}
	touch := func(name string) {
		t.Helper()
		if err := os.WriteFile(at(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Output goes to files, which the test reads while they grow.
	start := func(name string, env []string, argv ...string) *exec.Cmd {
		t.Helper()
		out, err := os.Create(at(name))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr = env, out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return cmd
	}
	said := func(name, words string) bool {
		b, err := os.ReadFile(at(name))
		return err == nil && bytes.Contains(b, []byte(words))
	}
	wait := func(name string, cmd *exec.Cmd) []byte {
		t.Helper()
		err := cmd.Wait()
		b, _ := os.ReadFile(at(name))
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, b)
		}
		return b
	}
	program, err := exec.LookPath("gmemtop") // this binary, under the name that makes it the program
	if err != nil {
		t.Fatal(err)
	}

	watched := append(asTheDriver(t, lib, env), "STANDIN_REPORT="+dir)
	training := start("training", watched, torchtest.Python(t), "testdata/probed.py", dir)
	await.Until(t, "the training is ready", exists("ready"))
	recorder := start("recorder", os.Environ(), program, "record", "--probes=both", "-o", at("run.gmt"),
		strconv.Itoa(training.Process.Pid))
	await.Until(t, "the probes are set", func() bool { return said("recorder", "each row covers a second") })
	touch("go")
	await.Until(t, "torch's counts are printed", func() bool {
		return said("training", "allocation.all.allocated")
	})
	if err := recorder.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	told := wait("recorder", recorder)
	for _, want := range []string{"pytorch:malloc and pytorch:free of libc10_cuda.so",
		"functions of libcuda.so.1"} {
		if !bytes.Contains(told, []byte(want)) {
			t.Errorf("the recorder does not say %q:\n%s", want, told)
		}
	}
	touch("on")
	output := wait("training", training)
	first, _, _ := strings.Cut(string(output), "\n")
	var counted map[string]int64
	if err := json.Unmarshal([]byte(first), &counted); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}

	var r struct {
		Devices []probedDevice
	}
	stats := wait("stats", start("stats", os.Environ(), program, "stats", "--json", at("run.gmt")))
	if err := json.Unmarshal(stats, &r); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(r.Devices, func(d probedDevice) bool { return d.Kind == "gpu" })
	if i < 0 {
		t.Fatalf("no GPU in %s", stats)
	}
	d := r.Devices[i]
	for _, c := range []struct {
		what      string
		ours, its int64
	}{
		{"allocations", d.Allocations, counted["allocation.all.allocated"]},
		{"allocations and frees", d.Events - d.Segments,
			counted["allocation.all.allocated"] + counted["allocation.all.freed"]},
		{"requested bytes at the end", d.EndRequested, counted["requested_bytes.all.current"]},
		{"requested bytes at the peak", d.PeakRequested, counted["requested_bytes.all.peak"]},
		{"reserved bytes at the end", d.EndReserved, counted["reserved_bytes.all.current"]},
		{"reserved bytes at the peak", d.PeakReserved, counted["reserved_bytes.all.peak"]},
	} {
		if c.ours != c.its || c.its <= 0 {
			t.Errorf("%s: %d by probes, %d by torch", c.what, c.ours, c.its)
		}
	}

	reports, err := standin.ReadReports(dir)
	if err != nil || len(reports) != 1 {
		t.Fatalf("%d reports, %v", len(reports), err)
	}
	// PyTorch keeps the memory of its segments to the end. The stand-in recognises these by the caller's
	// address, but while a probe waits for a function to return, the kernel has replaced that address.
	reports[0].Leaks = slices.DeleteFunc(reports[0].Leaks, func(l standin.Leak) bool {
		return l.Kind == "handle of physical memory" && l.Library == ""
	})
	standintest.Result{Reports: reports}.Check(t)

	// which finds all files that it waits for
	unwatched := wait("unwatched", start("unwatched", env, torchtest.Python(t), "testdata/probed.py", dir))
	if want := torchtest.Learned(unwatched); want == "" {
		t.Errorf("unwatched it learned nothing:\n%s", unwatched)
	} else {
		if got := torchtest.Learned(output); got != want {
			t.Errorf("it learned\n%s\nand alone\n%s", got, want)
		}
	}
	ended()
}
