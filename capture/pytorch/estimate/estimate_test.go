package estimate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/described"
)

// python returns the interpreter that has torch.
var python = torchtest.Python

var device = estimate.Device{Name: "NVIDIA H100-SXM5-80GB", MemoryBytes: 80 << 30, FlopsPerSecond: 2.2e14,
	FlopsType: "tf32", BytesPerSecond: 2.7e12, LaunchGap: 5000,
	Capability: [2]int{9, 0}, Processors: 132}

// run estimates a Python program; its output goes to the returned buffer's file.
func run(t *testing.T, o estimate.Options, args ...string) (*estimate.Result, string, error) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	o.Argv, o.Device, o.Stdout, o.Stderr = append([]string{python(t)}, args...), device, out, out
	o.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	r, err := estimate.Run(t.Context(), o)
	said, _ := os.ReadFile(out.Name())
	if err != nil && strings.Contains(err.Error(), "cannot pretend that there is a device") &&
		version(t) < 210 {
		t.Skip("needs torch 2.10: builds for CUDA before it cannot pretend that there is a device: ", err)
	}
	return r, string(said), err
}

// version returns 100*major + minor of the tests' torch, without importing it.
func version(t *testing.T) int {
	t.Helper()
	out, err := exec.Command(python(t), "-c",
		"import importlib.metadata as m; print(m.version('torch'))").Output()
	var major, minor int
	if _, scan := fmt.Sscanf(string(out), "%d.%d", &major, &minor); err != nil || scan != nil {
		t.Fatalf("torch's version: %q, %v, %v", out, err, scan)
	}
	return 100*major + minor
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	p, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// step is what one step held at its peak.
type step struct {
	peak       int64
	categories map[string]int64
}

// peaks returns the peaks of a trace's marked steps.
func peaks(t *testing.T, tr *traces.Trace) []step {
	t.Helper()
	tl, err := timeline.Build(t.Context(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := tl.Main()
	var out []step
	for _, it := range steps.Of(d).List {
		s := step{peak: it.PeakAllocated, categories: map[string]int64{}}
		for _, g := range sites.Breakdown(d, it.PeakAt, sites.ByCategory) {
			s.categories[g.Name] += g.Bytes
		}
		out = append(out, s)
	}
	return out
}

var scenarios = []string{"mlp", "convnet", "gpt", "amp", "accumulation", "checkpoint"}

// TestEstimatedPeaksAreThoseOfTheRealTraining trains each network for real on the CPU, described by
// describe.py and by the agent, and without memory: the peaks of steady steps agree to the byte, and their
// categories with the agent's.
func TestEstimatedPeaksAreThoseOfTheRealTraining(t *testing.T) {
	python(t)
	script := absolute(t, "testdata/train.py")
	for _, name := range scenarios {
		t.Run(name, func(t *testing.T) {
			if (name == "gpt" || name == "checkpoint") && version(t) < 203 {
				t.Skip("needs torch 2.3: in 2.2 the positions of every step are kept, 512 bytes more each")
			}
			r, said, err := run(t, estimate.Options{CPU: true}, script, name)
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			tl, err := timeline.Build(t.Context(), r.Trace, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := tl.Main().Totals; !d.BeginsEmpty || !d.Complete {
				t.Errorf("an estimate begins with nothing, and its totals are %s: %s", d.Exactness, d.Reason)
			}
			got := peaks(t, r.Trace)
			if len(got) != 3 {
				t.Fatalf("%d steps were marked, not 3", len(got))
			}
			real := described2(t, name)
			agent := watched(t, script, name)
			for i, want := range real {
				if got[i+1].peak != want.peak {
					t.Errorf("step %d: estimated peak %d, really %d", i+2, got[i+1].peak, want.peak)
				}
			}
			for i, want := range agent {
				if got[i+1].peak != want.peak || !maps.Equal(got[i+1].categories, want.categories) {
					t.Errorf("step %d: estimated %d %v, the agent saw %d %v", i+2, got[i+1].peak,
						got[i+1].categories, want.peak, want.categories)
				}
			}
			t.Logf("%s: estimated %d, describe.py %d, agent %d bytes; %v", name, got[2].peak, real[1].peak,
				agent[1].peak, got[2].categories)
		})
	}
}

// described2 trains for real and returns what describe.py saw of the second and third step.
func described2(t *testing.T, name string) []step {
	t.Helper()
	dir := t.TempDir()
	recorder := filepath.Join(dir, "describe.py")
	if err := os.WriteFile(recorder, described.Recorder, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python(t), "testdata/truth.py", name, filepath.Join(dir, "step.jsonl"), recorder)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "step.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	tr, err := described.Read(t.Context(), bytes.NewReader(b), nil)
	if err != nil {
		t.Fatal(err)
	}
	return peaks(t, tr)
}

// watched trains for real under the agent and returns two steps that it described.
func watched(t *testing.T, script, name string) []step {
	t.Helper()
	dir := torchtest.Folder(t)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("XDG_STATE_HOME", dir)
	job, err := pytorch.Start(pytorch.Launch{Argv: []string{python(t), script, name, "--device", "cpu",
		"--steps", "100000"}, Dir: dir, Env: append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), torchtest.Patience(t))
	defer stop()
	defer func() { _ = job.Signal(os.Kill) }()
	s := capture.NewHistory(capture.Limits{})
	done := make(chan error, 1)
	go func() { done <- job.Run(ctx, s) }()
	defer func() {
		_ = job.Signal(os.Kill)
		<-done
	}()
	asked := false
	for {
		v := s.Snapshot()
		for _, w := range v.Windows {
			if w.Trace != nil && w.Last-w.First == 1 {
				return peaks(t, w.Trace)
			}
		}
		if v.Ended || ctx.Err() != nil {
			t.Fatalf("it ended before a window came: %+v\n%s", v.End, v.Output)
		}
		if !asked && len(v.Steps) > 1 && job.Order(ctx, capture.Order{Do: capture.Describe, Steps: 2}) ==
			nil {
			asked = true
		}
		_, _ = s.Wait(ctx, v.Version)
	}
}

// TestAPretendedGPU trains twice on a CUDA device that does not exist: the traces are the same to the
// nanosecond.
func TestAPretendedGPU(t *testing.T) {
	python(t)
	script := absolute(t, "testdata/train.py")
	var first *estimate.Result
	for range 2 {
		r, said, err := run(t, estimate.Options{}, script, "gpt")
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		if first == nil {
			first = r
			continue
		}
		a, b := first.Trace, r.Trace
		if a.Events.Len() != b.Events.Len() || fmt.Sprint(a.Events.Time) != fmt.Sprint(b.Events.Time) ||
			fmt.Sprint(a.Events.Size) != fmt.Sprint(b.Events.Size) {
			t.Error("two estimates of one script differ")
		}
	}
}

// TestAttentionTakesTheKernelThatADeviceWould: flash for half precision, memory-efficient for float32 and for
// masks, plain mathematics if neither works.
func TestAttentionTakesTheKernelThatADeviceWould(t *testing.T) {
	r, said, err := program(t, estimate.Options{Steps: 1}, `
import torch, torch.nn.functional as F
w = torch.nn.Parameter(torch.randn(2, 4, 64, 48, device="cuda"))
o = torch.optim.SGD([w], lr=0.1)
mask = torch.ones(64, 64, dtype=torch.bool, device="cuda")
odd = torch.randn(2, 4, 64, 33, device="cuda")
with torch.autocast("cuda", dtype=torch.bfloat16):
    out = F.scaled_dot_product_attention(w, w, w, is_causal=True)
assert out.dtype == torch.bfloat16 and out.shape == w.shape
other = F.scaled_dot_product_attention(w, w, w) + F.scaled_dot_product_attention(w, w, w, attn_mask=mask)
F.scaled_dot_product_attention(odd, odd, odd)
(out.float() + other).sum().backward()
o.step()
`)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	count := map[string]int{}
	for _, op := range r.Trace.Ops {
		if name := r.Trace.Strings[op.Name]; strings.Contains(name, "attention") ||
			strings.Contains(name, "softmax") {
			count[name]++
		}
	}
	want := map[string]int{"aten::_scaled_dot_product_flash_attention": 1,
		"aten::_scaled_dot_product_flash_attention_backward":     1,
		"aten::_scaled_dot_product_efficient_attention":          2,
		"aten::_scaled_dot_product_efficient_attention_backward": 2}
	for name, n := range want {
		if count[name] != n {
			t.Errorf("%s ran %d times, not %d: %v", name, count[name], n, count)
		}
	}
	if len(count) == len(want) {
		t.Errorf("nothing was left to plain mathematics: %v", count)
	}
}

// program writes a Python program and estimates it.
func program(t *testing.T, o estimate.Options, text string) (*estimate.Result, string, error) {
	t.Helper()
	o.Dir = t.TempDir()
	path := filepath.Join(o.Dir, "program.py")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.Dir, "kept.txt"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, said, err := run(t, o, path)
	if b, _ := os.ReadFile(filepath.Join(o.Dir, "kept.txt")); string(b) != "kept" {
		t.Errorf("a file that was there holds %q now", b)
	}
	return r, said, err
}

// TestSeventyBillionParametersTakeNoMemory builds a network larger than any machine's memory.
func TestSeventyBillionParametersTakeNoMemory(t *testing.T) {
	r, said, err := program(t, estimate.Options{Steps: 2}, `
import resource, torch, torch.nn as nn
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = nn.ModuleList(nn.Sequential(nn.Linear(8192, 28672, bias=False), nn.SiLU(), nn.Linear(28672, 8192, bias=False), nn.Linear(8192, 49152, bias=False),
                                        nn.Linear(49152, 8192, bias=False)) for _ in range(55))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    x = torch.randn(4, 2048, 8192, device="cuda")
    for block in model:
        x = x + block(x)
    x.mean().backward()
    if step == 1:
        print("rss", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
    optimizer.step()
    optimizer.zero_grad()
`)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	var rss int64
	if _, err := fmt.Sscanf(said[strings.Index(said, "rss"):], "rss %d", &rss); err != nil {
		t.Fatal(err)
	}
	got := peaks(t, r.Trace)
	const parameters = 55 * 2 * (8192*28672 + 8192*49152)
	if n := got[1].categories["parameter"]; n != 2*parameters {
		t.Errorf("%d bytes of parameters, not %d", n, 2*parameters)
	}
	if rss<<10 > 2<<30 {
		t.Errorf("the process held %d MiB, more than 2 GiB", rss>>10)
	}
	t.Logf("%.1f G parameters: peak %d bytes, %d MiB resident", parameters/1e9, got[1].peak, rss>>10)
}

// TestWhatAScriptAsksForIsMadeUpAndSaid covers code that depends on values, writes files or loads data.
func TestWhatAScriptAsksForIsMadeUpAndSaid(t *testing.T) {
	r, said, err := program(t, estimate.Options{}, `
import os, socket, torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
assert os.environ["HF_HUB_OFFLINE"] == "1"
try: socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError as e: assert "gmemtop refuses" in str(e), e
else: raise RuntimeError("connected")
assert os.environ["WANDB_MODE"] == "disabled" and "gmemtop-estimate" in os.environ["MLFLOW_TRACKING_URI"]
assert torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory == 80 << 30
model = nn.Linear(8, 8).cuda()
rates = [x.item() for x in torch.linspace(0, 1, 3)]
assert rates == [0.0, 0.5, 1.0], rates
assert len({t.data_ptr() for t in (model.weight, model.weight.view(-1), model.bias, model.weight[1])}) == 3
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
data = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 8)), batch_size=16, shuffle=True, num_workers=2, pin_memory=True)
for epoch in range(3):
    for x, y in data:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            loss = (out - y).pow(2).mean()
        assert out[out > 0].shape[0] == 16 * 8 and 0 < out[y > 0].shape[0] < 16 * 8
        where = torch.nonzero(y[0])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        print(f"{loss:.2f} {loss.item()} {out.detach().cpu().numpy().shape} {where.tolist()[0]}")
        open("kept.txt", "w").write("rubbish")
        torch.save(model.state_dict(), "new.pt")
`)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if r.Steps != 3 {
		t.Errorf("%d steps, not 3", r.Steps)
	}
	if r.Asked() == 0 {
		t.Error("no value was made up")
	}
	all := strings.Join(r.Notes, "\n")
	for _, want := range []string{"torch.save", "kept.txt", "192.0.2.1"} {
		if !strings.Contains(all, want) {
			t.Errorf("no note says %s: %q", want, all)
		}
	}
}

// TestWhatCannotBeFollowedIsReported checks that the report says why.
func TestWhatCannotBeFollowedIsReported(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"compiled": {"import torch\ntorch.compile(torch.nn.Linear(2, 2))", "--eager"},
		"graph":    {"import torch\ntorch.cuda.CUDAGraph()", "CUDA graphs"},
		"custom": {`
import torch
@torch.library.custom_op("mine::op", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
op(torch.randn(3, device="cuda"))
`, "mine::op"},
		"pointer": {"import ctypes, torch\nctypes.c_void_p(torch.randn(3, device='cuda').data_ptr())",
			"address of a tensor"},
		"none": {"print(1)", "did not load torch"},
	} {
		t.Run(name, func(t *testing.T) {
			_, said, err := program(t, estimate.Options{}, c.text)
			if !errors.Is(err, estimate.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, which does not say %q\n%s", err, c.want, said)
			}
		})
	}
	_, said, err := program(t, estimate.Options{}, "import torch\nraise ValueError('its own')")
	var failed *estimate.Failed
	if !errors.As(err, &failed) || !strings.Contains(said, "its own") {
		t.Errorf("%v for a script that raises; it said %s", err, said)
	}
}
