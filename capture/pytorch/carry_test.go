package pytorch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch"
)

// Streams are a GPU's. Here they are stood in for by some that work as late as they may, so that a wait that lacks is seen in what is learnt.
func TestSwapsWaitForTheirCopies(t *testing.T) {
	carry := filepath.Join(t.TempDir(), "carry.py")
	if err := os.WriteFile(carry, []byte(pytorch.CarrySource()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		leaveOut string
		learns   bool
	}{{"", true}, {"wait", false}, {"release", false}} {
		cmd := exec.Command(python(t), "testdata/streams.py", carry, x.leaveOut)
		cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
		out, err := cmd.CombinedOutput()
		if (err == nil) != x.learns {
			t.Errorf("without %q: %v\n%s", x.leaveOut, err, out)
		}
		t.Logf("%q: %s", x.leaveOut, out)
	}
}

func TestAHundredTogglesLeaveNothing(t *testing.T) {
	carry := filepath.Join(t.TempDir(), "carry.py")
	if err := os.WriteFile(carry, []byte(pytorch.CarrySource()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python(t), "testdata/toggles.py", carry)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func TestWhatReturnsAsAnotherIsFound(t *testing.T) {
	carry := filepath.Join(t.TempDir(), "carry.py")
	if err := os.WriteFile(carry, []byte(pytorch.CarrySource()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python(t), "testdata/differs.py", carry)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
