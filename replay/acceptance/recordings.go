package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// record makes a check that records an example from its first step on.
func record(example string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		argv := slices.Concat([]string{"record", "-f", "-o", filepath.Join(t.Folder, example+".gmt"), "--",
			t.Python}, t.example(example, "--steps", "30"))
		out, _, err := t.gmemtop(ctx, 2*time.Minute, nil, argv...)
		if err != nil {
			return err
		}
		steps := stepsOf(out)
		if _, err := t.recorded(example); err != nil {
			return err
		}
		t.add(figure("steps", float64(len(steps))), figure("step", medianOfLast(steps)))
		if len(steps) != 30 {
			return fmt.Errorf("the training printed %d of 30 steps", len(steps))
		}
		return nil
	}
}

// recorded returns the recording of an example.
func (t *trial) recorded(example string) (string, error) {
	file := filepath.Join(t.Folder, example+".gmt")
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		return "", skip("needs the recording of %s: check %s-record makes it", example, example)
	}
	return file, nil
}

// reportDevice is a device of stats --json, with the keys that checks read.
type reportDevice struct {
	Events        int
	EndAllocated  int64 `json:"end_allocated_bytes"`
	EndReserved   int64 `json:"end_reserved_bytes"`
	EndActive     int64 `json:"end_active_bytes"`
	PeakAllocated int64 `json:"peak_allocated_bytes"`
	PeakRounded   int64 `json:"peak_allocated_rounded_bytes"`
	PeakReserved  int64 `json:"peak_reserved_bytes"`
}

// statsOf runs gmemtop stats on a recording and returns its device with the most events.
func (t *trial) statsOf(ctx context.Context, file string) (reportDevice, error) {
	out, _, err := t.gmemtop(ctx, time.Minute, nil, "stats", file, "--json")
	if err != nil {
		return reportDevice{}, err
	}
	var r struct{ Devices []reportDevice }
	if err := json.Unmarshal(out, &r); err != nil {
		return reportDevice{}, fmt.Errorf("the JSON of stats: %w", err)
	}
	_ = os.WriteFile(t.path(".json"), out, 0o600)
	if len(r.Devices) == 0 {
		return reportDevice{}, errors.New("the recording shows no device")
	}
	d := slices.MaxFunc(r.Devices, func(a, b reportDevice) int { return a.Events - b.Events })
	if d.Events == 0 {
		return d, errors.New("the recording holds no event")
	}
	return d, nil
}

func statsOf(example string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		file, err := t.recorded(example)
		if err != nil {
			return err
		}
		d, err := t.statsOf(ctx, file)
		if err != nil {
			return err
		}
		t.add(figure("events", float64(d.Events)),
			figure("allocated", float64(max(d.PeakAllocated, d.PeakRounded))))
		return nil
	}
}

// snapshot compares totals of a memory snapshot with what torch counted when it wrote it.
func snapshot(ctx context.Context, t *trial) error {
	file := filepath.Join(t.Folder, "snapshot.pickle")
	out, err := t.script(ctx, 90*time.Second, nil, "snapshot.py", file)
	if err != nil {
		return err
	}
	var counted struct {
		Allocated     int64 `json:"allocated_bytes"`
		Reserved      int64 `json:"reserved_bytes"`
		Active        int64 `json:"active_bytes"`
		PeakAllocated int64 `json:"peak_allocated_bytes"`
		PeakReserved  int64 `json:"peak_reserved_bytes"`
	}
	if err := json.Unmarshal(lastLine(out), &counted); err != nil {
		return fmt.Errorf("what torch counts: %w", err)
	}
	d, err := t.statsOf(ctx, file)
	if err != nil {
		return err
	}
	t.add(figure("events", float64(d.Events)), figure("allocated", float64(d.EndAllocated)),
		figure("reserved", float64(d.EndReserved)))
	peak := max(d.PeakAllocated, d.PeakRounded) // schema 1 has the rounded peak under a name of its own
	for _, c := range []struct {
		what      string
		ours, its int64
	}{{"allocated", d.EndAllocated, counted.Allocated}, {"active", d.EndActive, counted.Active},
		{"reserved", d.EndReserved, counted.Reserved},
		{"the peak of allocated", peak, counted.PeakAllocated},
		{"the peak of reserved", d.PeakReserved, counted.PeakReserved}} {
		if c.ours != c.its {
			return fmt.Errorf("gmemtop counts %d bytes of %s, torch %d bytes", c.ours, c.what, c.its)
		}
	}
	return nil
}

