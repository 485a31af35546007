package acceptance

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/traces/samples"
)

//go:embed python/*.py
var scripts embed.FS

// look finds the GPU through NVML, torch, or both, and collects the facts about it.
func (s *checkup) look(ctx context.Context) error {
	s.facts.gpu.StandIn = onStandIn(s.Environ)
	index, err := s.choose()
	if err != nil {
		return err
	}
	noNVML := s.askNVML(index)
	noTorch := s.askTorch(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.facts.gpu.Name == "" {
		if noTorch != nil && s.Python != "" {
			return fmt.Errorf("%w: %w; NVML: %w", ErrNoGPU, noTorch, noNVML)
		}
		return fmt.Errorf("%w: %w", ErrNoGPU, noNVML)
	}
	return nil
}

// choose translates the device's number into those of CUDA and NVML. CUDA counts the devices that
// CUDA_VISIBLE_DEVICES leaves, NVML all of them.
func (s *checkup) choose() (string, error) {
	seen := ""
	for _, v := range s.Environ {
		if list, ok := strings.CutPrefix(v, "CUDA_VISIBLE_DEVICES="); ok {
			seen = list
		}
	}
	if seen == "" {
		if s.Device > 0 {
			s.facts.visible = strconv.Itoa(s.Device)
		}
		return strconv.Itoa(s.Device), nil
	}
	list := strings.Split(seen, ",")
	if s.Device >= len(list) {
		return "", fmt.Errorf("there is no device %d: CUDA_VISIBLE_DEVICES shows %d", s.Device, len(list))
	}
	one := strings.TrimSpace(list[s.Device])
	s.facts.visible = one
	return one, nil
}

// askNVML fills in what the driver says about the device with that number or the beginning of that UUID.
func (s *checkup) askNVML(index string) error {
	lib, err := nvml.Open(nvml.Options{})
	if err != nil {
		return err
	}
	defer lib.Close()
	devices, err := lib.Devices()
	if err != nil {
		return err
	}
	g := &s.facts.gpu
	g.Count = len(devices)
	g.Driver, g.CUDA = fit("driver", lib.Driver().Version, ""), fit("version", lib.Driver().CUDA, "")
	for _, d := range devices {
		if strconv.Itoa(d.Index) != index && (len(index) < 4 || !strings.HasPrefix(d.UUID, index)) {
			continue
		}
		if d.Err != nil {
			return d.Err
		}
		g.Name, g.MIG = fit("GPU name", d.Name, "unknown GPU"), d.MIG
		if total, ok := d.Total.Value(); ok {
			g.Memory = total
		}
		if r, err := lib.Read(d.Index); err == nil {
			if free, ok := r.Memory.Free.Value(); ok {
				s.facts.free = free
			}
		}
		return nil
	}
	return fmt.Errorf("NVML shows %d GPUs and no GPU %s: gmemtop doctor lists them", len(devices), index)
}

// askTorch fills in what torch says.
func (s *checkup) askTorch(ctx context.Context) error {
	if s.Python == "" {
		s.facts.noTorch = "needs torch: name a Python that has it with --python"
		return errors.New("no Python was named")
	}
	t := &trial{checkup: s, check: Check{Name: "look"}}
	os.Remove(t.path(".log"))
	var found struct {
		Version, CUDA, Python, Name string
		Available, Limit            bool
		Total, Free                 int64
		Count                       int
	}
	out, err := t.script(ctx, time.Minute, nil, "look.py")
	if err == nil {
		err = json.Unmarshal(lastLine(out), &found)
	}
	switch {
	case err != nil:
		s.facts.noTorch = "needs torch: the Python named by --python does not run it: " + err.Error()
		return err
	case !found.Available:
		s.facts.noTorch = "needs torch that uses the GPU: this one, " + found.Version +
			", says that CUDA is not available"
		return fmt.Errorf("torch %s says that CUDA is not available", found.Version)
	}
	s.facts.torch = &Torch{Version: fit("version", found.Version, ""), CUDA: fit("version", found.CUDA, ""),
		Python: fit("version", found.Python, "")}
	s.facts.limit, s.facts.free = found.Limit, found.Free
	g := &s.facts.gpu
	if g.Name == "" {
		g.Name = fit("GPU name", found.Name, "unknown GPU")
	}
	if g.Memory == 0 {
		g.Memory = found.Total
	}
	g.Count = max(g.Count, found.Count)
	return nil
}

// onStandIn reports whether programs in an environment run on the stand-in GPU of gmemtop's tests.
func onStandIn(environ []string) bool {
	for _, v := range environ {
		if strings.HasPrefix(v, "STANDIN_") || strings.HasPrefix(v, "LD_PRELOAD=") &&
			strings.Contains(v, "libstandin") {
			return true
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	return err == nil && strings.Contains(string(maps), "libstandin")
}

// doctor runs gmemtop doctor.
func doctor(ctx context.Context, t *trial) error {
	out, _, err := t.gmemtop(ctx, time.Minute, nil, "doctor", "--json")
	if err != nil {
		return err
	}
	var d struct {
		Findings []struct {
			Name      string
			Available bool
		}
	}
	if err := json.Unmarshal(out, &d); err != nil {
		return fmt.Errorf("doctor's JSON: %w", err)
	}
	for _, f := range d.Findings {
		if !slices.Contains(subjects, f.Name) {
			continue // terminals and the like
		}
		value := 0.0
		if f.Available {
			value = 1
		}
		t.add(figureOf(f.Name, "available", value))
	}
	if len(t.figures) == 0 {
		return errors.New("doctor says nothing about GPUs")
	}
	return nil
}

// comparedRow is a row of compare --json, with the keys that checks read.
type comparedRow struct {
	Manager, Executor, Target, Reason string
	Available                         bool
	Verified                          bool
	Footprint                         int64    `json:"footprint_bytes"`
	Predicted                         int64    `json:"footprint_predicted_bytes"`
	Overhead                          float64  `json:"overhead"`
	Before                            int64    `json:"keep_all_before_ns"`
	After                             int64    `json:"keep_all_after_ns"`
	Step                              int64    `json:"step_time_ns"`
	Causes                            []string `json:"causes"`
}

// compared is the output of compare --json, with the keys that checks read.
type compared struct {
	Hardware struct {
		Name     string
		ToHost   float64 `json:"d2h_bytes_per_s"`
		ToDevice float64 `json:"h2d_bytes_per_s"`
	}
	Problem struct {
		StepTime int64 `json:"step_time_ns"`
	}
	Results []comparedRow
}

// compare runs gmemtop compare and reads its JSON. If the budget is below what must reside, gmemtop exits
// with code 3 without JSON, and the error is an [ended]. If gmemtop failed but printed JSON, compare returns
// both.
func (t *trial) compare(ctx context.Context, limit time.Duration, args ...string) (*compared, error) {
	from := t.logged()
	out, code, err := t.gmemtop(ctx, limit, []int{3}, append([]string{"compare", "--json"}, args...)...)
	if err != nil {
		var c compared // gmemtop prints what it could measure even if something failed
		if json.Unmarshal(out, &c) == nil {
			return &c, err
		}
		return nil, err
	}
	if code == 3 && len(out) == 0 {
		return nil, &ended{program: "gmemtop", code: code, said: t.lastSaid(from)}
	}
	var c compared
	if err := json.Unmarshal(out, &c); err != nil {
		return nil, fmt.Errorf("compare's JSON: %w", err)
	}
	_ = os.WriteFile(t.path(".json"), out, 0o600)
	return &c, nil
}

// calibrate measures the device.
func calibrate(ctx context.Context, t *trial) error {
	c, err := t.compare(ctx, 90*time.Second, "--network", "ResNet-50", "--batch", t.size.network,
		"--managers", "caching", "--target", "cuda", "--calibrate", "--iterations", "3")
	if err != nil {
		return err
	}
	kept, err := filepath.Glob(filepath.Join(t.Folder, "cache", "gmemtop", "hardware", "*.json"))
	if err != nil {
		return err
	}
	if len(kept) == 0 {
		return errors.New("the calibration was not kept")
	}
	t.add(figure("to_host", c.Hardware.ToHost/1e9), figure("to_device", c.Hardware.ToDevice/1e9))
	return nil
}

// managersByTime are lists of managers to compare, the longest first: the first one that fits the time is
// used.
var managersByTime = []string{"all", "caching,smartpool,autoswap,joint", "autoswap,joint", "autoswap"}

// comparison makes a check that carries out plans of a network or an embedded sample, with a budget in
// percent of the peak.
func comparison(what string, budget int) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		switch what {
		case "ResNet-50":
			return t.onDevice(ctx, budget, managersByTime, "--network", "ResNet-50", "--batch",
				t.size.network)
		case "GPT-2-small":
			return t.onDevice(ctx, budget, managersByTime, slices.Concat([]string{"--network", "GPT-2-small"},
				t.size.gpt)...)
		}
		b, err := samples.Open(what)
		if err != nil {
			return err
		}
		file := filepath.Join(t.Folder, what+".gmt")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			return err
		}
		return t.onDevice(ctx, budget, managersByTime, file)
	}
}

