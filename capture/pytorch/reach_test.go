package pytorch

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/procs"
)

func TestAPythonThatIgnoresTheEnvironmentIsRecognised(t *testing.T) {
	for line, want := range map[string]bool{
		"python train.py":              false,
		"python -I train.py":           true,
		"python -E train.py":           true,
		"python -sS train.py":          true,
		"python -u -Wignore -E x.py":   true,
		"python -W E x.py":             false,
		"python -WE x.py":              false,
		"python -X dev -I x.py":        true,
		"python -Xdev x.py -I":         false,
		"python -m torch.x -I":         false,
		"python -uc E":                 false,
		"python -uIc pass":             true,
		"python --help-all -I":         false,
		"python":                       false,
		"python -":                     false,
		"/usr/bin/python3 -bb -BS x.y": true,
	} {
		if got := isolated(strings.Fields(line)); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

func TestLaunchersAndWorkersAreLeftAlone(t *testing.T) {
	for _, c := range []struct {
		argv, parent string
		want         bool
	}{
		{"python train.py", "bash", false},
		{"python -I train.py", "python -I wrap.py train.py", false},
		{"python train.py", "python train.py", true}, // a fork: a data loader's worker
		{"python -m torch.distributed.run train.py", "bash", true},
		{"python -I -m torch.distributed.launch train.py", "bash", true},
		{"python -m torchtune.run train.py", "bash", false},
		{"python -I /env/bin/torchrun --nproc-per-node 2 train.py", "bash", true},
		{"python /env/lib/torch/_inductor/compile_worker/__main__.py --workers=2", "python train.py", true},
		{"python -c|from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, " +
			"pipe_handle=7)|--multiprocessing-fork", "python train.py", true},
		{"python -I -c|from multiprocessing.resource_tracker import main;main(3)", "python train.py", true},
		{"python -c|import torch; train()", "bash", false},
	} {
		if got := silent(words(c.argv), words(c.parent)); got != c.want {
			t.Errorf("%s below %s: %v", c.argv, c.parent, got)
		}
	}
}

// words splits at blanks; text between bars is one word.
func words(s string) []string {
	var out []string
	for i, part := range strings.Split(s, "|") {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}

func TestTheInjectedSourceIsPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3: what is injected is compiled with it")
	}
	cmd := exec.Command(python, "-c", "import sys, ast; ast.parse(sys.stdin.read(), feature_version=(3, 8))")
	cmd.Stdin = strings.NewReader(Agent())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAReachedProcessGetsTheSettingsOfTheOthers: its depth, how much it captures without an order, and what
// it offloads.
func TestAReachedProcessGetsTheSettingsOfTheOthers(t *testing.T) {
	var source string
	launch := Launch{First: 2, Depth: capture.HowHistory, Offload: []string{"cuda", "cpu"},
		Reach: func(_ context.Context, _ int, s string) error {
			source = s
			return nil
		}}
	r := &reacher{mux: &mux{job: &Job{launch: launch, listener: &Listener{path: "/x.sock"}}}}
	r.attach(t.Context(), &procs.Process{PID: os.Getpid()}, &reached{})
	if source != launch.agent()+"\n\nreach(\"/x.sock\")\n" {
		t.Errorf("the injected source ends in %q", source[max(len(source)-100, 0):])
	}
	if want := "\n\nsettings.first, settings.depth = 2, \"history\"\nsettings.unplanned += " +
		"(\"cuda\",)\nsettings.unplanned += (\"cpu\",)\n"; !strings.HasSuffix(launch.agent(), want) {
		t.Errorf("it settles %q, not %q", strings.TrimPrefix(launch.agent(), Agent()), want)
	}
}