var triedToAllocate = regexp.MustCompile(`Tried to allocate ([0-9.]+) (bytes|KiB|MiB|GiB)`)

// outOfMemory makes gmemtop explain an out-of-memory error, and compares the request with the one in torch's
// own message.
func outOfMemory(ctx context.Context, t *trial) error {
	file := filepath.Join(t.Folder, "oom.pickle")
	said, err := t.script(ctx, 90*time.Second, nil, "oom.py", file, strconv.Itoa(t.size.oom))
	if err != nil {
		return err
	}
	out, code, err := t.gmemtop(ctx, time.Minute, []int{3}, "oom", file, "--json")
	if err != nil {
		return err
	}
	if code != 3 {
		return errors.New("gmemtop found no out-of-memory error in the snapshot")
	}
	var r struct {
		Devices []struct {
			Asked  *int64 `json:"asked_bytes"`
			Causes []struct{ Kind string }
		}
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return fmt.Errorf("the JSON of oom: %w", err)
	}
	_ = os.WriteFile(t.path(".json"), out, 0o600)
	m := triedToAllocate.FindSubmatch(said)
	if m == nil {
		return errors.New("torch's message does not say what it tried to allocate")
	}
	value, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return err
	}
	scale := map[string]float64{"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[string(m[2])]
	for _, d := range r.Devices {
		if d.Asked == nil || len(d.Causes) == 0 {
			continue
		}
		t.add(figure("request", float64(*d.Asked)))
		if math.Abs(float64(*d.Asked)/scale-value) > 0.0051 &&
			math.Abs(float64(segmentFor(*d.Asked))/scale-value) > 0.0051 {
			return fmt.Errorf("gmemtop says that %d bytes were asked for, torch %s %s", *d.Asked, m[1], m[2])
		}
		return nil
	}
	return errors.New("gmemtop does not name both a request and a cause")
}

// segmentFor returns the segment that torch's allocator asks the driver for to serve a request: its message
// about an out-of-memory error names that size.
func segmentFor(request int64) int64 {
	var rules torchalloc.Rounding
	size, _ := torchalloc.Segment(rules.Round(request), torchalloc.LargeBuffer)
	return size
}

// estimate predicts a training's memory without the GPU and compares that with what the allocator counts on
// it.
func estimate(ctx context.Context, t *trial) error {
	argv := t.example("gpt2", "--steps", "3")
	// 3: it does not fit the preset
	out, _, err := t.gmemtop(ctx, 90*time.Second, []int{3},
		append([]string{"estimate", "--json", "--", t.Python}, argv...)...)
	if err != nil {
		return err
	}
	var e struct {
		Results []struct {
			Allocated int64 `json:"peak_allocated_bytes"`
			Reserved  int64 `json:"reserved_bytes"`
		}
	}
	if err := json.Unmarshal(out, &e); err != nil || len(e.Results) == 0 {
		return fmt.Errorf("the JSON of estimate has no result: %w", err)
	}
	out, err = t.script(ctx, time.Minute, nil, append([]string{"counted.py"}, argv...)...)
	if err != nil {
		return err
	}
	var allocated, reserved int64
	at := bytes.LastIndex(out, []byte("counted "))
	if at < 0 {
		return errors.New("the training did not print what its allocator counted")
	}
	if _, err := fmt.Sscanf(string(out[at:]), "counted %d %d", &allocated, &reserved); err != nil ||
		allocated <= 0 {
		return fmt.Errorf("what the allocator counted: %q", out[at:])
	}
	r := e.Results[0]
	t.add(figure("allocated", float64(allocated)), figure("allocated_predicted", float64(r.Allocated)),
		figure("reserved", float64(reserved)), figure("reserved_predicted", float64(r.Reserved)))
	// Workspaces of kernels are not in an estimate, and take much of a tiny network.
	const workspaces = 16 << 20
	if off := math.Abs(float64(r.Allocated - allocated)); off > max(float64(allocated)/3, workspaces) {
		return fmt.Errorf("the estimate is off by %+.1f %%", 100*(float64(r.Allocated)/float64(allocated)-1))
	}
	return nil
}
