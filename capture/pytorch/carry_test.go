package pytorch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch"
)

// carrying runs a script of testdata that tests how the agent carries out plans. It returns the script's
// output, and an error if the script failed.
func carrying(t *testing.T, script string, args ...string) (string, error) {
	t.Helper()
	carry := filepath.Join(t.TempDir(), "carry.py")
	if err := os.WriteFile(carry, []byte(pytorch.CarrySource()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python(t), append([]string{filepath.Join("testdata", script), carry}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Streams need a GPU. The stand-ins here work as late as possible, so that a missing wait changes what is
// learnt.
func TestSwapsWaitForTheirCopies(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		leaveOut string
		learns   bool
	}{{"", true}, {"memory", true}, {"wait", false}, {"release", false}} {
		out, err := carrying(t, "streams.py", x.leaveOut)
		if (err == nil) != x.learns {
			t.Errorf("without %q: %v\n%s", x.leaveOut, err, out)
		}
		t.Logf("%q: %s", x.leaveOut, out)
	}
}

func TestAHundredTogglesLeaveNothing(t *testing.T) {
	t.Parallel()
	out, err := carrying(t, "toggles.py")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func TestATensorThatReturnsChangedIsDetected(t *testing.T) {
	t.Parallel()
	if out, err := carrying(t, "differs.py"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAttentionWithoutDropoutIsRecomputed(t *testing.T) {
	t.Parallel()
	if out, err := carrying(t, "draws.py"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Losses in the training loop, a forward() that is called directly, a class with a __call__ of its own; and
// hooks, transformations and children of the program's own meanwhile.
func TestAPlanMovesWhatIsSavedOutsideOfModules(t *testing.T) {
	t.Parallel()
	if out, err := carrying(t, "outside.py"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTrainingSurvivesAnyFailureOfAPlan(t *testing.T) {
	t.Parallel()
	out, err := carrying(t, "failing.py")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func TestOnePlanSwapsAndRecomputesNormalisations(t *testing.T) {
	t.Parallel()
	if out, err := carrying(t, "both.py"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAPlanEndsWhenTheProgramUsesCUDAGraphs(t *testing.T) {
	t.Parallel()
	if out, err := carrying(t, "graphs.py"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSwapsStayWithinTheLimitsOfTheHostAndItsControlGroups(t *testing.T) {
	t.Parallel()
	withAgent(t, python(t), "testdata/room.py", t.TempDir())
}
