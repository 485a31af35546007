package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// gated trains step by step: before its first step, and after the step with a given number, it announces a
// gate and waits for a file of that name in a folder.
const gated = `
import os, sys, time, torch
folder, after = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.zeros(64, 64))
optimizer = torch.optim.SGD([weight], lr=0.1)
with open(os.path.join(folder, "pid"), "w") as f:
    f.write(str(os.getpid()))
def gate(name):
    open(os.path.join(folder, "at-" + name), "w").close()
    while not os.path.exists(os.path.join(folder, name)):
        time.sleep(0.01)
gate("begin")
for i in range(100000):
    (weight - 1).square().sum().backward()
    optimizer.step()
    if i == 0:
        open(os.path.join(folder, "stepped"), "w").close()
    if i == after:
        gate("go on")
    time.sleep(0.02)
`

// What the screen shows of a process: what it waits for, in the agent's words, and the finished step.
var (
	waitsForAStep = regexp.MustCompile(`Waiting for the first optimizer step`)
	hasStepped    = regexp.MustCompile(`is running: step \d`)
)

// gatedTraining is a training with gates, with its own folder for its script, gates, sockets and output.
type gatedTraining struct {
	t      testing.TB
	folder string
	argv   []string
	cmd    *exec.Cmd // nil until it is started
}

// newGatedTraining makes one that also stops after the step with that number, -1 for none. The caller closes
// it.
func newGatedTraining(t testing.TB, after int) *gatedTraining {
	t.Helper()
	python := torchtest.Python(t)
	folder, err := os.MkdirTemp("", "gm") // not t.TempDir: a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(folder, "gated.py")
	if err := os.WriteFile(script, []byte(gated), 0o600); err != nil {
		t.Fatal(err)
	}
	return &gatedTraining{t: t, folder: folder, argv: []string{python, script, folder, strconv.Itoa(after)}}
}

func (g *gatedTraining) environ() []string {
	return append(os.Environ(), "TERM=vt220", "XDG_RUNTIME_DIR="+g.folder, "XDG_STATE_HOME="+g.folder,
		"XDG_CACHE_HOME="+g.folder, "PYTHONDONTWRITEBYTECODE=1")
}

// start starts it without gmemtop.
func (g *gatedTraining) start() {
	g.t.Helper()
	g.cmd = exec.Command(g.argv[0], g.argv[1:]...)
	g.cmd.Env = g.environ()
	if err := g.cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
}

// watch starts this program on a terminal: it attaches to the training if that runs, or starts it.
func (g *gatedTraining) watch() *terminal {
	g.t.Helper()
	args := append([]string{"run", "--"}, g.argv...)
	if g.cmd != nil {
		args = []string{"attach", strconv.Itoa(g.cmd.Process.Pid)}
	}
	cmd := exec.Command("gmemtop", args...)
	cmd.Env = g.environ()
	return newTerminal(g.t, 120, 40, cmd)
}

// at waits until the training is at a gate.
func (g *gatedTraining) at(gate string) {
	g.t.Helper()
	await.Until(g.t, fmt.Sprintf("the training is at gate %q", gate), func() bool {
		_, err := os.Stat(filepath.Join(g.folder, "at-"+gate))
		return err == nil
	})
}

// open opens a gate, whether or not the training waits there.
func (g *gatedTraining) open(gate string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.folder, gate), nil, 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// wrote returns when the file that matches a pattern was written.
func (g *gatedTraining) wrote(pattern string) time.Time {
	g.t.Helper()
	list, _ := filepath.Glob(filepath.Join(g.folder, pattern))
	if len(list) != 1 {
		g.t.Fatalf("%s is %v", pattern, list)
	}
	info, err := os.Stat(list[0])
	if err != nil {
		g.t.Fatal(err)
	}
	return info.ModTime()
}

// close ends the training, even if it outlived the program that started it, and removes the folder.
func (g *gatedTraining) close() {
	if g.cmd != nil {
		_ = g.cmd.Process.Kill()
		_ = g.cmd.Wait()
	}
	if b, err := os.ReadFile(filepath.Join(g.folder, "pid")); err == nil && g.cmd == nil {
		if pid, err := strconv.Atoi(string(b)); err == nil {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
	}
	_ = os.RemoveAll(g.folder)
}

// TestScreenShowsWhatItKnowsWhileTheJobIsStopped stops a training before its first step, and after the first
// one that can be reported: the screen shows what it knows without anything further happening in the job.
func TestScreenShowsWhatItKnowsWhileTheJobIsStopped(t *testing.T) {
	torchtest.Python(t)
	for name, attach := range map[string]bool{"run": false, "attach": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := 0
			if attach {
				after = 1 // the step that runs when the agent comes is not reported: nobody saw it begin
			}
			g := newGatedTraining(t, after)
			t.Cleanup(g.close)
			if attach {
				g.start()
				g.at("begin")
			}
			x := g.watch()
			t.Cleanup(x.close)
			x.until("what the process waits for", waitsForAStep.MatchString)
			g.open("begin")
			if screen, _ := x.until("a step", hasStepped.MatchString); !strings.Contains(screen,
				"is running: step 0") {
				t.Errorf("it is not the first:\n%s", screen)
			}
			g.at("go on")
			g.open("go on")
			x.until("another step", func(s string) bool {
				return hasStepped.MatchString(s) && !strings.Contains(s, "is running: step 0")
			})
		})
	}
}

// BenchmarkFirstFrame measures the real program on a terminal with real torch: the time from the agent's
// start in the process (when it announces where it is) until the terminal has received a frame that shows the
// process (what it waits for, or a step), and until it has received a step. For a command that gmemtop
// started, the latter counts from the end of its first step, because the time from torch's import to there is
// the command's own. For a training that gmemtop attaches to, with steps of some twenty milliseconds, it too
// counts from the agent's start.
//
//	go test ./cmd/gmemtop -run '^$' -bench FirstFrame -benchtime 20x
func BenchmarkFirstFrame(b *testing.B) {
	torchtest.Python(b)
	for _, how := range []string{"run", "attach"} {
		b.Run(how, func(b *testing.B) {
			var state, step []float64
			for b.Loop() {
				func() {
					g := newGatedTraining(b, -1)
					defer g.close()
					g.open("begin")
					if how == "attach" {
						g.start()
						g.at("begin")
					}
					x := g.watch()
					defer x.close()
					_, shown := x.until("the process", func(s string) bool {
						return waitsForAStep.MatchString(s) || hasStepped.MatchString(s)
					})
					came := g.wrote("gmemtop-*/*.json")
					state = append(state, shown.Sub(came).Seconds()*1e3)
					_, shown = x.until("a step", hasStepped.MatchString)
					if how == "run" {
						came = g.wrote("stepped")
					}
					step = append(step, shown.Sub(came).Seconds()*1e3)
				}()
			}
			for what, list := range map[string][]float64{"process": state, "step": step} {
				slices.Sort(list)
				b.ReportMetric(list[len(list)/2], what+"-median-ms")
				b.ReportMetric(list[(len(list)*9+9)/10-1], what+"-90%-ms")
				b.ReportMetric(list[len(list)-1], what+"-most-ms")
			}
		})
	}
}