// comparisonOf makes a check that carries out plans of a recorded step.
func comparisonOf(example string, budget int) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		file, err := t.recorded(example)
		if err != nil {
			return err
		}
		return t.onDevice(ctx, budget, []string{"caching,expandable,smartpool,autoswap,capuchin,delta,joint",
			"caching,autoswap,joint", "autoswap"}, file)
	}
}

// footprintTolerance and overheadTolerance are how far a measurement on a device may be from the prediction:
// a share of the footprint, and points of the step time.
const footprintTolerance, overheadTolerance = 0.02, 0.02

// onDevice carries out plans on the device, of as many managers and in as many iterations as time allows.
func (t *trial) onDevice(ctx context.Context, budget int, lists []string, what ...string) error {
	first, err := t.compare(ctx, time.Minute, append(what, "--managers", "caching")...)
	if err != nil {
		return err
	}
	most := 150 * time.Second
	if t.end.IsZero() {
		most = 10 * time.Minute // every check, however long that takes: a recorded step may last seconds
	}
	limit := t.remaining(most)
	managers, iterations := "", 0
	if t.size.name == tiny.name {
		lists = lists[len(lists)-1:]
	}
search:
	for _, list := range lists {
		for _, n := range []int{20, 5, 1} {
			if measuringTime(first.Problem.StepTime, list, n) <= limit {
				managers, iterations = list, n
				break search
			}
		}
	}
	if managers == "" {
		step := time.Duration(first.Problem.StepTime)
		if limit < most {
			return errNoTime
		}
		return skip("needs shorter steps: one takes %.1f s, and a check has %.0f s", step.Seconds(),
			most.Seconds())
	}
	args := append(what, "--managers", managers, "--budget", fmt.Sprintf("%d%%", budget), "--target", "cuda",
		"--iterations", strconv.Itoa(iterations), "--limit", "10s")
	c, err := t.compare(ctx, limit, args...)
	var below *ended
	if errors.As(err, &below) && below.code == 3 {
		return skip("needs a larger budget than %d %%: %s", budget, below.said)
	}
	if c == nil {
		return err
	}
	return errors.Join(err, t.judge(c, iterations))
}

