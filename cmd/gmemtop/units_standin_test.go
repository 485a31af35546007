//go:build standin

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// PyTorch's CUDA build allocates on the stand-in GPU and records itself. stats and oom must then report the
// same bytes as torch.cuda.memory_stats() and the error's message did at that moment.

// torchSaid is what testdata/units.py wrote about one case.
type torchSaid struct {
	Stats  []map[string]float64
	Host   map[string]float64
	Failed []struct {
		Device    int
		Requested int64
		Message   string
		Stats     map[string]float64
	}
}

// unproven are the cases whose figures the recording does not prove. In all others they are exact.
var unproven = map[string]bool{"whole_segments": true, "whole_segments_freed": true}

func TestQuickFiguresEqualPyTorchs(t *testing.T) {
	checkFigures(t, "", "pinned", "plain", "middle", "truncated", "failed", "full", "streams", "devices",
		"pools", "whole_segments",
		"whole_segments_freed", "graph")
}

func TestFiguresEqualPyTorchsUnderAllocatorSettings(t *testing.T) {
	for _, conf := range []string{
		"expandable_segments:True", "max_split_size_mb:24", "roundup_power2_divisions:4",
		"roundup_power2_divisions:[1:8,4:2,>:1]",
		"max_split_size_mb:24,roundup_power2_divisions:8",
		"expandable_segments:True,roundup_power2_divisions:4",
	} {
		t.Run(strings.ReplaceAll(conf, ":", "="), func(t *testing.T) {
			checkFigures(t, conf, "plain", "middle", "failed", "streams", "pools", "graph")
		})
	}
}

func TestFiguresEqualPyTorchsForOtherRandomNumbers(t *testing.T) {
	for _, conf := range []string{"", "max_split_size_mb:24", "roundup_power2_divisions:4"} {
		t.Run("conf="+strings.ReplaceAll(conf, ":", "="), func(t *testing.T) {
			var cases []string
			for i := range 12 {
				for _, name := range []string{"plain", "middle", "streams", "pools", "failed"} {
					cases = append(cases, fmt.Sprintf("%s-%d", name, i))
				}
			}
			checkFigures(t, conf, cases...)
		})
	}
}

// checkFigures makes PyTorch record cases under a setting of its allocator, and compares its figures with
// ours.
func checkFigures(t *testing.T, conf string, cases ...string) {
	lib, dir := standintest.Library(t), t.TempDir()
	t.Setenv("PYTORCH_CUDA_ALLOC_CONF", conf)
	machine := standin.Machine{Devices: 2, Memory: "1GiB"}
	args := append([]string{"testdata/units.py", dir}, cases...)
	standintest.Run(t, lib, machine, standintest.Interpreter(t), args...).Check(t)
	compared := 0
	for _, name := range cases {
		text, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if os.IsNotExist(err) {
			t.Logf("%s: this torch cannot", name)
			continue
		}
		var torch torchSaid
		if err == nil {
			err = json.Unmarshal(text, &torch)
		}
		if err != nil {
			t.Fatal(err)
		}
		compared++
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, name+".pickle")
			checkStats(t, name, file, &torch)
			if len(torch.Failed) > 0 {
				checkFailure(t, file, &torch)
			}
		})
	}
	if compared < 5 {
		t.Errorf("%d cases were compared", compared)
	}
}

