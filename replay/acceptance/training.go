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
)

// size is the size of the networks to train.
type size struct {
	name    string
	network string              // batch of ResNet-50 made from its layers
	gpt     []string            // flags of GPT-2 made from its layers
	flags   map[string][]string // of each example
	cap     float64             // GiB that it may take
	first   int                 // the first batch that is tried
	oom     int                 // MiB, the memory of the training that must run out of it
	on      time.Duration       // how long a plan stays on before its effect is read
	live    string              // steps in which a plan in a running training is measured
	pairs   int                 // of windows with and without the agent
}

// gib is a number of bytes.
const gib = 1 << 30

var (
	full = size{name: "full", network: "32", gpt: []string{"--batch", "2"}, live: "20", cap: 8, first: 16,
		oom: 1536, on: 15 * time.Second, pairs: 150}
	// small is for a GPU that is small or mostly used by others.
	small = size{name: "small", network: "8", gpt: []string{"--batch", "1"}, live: "20", cap: 2, first: 8,
		oom: 512, on: 10 * time.Second, pairs: 100, flags: map[string][]string{
			"gpt2": {"--batch", "1", "--sequence", "256", "--layers", "6"}, "resnet50": {"--batch", "4"},
			"vgg16": {"--batch", "4", "--hidden", "1024"}, "vit": {"--batch", "4"},
			"mlp": {"--batch", "2048", "--width", "2048"}}}
	// tiny is for testing the checks themselves, for the stand-in, and for GPUs with hardly any memory left.
	tiny = size{name: "tiny", network: "1", gpt: []string{"--batch", "1"}, live: "5", cap: 0.0625, first: 16,
		oom: 96, on: 2 * time.Second, pairs: 6, flags: map[string][]string{
			"mlp":      {"--batch", "2048", "--inputs", "64", "--width", "64"},
			"resnet50": {"--batch", "16", "--image", "32", "--width", "4", "--classes", "10"},
			"vgg16": {"--batch", "16", "--image", "32", "--width", "4", "--hidden", "32", "--classes",
				"10"},
			"vit": {"--batch", "96", "--image", "32", "--patch", "4", "--layers", "2", "--width", "32",
				"--heads", "2", "--classes", "10"},
			"gpt2": {"--batch", "8", "--sequence", "64", "--layers", "4", "--width", "64", "--heads", "2",
				"--vocabulary", "500"}}}
)

// sizeFor chooses networks that fit the free memory. The stand-in has a card's memory but computes on a
// processor.
func (s *session) sizeFor() size {
	switch free := s.facts.free; {
	case s.Tiny, s.facts.gpu.StandIn, free > 0 && free < 4*gib:
		return tiny
	case free > 0 && free < 20*gib:
		return small
	}
	return full
}

// example returns the command line of an example.
func (t *trial) example(name string, more ...string) []string {
	return slices.Concat([]string{filepath.Join(t.Folder, name+".py")}, t.size.flags[name], more)
}

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

// attach attaches to a training, records some of its steps, detaches, and compares what it learns with a
// training that is not watched.
func attach(ctx context.Context, t *trial) error {
	j, err := t.train("watched", "gpt2", 0)
	if err != nil {
		return err
	}
	defer j.child.stop()
	if err := j.warm(ctx); err != nil {
		return err
	}
	_, _, err = t.gmemtop(ctx, time.Minute, nil, "record", "-f", "-o",
		filepath.Join(t.Folder, "attached.gmt"), "--every", "4", "--steps", "12", strconv.Itoa(j.pid()))
	if err != nil {
		return err
	}
	at := len(stepsOf(j.printed()))
	if err := t.poll(ctx, time.Minute, func() bool {
		return len(stepsOf(j.printed())) >= at+5 ||
			!j.running()
	}); err != nil {
		return fmt.Errorf("the training does not go on after gmemtop detached: %w", err)
	}
	if err := j.tell(); err != nil {
		return err
	}
	got, err := j.end(ctx, time.Minute)
	if err != nil {
		return err
	}
	t.add(figure("detached_after_steps", float64(at)), figure("steps", float64(got.steps)))
	alone, err := t.train("alone", "gpt2", got.steps)
	if err != nil {
		return err
	}
	want, err := alone.end(ctx, 2*time.Minute)
	if err != nil {
		return err
	}
	return t.same(ctx, "gpt2", got, want)
}

// same fails unless two trainings learned the same. If they did not, a third shows whether the machine is
// reproducible at all.
func (t *trial) same(ctx context.Context, example string, got, want learned) error {
	if got == want {
		return nil
	}
	again, err := t.train("again", example, want.steps)
	if err != nil {
		return err
	}
	second, err := again.end(ctx, 3*time.Minute)
	switch {
	case err != nil:
		return fmt.Errorf("it learned something else than without gmemtop; a second run without: %w", err)
	case second != want:
		return errors.New("it learned something else than without gmemtop, but two runs without gmemtop " +
			"differ too on this GPU")
	}
	return errors.New("it learned something else than without gmemtop")
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
	return errors.New("gmemtop names no request or no cause")
}

