package pytorch

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// We cannot see the process of a run in a container that shares the folder: if we took it for ended, the run
// would lose its agent before its program has imported torch.
func TestOnlyFoldersOfEndedRunsAreSwept(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	self, err := statOf(os.Getpid())
	if err != nil {
		t.Skip("needs Linux: " + err.Error())
	}
	const nobody = 1 << 30 // no system has so many
	for name, text := range map[string]string{
		"run-lives":    fmt.Sprintf("%d %d %s 1 1", os.Getpid(), self.Started, pidSpace()),
		"run-ended":    fmt.Sprintf("%d %d %s 1 1", nobody, 5, pidSpace()),
		"run-older":    fmt.Sprintf("%d %d %s", nobody, 5, pidSpace()),
		"run-replaced": fmt.Sprintf("%d %d %s 1 1", os.Getpid(), self.Started-1, pidSpace()),
		"run-inside":   fmt.Sprintf("%d %d %s 1 1", nobody, 5, "pid:[1]"),
		"run-unsaid":   "",
	} {
		folder := filepath.Join(base, name)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, ownerFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// whose command has not been started
	if err := os.Mkdir(filepath.Join(base, "run-begins"), 0o700); err != nil {
		t.Fatal(err)
	}
	leaveOwner(filepath.Join(base, "run-begins"), os.Getpid(), os.Getpid(), "")
	sweep(base)
	left, _ := filepath.Glob(filepath.Join(base, "run-*"))
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if got, want := fmt.Sprint(left), "[run-begins run-inside run-lives run-unsaid]"; got != want {
		t.Errorf("%s are left, want %s", got, want)
	}
}