// measuringTime is how long it may take to measure managers on a device: a row each, some have two; three
// steps of warming up and half of the iterations of keeping everything twice, the plan's own, and two that
// are traced; a fifth more, since plans are slower, and what pinning and checking take.
func measuringTime(step int64, managers string, iterations int) time.Duration {
	rows, planning := 46.0, 25.0
	if managers != "all" {
		n := float64(strings.Count(managers, ",") + 1)
		rows, planning = 1.5*n, 2*n
	}
	steps := float64(2*(3+(iterations+1)/2) + 3 + iterations + 2)
	return time.Duration((rows*(steps*float64(step)/1e9*1.2+0.7) + planning) * 1e9)
}

// judge counts the plans that were measured, verified, and as predicted. A plan with unverified bytes fails
// the check.
func (t *trial) judge(c *compared, iterations int) error {
	type key struct{ manager, executor string }
	predicted := map[key]comparedRow{}
	for _, r := range c.Results {
		if r.Target == "sim" && r.Available {
			predicted[key{r.Manager, r.Executor}] = r
		}
	}
	plans, measured, verified, asPredicted, corrupt := 0, 0, 0, 0, 0
	for _, r := range c.Results {
		if r.Target == "sim" {
			continue
		}
		plans++
		if !r.Available {
			t.log("not measured: %s %s: %s", r.Manager, r.Executor, r.Reason)
			continue
		}
		measured++
		switch {
		case r.Verified:
			verified++
		default:
			corrupt++
			t.log("not verified: %s %s", r.Manager, r.Executor)
		}
		p, ok := predicted[key{r.Manager, r.Executor}]
		off := math.Abs(float64(r.Footprint)/float64(max(p.Footprint, 1)) - 1)
		if r.Predicted > 0 {
			off = math.Abs(float64(r.Footprint)/float64(r.Predicted) - 1)
		}
		if ok && off <= footprintTolerance && math.Abs(r.Overhead-p.Overhead) <= overheadTolerance {
			asPredicted++
		} else {
			t.log("not as predicted: %s %s: footprint %d, predicted %d; overhead %.4f, predicted %.4f; %s",
				r.Manager, r.Executor, r.Footprint, p.Footprint, r.Overhead, p.Overhead,
				strings.Join(r.Causes, "; "))
		}
	}
	t.add(figure("plans", float64(plans)), figure("measured", float64(measured)),
		figure("verified", float64(verified)), figure("as_predicted", float64(asPredicted)),
		figure("iterations", float64(iterations)))
	switch {
	case measured == 0:
		return errors.New("no plan was measured")
	case corrupt > 0:
		return fmt.Errorf("%d of %d plans were not verified", corrupt, measured)
	}
	return nil
}
