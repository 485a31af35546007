package pytorch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch"
)

// A training that does not fit runs no step to plan on. While all that it saves waits on the host it learns the same, and a description of it reads as if nothing
// had gone.
func TestATrainingIsDescribedAsIfNothingHadBeenOffloaded(t *testing.T) {
	t.Parallel()
	agent := filepath.Join(t.TempDir(), "agent.py")
	if err := os.WriteFile(agent, []byte(pytorch.Agent()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python(t), filepath.Join("testdata", "offload.py"), agent)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