// segmentFor returns the segment that torch's allocator asks the driver for to serve a request: its message
// about an out-of-memory error names that size (CUDACachingAllocator.cpp, get_allocation_size).
func segmentFor(request int64) int64 {
	const mib = 1 << 20
	switch {
	case request <= mib:
		return 2 * mib
	case request < 10*mib:
		return 20 * mib
	}
	return (request + 2*mib - 1) / (2 * mib) * (2 * mib)
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
		return errors.New("the training does not say what its allocator counted")
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

// printAgent prints the agent's source, which gmemtop run puts in front of PYTHONPATH.
const printAgent = `import os; print(open(os.environ["PYTHONPATH"].split(os.pathsep)[0] ` +
	`+ "/agent.py").read())`

// overhead measures what the agent costs a step when nothing is captured. On a network of ordinary size,
// certainly more than half a percent is a failure.
func overhead(ctx context.Context, t *trial) error {
	agent, _, err := t.gmemtop(ctx, 30*time.Second, nil, "run", "--headless", "--", t.Python, "-c",
		printAgent)
	if err != nil {
		return err
	}
	file := t.path("-agent.py")
	if err := os.WriteFile(file, agent, 0o600); err != nil {
		return err
	}
	out, err := t.script(ctx, 2*time.Minute, []string{"DEVICE=cuda"}, "overhead.py", file,
		strconv.Itoa(t.size.pairs), "10")
	if err != nil {
		return err
	}
	var r struct {
		Step float64 `json:"step_ms"`
		Time struct {
			Overhead float64
			Interval [2]float64 `json:"interval95"`
		}
	}
	if err := json.Unmarshal(lastLine(out), &r); err != nil {
		return fmt.Errorf("what was measured: %w", err)
	}
	t.add(figure("step", r.Step), figure("overhead", r.Time.Overhead),
		figure("overhead_low", r.Time.Interval[0]), figure("overhead_high", r.Time.Interval[1]))
	return costs(r.Time.Interval, t.size.name == tiny.name)
}

// costs judges the interval of the share of a step that watching costs. An interval wider than the limit that
// it is compared with is no answer, and neither is a share of a tiny step.
func costs(interval [2]float64, tiny bool) error {
	const most, widest = 0.005, 0.02
	low, high := interval[0], interval[1]
	switch {
	case high-low > widest:
		const why = "needs a quieter machine: watching costs between %.1f and %.1f %% of a step"
		return skip(why, 100*low, 100*high)
	case low <= most:
		return nil
	case tiny:
		return skip("needs networks of ordinary size: a step of a tiny one takes next to nothing")
	}
	return errors.New("it costs more than half a percent")
}

// history records one step in 20 by the allocator's own history, and compares losses and times with a
// training that is not watched.
func history(ctx context.Context, t *trial) error {
	argv := t.example("gpt2", "--steps", "90", "--deterministic")
	out, err := t.script(ctx, 2*time.Minute, nil, argv...)
	if err != nil {
		return err
	}
	alone := stepsOf(out)
	file := filepath.Join(t.Folder, "gpt2-history.gmt")
	out, _, err = t.gmemtop(ctx, 2*time.Minute, nil,
		append([]string{"record", "-f", "-o", file, "--depth", "history", "--every", "20", "--", t.Python},
			argv...)...)
	if err != nil {
		return err
	}
	watched := stepsOf(out)
	if !sameLosses(alone, watched) {
		return errors.New("the losses differ from those of a training that is not watched")
	}
	d, err := t.statsOf(ctx, file)
	if err != nil {
		return err
	}
	a, b := meanAfterWarmUp(alone), meanAfterWarmUp(watched)
	t.add(figure("events", float64(d.Events)), figure("step", a), figure("overhead", b/max(a, 1e-9)-1))
	return nil
}

// probes records a training from the kernel.
func probes(ctx context.Context, t *trial) error {
	j, err := t.train("probed", "gpt2", 0)
	if err != nil {
		return err
	}
	defer j.child.stop()
	if err := j.warm(ctx); err != nil {
		return err
	}
	file := filepath.Join(t.Folder, "probes.gmt")
	recording, cancel := context.WithTimeout(ctx, t.allow(90*time.Second))
	defer cancel()
	stopped := make(chan error, 1)
	go func() {
		// a probed program has seconds and no steps: it ends a few of them later, and so does the recording
		select {
		case <-time.After(t.size.on + 3*time.Second):
			stopped <- j.tell()
		case <-recording.Done():
			stopped <- nil
		}
	}()
	_, _, err = t.gmemtop(recording, 90*time.Second, nil, "record", "--probes", "-f", "-o", file,
		strconv.Itoa(j.pid()))
	cancel()
	if err := errors.Join(err, <-stopped); err != nil {
		return err
	}
	if _, err := j.end(ctx, time.Minute); err != nil {
		return fmt.Errorf("the training that was probed: %w", err)
	}
	d, err := t.statsOf(ctx, file)
	if err != nil {
		return err
	}
	t.add(figure("events", float64(d.Events)), figure("allocated", float64(d.PeakAllocated)))
	return nil
}

// ranks records two ranks of DDP.
func ranks(ctx context.Context, t *trial) error {
	if t.facts.visible != "" {
		return skip("needs two GPUs: leave out --device and CUDA_VISIBLE_DEVICES")
	}
	file := filepath.Join(t.Folder, "ranks.gmt")
	old, err := filepath.Glob(filepath.Join(t.Folder, "ranks*.gmt"))
	if err != nil {
		return err
	}
	for _, f := range old {
		os.Remove(f)
	}
	out, _, err := t.gmemtop(ctx, 3*time.Minute, nil, "record", "-f", "-o", file, "--", t.Python, "-m",
		"torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ddp.py")
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(t.Folder, "ranks*.gmt"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, err := t.statsOf(ctx, f); err != nil {
			return err
		}
	}
	t.add(figure("ranks", float64(len(files))), figure("steps", float64(len(stepsOf(out)))))
	if len(files) != 2 {
		return fmt.Errorf("%d of 2 ranks were recorded", len(files))
	}
	return nil
}
