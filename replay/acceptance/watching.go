package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

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
		return fmt.Errorf("the results differ from those without gmemtop, and a second run without it "+
			"failed: %w", err)
	case second != want:
		return errors.New("the results differ from those without gmemtop, but two runs without it " +
			"differ too on this GPU")
	}
	return errors.New("the results differ from those without gmemtop")
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
