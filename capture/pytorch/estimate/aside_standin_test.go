//go:build standin

package estimate_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// Triton's kernels are left out, with or without tuning, and what they may have written is not known. What
// threads were given is held.
func TestQuickRealLeavesTritonsKernelsOut(t *testing.T) {
	standintest.Library(t)
	if exec.Command(standintest.Interpreter(t), "-c", "import triton").Run() != nil {
		t.Skipf("needs the Python package %s: the script has kernels of it", "triton")
	}
	p, said := one(t, estimate.RealOptions{Card: "h100"}, network+launching+holding+`
while True: step()
`)
	if p.Steps != 3 || !leftOut(p.Notes) || !saysWhoHolds(p.Notes) || !strings.Contains(said, asLaunched) {
		t.Errorf("%d steps, notes %q\n%s", p.Steps, p.Notes, said)
	}
}

// No existing file is changed, no checkpoint is written and no other machine is contacted.
func TestQuickRealLeavesFilesAndNetworkAlone(t *testing.T) {
	dir := t.TempDir()
	there := map[string]string{"log.txt": "mine", "best.pt": "weights", "gone.txt": "stays",
		"old/a.txt": "stays too", "target.txt": "not replaced", "other.txt": "another job's"}
	for name, text := range there {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777),
			os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	p, said := one(t, estimate.RealOptions{Options: estimate.Options{Dir: dir}}, network+`
import shutil, socket
step()
open("log.txt", "w").write("overwritten")
torch.save(model.state_dict(), "best.pt")
torch.save(model.state_dict(), "new.pt")
os.remove("gone.txt"); shutil.rmtree("old"); os.replace("best.pt", "moved.pt")
open("fresh.txt", "w").write("made"); os.remove("fresh.txt")
open("new.txt", "w").write("made"); os.replace("new.txt", "target.txt")
os.close(os.open("other.txt", os.O_WRONLY | os.O_APPEND))
os.utime("other.txt")  # as if another process had just written to it
open("other.txt", "w").write("overwritten")
import tempfile
with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as f: f.write("a")
with open(f.name, "w") as again: again.write("ab")
shutil.move(f.name, "cache.txt")
print("cached", open("cache.txt").read())
os.makedirs("old")  # as far as the script knows it is gone
import numpy, sqlite3, subprocess
sqlite3.connect("new.db").execute("create table t(a)")
subprocess.run("rm -f gone.txt; echo more >> log.txt; echo x > child.txt", shell=True, check=True)
with open("log.txt", "r+") as f: print("read", f.read()); f.write("more")
mapped = numpy.memmap("log.txt", dtype="uint8"); print("mapped", mapped.tobytes()); mapped[0] = 0
with open("new.pt", "rb") as f: assert f.read()
os.makedirs("runs/one"); open("runs/one/events", "w").write("a loss of 1")
os.makedirs("old/deeper"); open("old/deeper/more.txt", "a").write("more")
os.makedirs("tmp/config"); open("tmp/config/a.json", "w").write("{}"); os.rename("tmp", "checkpoint-2")
try: socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError as e: print("refused:", e)
try: socket.getaddrinfo("weights.example.com", 443)
except OSError as e: print("not looked up:", e)
print("local", socket.gethostbyname("localhost"), socket.getaddrinfo("192.0.2.1", 80)[0][4])
while True: step()
`)
	for _, n := range p.Notes {
		if strings.HasPrefix(n, "this system cannot watch") {
			t.Skip("needs seccomp's user notification: ", n)
		}
	}
	for name, want := range there {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s holds %q (%v), before it held %q", name, got, err, want)
		}
	}
	there["train.py"] = "" // which the test itself made
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, dir+string(filepath.Separator))
		if _, was := there[name]; !was && path != dir && name != "old" {
			t.Errorf("%s is there", name)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(said, "cached ab\nread mine\nmapped b'mine'\n") {
		t.Errorf("a file lost what was written to it:\n%s", said)
	}
	if !strings.Contains(said, "refused: [Errno 101] gmemtop refuses") {
		t.Errorf("the connection: %s", said)
	}
	if !strings.Contains(said, "not looked up: [Errno -4] gmemtop refuses") ||
		!strings.Contains(said, "local 127.0.0.1 ('192.0.2.1', 80)\n") {
		t.Errorf("the names of machines: %s", said)
	}
	for _, want := range []string{"what it wrote was thrown away: log.txt, best.pt, target.txt, other.txt",
		"torch.save was called",
		"which stay as they are: gone.txt, old", "192.0.2.1",
		"programs wrote to existing files, and what they wrote was thrown away: other.txt, log.txt",
		"programs tried to remove or rename existing files, which stay as they are: gone.txt",
		"files and folders that the script made were removed afterwards: 7 and 5"} {
		if !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("no note says %q: %q", want, p.Notes)
		}
	}
}

