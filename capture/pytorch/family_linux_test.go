package pytorch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gmemtop/gmemtop/capture/await"
)

// orphans makes orphaned processes that can be identified in each of the ways, and one that cannot; each
// writes its number to a file.
const orphans = `
( sleep 1000 >/dev/null 2>&1 & echo $! >environment )
( env -i sleep 1000 & echo $! >output )
( env -i sleep 1000 >/dev/null 2>&1 & echo $! >nothing )
setsid bash -c 'set -m; ( env -i sleep 1000 >/dev/null 2>&1 & echo $! >session ) &
	exec env -i sleep 1000 >/dev/null 2>&1' &
bash -c 'set -m; sh -c "( env -i sleep 1000 >/dev/null 2>&1 & echo \$! >group )
	exec env -i sleep 1000 >/dev/null 2>&1" & wait' &
sh -c 'env -i setsid sleep 1000 >/dev/null 2>&1 & echo $! >remembered
	until [ -e go ]; do sleep 0.01; done' >/dev/null 2>&1 &
( env -i setsid sh -c 'sleep 1000 & echo $! >grandchild; exec sleep 1000 >/dev/null 2>&1' & )
sleep 1000
`

// TestOrphansOfTheCommandAreFound looks for what a command leaves behind, in this program's session and in
// its own.
func TestOrphansOfTheCommandAreFound(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bash", "setsid", "sleep"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs the program %s: it makes processes without a parent", name)
		}
	}
	for _, apart := range []bool{false, true} {
		t.Run(map[bool]string{false: "in our session", true: "in its own"}[apart], func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			job, err := Start(Launch{Argv: []string{"sh", "-c", orphans}, Dir: dir, Detached: apart})
			if err != nil {
				t.Fatal(err)
			}
			f := familyOf(job)
			// in our session and group, and younger than the command
			stranger := exec.Command("sleep", "1000")
			if err := stranger.Start(); err != nil {
				t.Fatal(err)
			}
			pids := map[string]int{"stranger": stranger.Process.Pid, "ours": os.Getpid()}
			t.Cleanup(func() {
				_ = stranger.Process.Kill()
				_ = stranger.Wait()
				for _, pid := range append(f.look(), pids["nothing"]) {
					if p, err := os.FindProcess(pid); err == nil && pid > 0 {
						_ = p.Kill()
					}
				}
				<-job.exited
				_ = job.listener.Close()
				_ = os.RemoveAll(job.folder)
				_ = os.Remove(job.OutputPath())
			})
			for _, name := range []string{"environment", "output", "nothing", "session", "group",
				"remembered", "grandchild"} {
				pids[name] = written(t, dir+"/"+name)
			}
			for _, name := range []string{"environment", "output", "nothing", "session", "group",
				"grandchild"} {
				await.Until(t, name+" is an orphan", func() bool { // or is inside of one
					s, err := statOf(pids[name])
					// which all of our shells have in their command
					return err == nil && (name == "grandchild" ||
						!strings.Contains(commandOf(s.Parent), "sleep 1000"))
				})
				await.Until(t, name+" is another program", func() bool {
					return strings.HasPrefix(commandOf(pids[name]), "sleep\x00")
				})
			}
			await.Until(t, "the one to be remembered is below the command", func() bool {
				return slices.Contains(f.look(), pids["remembered"])
			})
			await.Until(t, "it is another program", func() bool {
				return strings.HasPrefix(commandOf(pids["remembered"]), "sleep\x00")
			})
			parent, err := statOf(pids["remembered"])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			await.Until(t, "its parent has ended", func() bool {
				s, err := statOf(pids["remembered"])
				return err == nil && s.Parent != parent.Parent
			})
			found := f.look()
			if found[0] != job.PID() {
				t.Errorf("the first is %d, not the command %d", found[0], job.PID())
			}
			for name, want := range map[string]bool{
				"environment": true, "output": true, "session": true, "group": true, "remembered": true,
				"grandchild": true,
				"nothing":    apart, "stranger": false, "ours": false,
			} {
				if got := slices.Contains(found, pids[name]); got != want {
					s, _ := statOf(pids[name])
					t.Errorf("%s, process %d (%+v), is of the command's: %v", name, pids[name], s, got)
				}
			}
			if fresh := familyOf(job).look(); slices.Contains(fresh, pids["remembered"]) {
				t.Error("it is found without having seen its parent: this proves nothing about remembering")
			}
		})
	}
}

// written waits for the number in a file.
func written(t *testing.T, path string) (n int) {
	t.Helper()
	await.Until(t, path+" is written", func() bool {
		b, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(b), "\n") {
			return false
		}
		n, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	return n
}

func commandOf(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return string(b)
}

// TestAReusedProcessNumberIsNotTheCommand: the kernel reuses numbers.
func TestAReusedProcessNumberIsNotTheCommand(t *testing.T) {
	t.Parallel()
	own, err := statOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		started int64
		want    bool
	}{{own.Started, true}, {own.Started - 1, false}} {
		f := &family{root: os.Getpid(), started: c.started, session: own.Session, group: own.Group,
			mark: "GMEMTOP_NOBODYS=1"}
		if found := f.look(); slices.Contains(found, os.Getpid()) != c.want {
			t.Errorf("the command started at %d, process %d at %d: %v",
				c.started, os.Getpid(), own.Started, found)
		}
	}
}

// TestStrangersInTheSessionOfAKilledGmemtopAreNotTheCommands starts a command and then another program from a
// shell with a session of its own, which stands for a gmemtop that is killed later. Another one, which is in
// this session, looks for the command's processes.
func TestStrangersInTheSessionOfAKilledGmemtopAreNotTheCommands(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip("needs sleep: processes to tell apart")
	}
	dir := t.TempDir()
	killed := exec.Command("sh", "-c", `sh -c 'sleep 1000 & echo $! >child; wait' & echo $! >command
		until [ -e child ]; do sleep 0.01; done
		sleep 1000 & echo $! >stranger; wait`)
	killed.Dir, killed.SysProcAttr = dir, &syscall.SysProcAttr{Setsid: true}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-killed.Process.Pid, syscall.SIGKILL)
		_ = killed.Wait()
	})
	command, child := written(t, dir+"/command"), written(t, dir+"/child")
	stranger := written(t, dir+"/stranger")
	leaveOwner(dir, command, killed.Process.Pid, "")
	o, err := readOwner(filepath.Join(dir, ownerFile))
	if err != nil {
		t.Fatal(err)
	}
	f := familyOf(&Job{command: o, listener: &Listener{path: "/x.sock"}})
	if found := f.look(); !slices.Equal(found, []int{command, child}) {
		t.Errorf("the command is %d, its child %d and a stranger %d, and its processes are %v",
			command, child, stranger, found)
	}
}