// ask runs a command with --json and returns its devices.
func ask(t *testing.T, command, file string) []deviceFigures {
	t.Helper()
	stdout, stderr, code := invoke(t, command, "--json", "--no-cache", file)
	var doc struct {
		Schema  int `json:"schema_version"`
		Devices []deviceFigures
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || doc.Schema != 2 {
		t.Fatalf("%s: exit code %d, schema_version %d, %v: %s", command, code, doc.Schema, err, stderr)
	}
	return doc.Devices
}

// checkStats compares stats --json with memory_stats.
func checkStats(t *testing.T, name, file string, torch *torchSaid) {
	devices := ask(t, "stats", file)
	for _, d := range devices {
		number := func(key string) float64 { v, _ := d[key].(float64); return v }
		device := fmt.Sprint(d["device_kind"], " ", d["device"])
		if d["device_kind"] == "host" {
			// in host_memory_stats, "active" is what tensors hold, and "allocated" what the allocator holds
			for key, want := range map[string]string{
				"end_allocated_bytes": "active_bytes.current", "end_active_bytes": "active_bytes.current",
				"peak_allocated_bytes": "active_bytes.peak", "end_reserved_bytes": "allocated_bytes.current",
				"peak_reserved_bytes": "allocated_bytes.peak",
			} {
				if number(key) != torch.Host[want] || torch.Host[want] == 0 {
					t.Errorf("%s: %s is %.0f, torch says %.0f", device, key, number(key), torch.Host[want])
				}
			}
			if d["end_allocated_requested_bytes"] != nil {
				t.Errorf("%s: requested bytes are %v, which torch does not record", device,
					d["end_allocated_requested_bytes"])
			}
			continue
		}
		stats := torch.Stats[int(number("device"))]
		exact := d["exactness"] == "exact"
		if exact == unproven[name] {
			t.Errorf("%s: figures are %v: %v", device, d["exactness"], d["exactness_reason"])
		}
		differ := 0
		same := func(key, of string) {
			want, ok := stats[of]
			if !ok {
				t.Errorf("torch has no %s", of)
			}
			switch got := number(key); {
			case got == want:
			case name == "truncated" && strings.HasPrefix(key, "peak_") && got < want:
				// the peak may lie before the window
				if reason := fmt.Sprint(d["exactness_reason"]); !strings.Contains(reason,
					"within the recorded window") {
					t.Errorf("%s: %s is %.0f, torch says %.0f, and the reason is %q", device, key, got,
						want, reason)
				}
			case exact:
				t.Errorf("%s: %s is %.0f, torch says %.0f", device, key, got, want)
			default:
				differ++
			}
		}
		for ours, theirs := range map[string]string{"allocated": "allocated_bytes", "active": "active_bytes",
			"reserved": "reserved_bytes"} {
			same("end_"+ours+"_bytes", theirs+".all.current")
			same("peak_"+ours+"_bytes", theirs+".all.peak")
		}
		same("end_active_requested_bytes", "requested_bytes.all.current")
		same("peak_active_requested_bytes", "requested_bytes.all.peak")
		same("ooms", "num_ooms")
		t.Logf("%s: %v, %d figures differ: %v", device, d["exactness"], differ, d["exactness_reason"])
	}
	if used := slices.IndexFunc(devices, func(d deviceFigures) bool {
		return d["device_kind"] == "gpu"
	}); used < 0 {
		t.Error("no GPU in the report")
	}
}

// checkFailure compares oom --json with the error's message and memory_stats at the failure.
func checkFailure(t *testing.T, file string, torch *torchSaid) {
	failed := torch.Failed[len(torch.Failed)-1]
	devices := ask(t, "oom", file)
	i := slices.IndexFunc(devices, func(d deviceFigures) bool { return d["oom"] == true })
	if i < 0 {
		t.Fatal("no out-of-memory was found")
	}
	d := devices[i]
	books, _ := d["books"].(map[string]any)
	number := func(of map[string]any, key string) int64 {
		v, ok := of[key].(float64)
		if !ok {
			t.Errorf("%s is %v", key, of[key])
		}
		return int64(v)
	}
	if n := number(d, "device"); int(n) != failed.Device {
		t.Errorf("device %d ran out, the report says %d", failed.Device, n)
	}
	for ours, theirs := range map[string]string{
		"allocated_bytes": "allocated_bytes", "active_bytes": "active_bytes",
		"reserved_bytes":         "reserved_bytes",
		"active_requested_bytes": "requested_bytes",
	} {
		if got, want := number(books, ours), int64(failed.Stats[theirs+".all.current"]); got != want {
			t.Errorf("%s is %d, torch says %d", ours, got, want)
		}
	}
	idle, private := number(books, "private_pools_idle_bytes"), ""
	if idle > 0 {
		private = "with " + torchSize(idle) + " allocated in private pools (e.g., CUDA Graphs), "
	}
	for _, want := range []string{
		"Tried to allocate " + torchSize(number(books, "tried_bytes")) + ". ",
		" of which " + torchSize(number(d, "free_bytes")) + " is free. ",
		"Of the allocated memory " + torchSize(number(books, "allocated_bytes")+idle) +
			" is allocated by PyTorch, " + private +
			"and " + torchSize(number(books, "unallocated_bytes")) +
			" is reserved by PyTorch but unallocated.",
	} {
		if !strings.Contains(failed.Message, want) {
			t.Errorf("the message has no %q:\n%s", want, failed.Message)
		}
	}
	roundup := strings.Contains(os.Getenv("PYTORCH_CUDA_ALLOC_CONF"), "roundup")
	if asked := number(d, "asked_bytes"); asked < failed.Requested || asked%512 != 0 ||
		asked-failed.Requested >= 512 && !roundup {
		t.Errorf("%d bytes were asked for, the report says %d", failed.Requested, asked)
	}
}

// torchSize prints bytes as the allocator's messages do (format_size).
func torchSize(n int64) string {
	switch {
	case n <= 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n <= 1<<20:
		return fmt.Sprintf("%.2f KiB", float64(n)/(1<<10))
	case n <= 1<<30:
		return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}