// A script can load what it saved, by path and by file, and also an existing file: with its shapes, tied
// weights and devices, though nothing was written.
func TestQuickRealLoadsBackWhatWasSaved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "old.pt")
	if err := os.WriteFile(path, []byte("weights"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, said := one(t, estimate.RealOptions{Options: estimate.Options{Dir: dir}}, network+`
import pathlib, shutil
os.mkdir("runs")
step()
tied = model[0].weight
torch.save({"a": tied, "b": tied.t(), "step": torch.tensor(7), "name": "x"}, "state.pt")
back = torch.load("state.pt", map_location="cpu")
assert back["a"].shape == (3000, 1000) and back["a"].device.type == "cpu" and back["step"].item() == 7
assert back["a"].data_ptr() == back["b"].data_ptr() and back["b"].stride() == (1, 1000)
assert back["name"] == "x"
assert torch.load("state.pt")["a"].is_cuda
with open("old.pt", "wb") as f: torch.save(model, f)
with open("old.pt", "rb") as f: again = torch.load(f, weights_only=False)
assert isinstance(again[0].weight, nn.Parameter) and again[0].weight is not tied
again.load_state_dict(model.state_dict())
torch.save({"n": 1}, "part.pt")
os.replace("part.pt", "last.pt"); os.link("last.pt", "best.pt"); shutil.copy("last.pt", dst="runs")
assert os.path.exists("best.pt") and not os.path.exists("part.pt") and torch.load("runs/last.pt")["n"] == 1
os.remove("last.pt")
assert pathlib.Path("best.pt").exists() and not pathlib.Path("last.pt").exists()
with torch.profiler.profile(): torch.ones(3) + 1  # it would ask NVIDIA's library
print("loaded")
while True: step()
`)
	if !strings.Contains(said, "loaded") {
		t.Errorf("it was not loaded back:\n%s", said)
	}
	if got, _ := os.ReadFile(path); string(got) != "weights" {
		t.Errorf("old.pt holds %q", got)
	}
	for _, pattern := range []string{"*.pt", "runs/*"} {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) > 0 && found[0] != path {
			t.Errorf("%v were written", found)
		}
	}
}

// A card full of tensors costs the host next to nothing, wherever the model was made.
func TestRealTouchesNoMemory(t *testing.T) {
	p, said := one(t, estimate.RealOptions{Card: "h100"}, `
import resource, torch, torch.nn as nn
model = nn.Sequential(*[nn.Linear(16384, 16384) for _ in range(4)])
for layer in model: nn.init.trunc_normal_(layer.weight)
model = model.cuda()
optimizer = torch.optim.Adam(model.parameters())
while True:
    model(torch.zeros(65536, 16384, device="cuda")).sum().backward()
    optimizer.step(); optimizer.zero_grad()
    print("resident", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
`)
	at := strings.LastIndex(said, "resident ")
	if at < 0 {
		t.Fatal(said)
	}
	var kib int64
	if err := json.Unmarshal([]byte(strings.Fields(said[at:])[1]), &kib); err != nil {
		t.Fatal(err)
	}
	if most := p.Fullest().Allocated; most < 30<<30 || kib > 3<<20 {
		t.Errorf("%d bytes of the device took %d KiB of the host", most, kib)
	}
}
