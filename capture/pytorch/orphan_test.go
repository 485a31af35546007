package pytorch

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
)

// A command whose viewer has gone is found with its note, once it has gone and until another has come. When
// the command ends, the other notices, although it is not its parent.
func TestACommandWithoutItsViewerIsResumed(t *testing.T) {
	if _, err := statOf(os.Getpid()); err != nil {
		t.Skip("needs Linux: " + err.Error())
	}
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip("needs sleep: a command that is left behind")
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	note := "a\n" + t.TempDir()
	command, err := Start(Launch{Argv: []string{"sleep", "600"}, Note: note})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Signal(syscall.SIGKILL) })
	orphans := func(want int) []Orphan {
		t.Helper()
		// those of other programs that this machine runs have no such note
		list := slices.DeleteFunc(Orphans(), func(o Orphan) bool { return o.Note != note })
		if len(list) != want {
			t.Fatalf("%d orphans, want %d: %+v", len(list), want, list)
		}
		return list
	}
	orphans(0)
	_ = command.listener.Close()
	found := orphans(1)[0]
	if found.PID != command.PID() {
		t.Errorf("found: %+v", found)
	}
	resumed, err := found.Resume(Launch{})
	if err != nil {
		t.Fatal(err)
	}
	orphans(0)
	if _, err := found.Resume(Launch{}); err == nil {
		t.Error("two viewers have it")
	}
	ended := make(chan error)
	history := capture.NewHistory(capture.Limits{})
	go func() { ended <- resumed.Run(t.Context(), history) }()
	if err := command.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if v := history.Snapshot(); !v.Ended || v.Info.Argv[0] != "sleep" || v.End.Code.IsKnown() {
		t.Errorf("%+v ended so: %+v", v.Info, v.End)
	}
	if _, err := os.Stat(found.folder); err == nil {
		t.Error("the run's folder is left behind")
	}
	orphans(0)
}

// In a PID namespace, as in a sandbox, the session and the process group may be from outside: 0.
func TestACommandOfAnotherNamespacesSessionIsResumed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: to make a PID namespace")
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("needs unshare: to make a PID namespace")
	}
	if _, err := statOf(os.Getpid()); err != nil {
		t.Skip("needs Linux: " + err.Error())
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), unshare, "--pid", "--fork", "--mount-proc", self,
		"-test.run=^TestACommandWithoutItsViewerIsResumed$", "-test.v").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("%v\n%s", err, out)
	}
}
