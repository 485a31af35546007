// Package examples_test runs the examples.
package examples_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// small has the flags that make each example small, as its help gives them for a machine without a GPU, and
// the millions of parameters that it has then.
var small = map[string]struct{ flags, parameters string }{
	"gpt2.py":     {"--batch 2 --sequence 32 --layers 2 --width 64 --heads 2 --vocabulary 500", "0.1"},
	"mlp.py":      {"--batch 64 --width 128", "0.2"},
	"resnet50.py": {"--batch 2 --image 64 --width 16", "2.0"},
	"vgg16.py":    {"--batch 2 --image 32 --width 8 --hidden 64", "0.3"},
	"vit.py":      {"--batch 2 --image 32 --patch 8 --layers 2 --width 64 --heads 2", "0.2"},
}

// loss finds what a line says of a step, without the time it took.
var loss = regexp.MustCompile(`(?m)^step \d+ loss \d+\.\d+`)

// runs trains each of the scripts named with its flags, one after the other in one process, since nothing
// takes as long as to import torch.
const runs = `
import runpy, shlex, sys
for line in sys.argv[1:]:
    sys.argv = shlex.split(line)
    print("begins " + line, flush=True)
    runpy.run_path(sys.argv[0], run_name="__main__")
`

func python(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(torchtest.Python(t), arguments...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestEveryExampleIsTried(t *testing.T) {
	scripts, err := filepath.Glob("*.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		if _, ok := small[script]; !ok {
			t.Errorf("%s: give it flags in this test", script)
		}
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		if help := strings.Join(strings.Fields(string(text)), " "); !strings.Contains(help,
			small[script].flags) {
			t.Errorf("%s: its help does not name %q for a machine without a GPU", script, small[script].flags)
		}
	}
	if len(scripts) != len(small) {
		t.Errorf("examples are %q, %d of them tried", scripts, len(small))
	}
}

func TestAnExampleTrainsTheSameFromTheSameSeed(t *testing.T) {
	arguments := []string{"-c", runs}
	for _, script := range slices.Sorted(maps.Keys(small)) {
		line := script + " --device cpu --steps 3 --deterministic " + small[script].flags
		arguments = append(arguments, line, line, line+" --seed 1")
	}
	out, err := python(t, arguments...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said := map[string][][]string{}
	for _, section := range strings.Split("\n"+out, "\nbegins ")[1:] {
		line, text, _ := strings.Cut(section, "\n")
		script, _, _ := strings.Cut(line, " ")
		if want := small[script].parameters + " M parameters on cpu\n"; !strings.HasPrefix(text, want) {
			t.Errorf("%s began with %q, not with %q", line, strings.SplitAfter(text, "\n")[0], want)
		}
		said[script] = append(said[script], loss.FindAllString(text, -1))
	}
	for script := range small {
		losses := said[script]
		if len(losses) != 3 || len(losses[0]) != 3 || losses[0][0] == losses[0][1] {
			t.Errorf("%s: losses are %q: three trainings of three steps were to come", script, losses)
		} else if !slices.Equal(losses[0], losses[1]) || slices.Equal(losses[0], losses[2]) {
			t.Errorf("%s: losses are %q: two the same and one from another seed were to come", script, losses)
		}
	}
}

func TestAnExampleRefusesASizeThatDoesNotDivide(t *testing.T) {
	for _, try := range []string{"vgg16.py --image 40", "vit.py --image 40", "vit.py --width 100"} {
		if out, err := python(t, strings.Fields(try)...); err == nil ||
			!strings.Contains(out, "a multiple of") {
			t.Errorf("%s: %v\n%s", try, err, out)
		}
	}
}
