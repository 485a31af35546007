//go:build !nobus

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// typed is a command of docs/fleet.md, and what the page shows below it.
type typed struct{ who, command, shown string }

// prompts are the machines of the page. Each command of the page stands behind one.
var prompts = regexp.MustCompile(`^(node0|each|you|login)\$ +(\S.*)$`)

// typedOn returns the commands of a page in order. A command goes on after a backslash.
func typedOn(page string) (list []typed) {
	for _, block := range regexp.MustCompile("(?ms)^```\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		open := false
		for line := range strings.Lines(block[1]) {
			line = strings.TrimRight(line, "\n")
			if m := prompts.FindStringSubmatch(line); m != nil {
				list = append(list, typed{who: m[1], command: m[2]})
			} else if n := len(list); n > 0 && open {
				list[n-1].command += "\n" + line
			} else if n > 0 {
				list[n-1].shown += line + "\n"
			}
			open = strings.HasSuffix(line, "\\")
		}
	}
	return list
}

// shellOn is a shell on one machine, at which commands are typed.
type shellOn struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	said words
	done chan struct{} // closed when it has ended
}

// marker follows the output of a command, with its exit code.
const marker = "the command has ended with "

// typedIn starts a shell by a command. At the end of the test stop makes what runs in it end.
func typedIn(t *testing.T, cmd *exec.Cmd, stop func()) *shellOn {
	t.Helper()
	s := &shellOn{t: t, cmd: cmd, done: make(chan struct{})}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.in, cmd.Stdout, cmd.Stderr = in, &s.said, &s.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		stop()
		_ = in.Close()
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			select {
			case <-s.done:
			case <-time.After(20 * time.Second):
			}
			_ = syscall.Kill(-cmd.Process.Pid, signal) // what runs in the background, too
		}
		<-s.done
	})
	return s
}

// enter types a command.
func (s *shellOn) enter(command string) (before int) {
	s.t.Helper()
	before = len(s.said.String())
	if _, err := fmt.Fprintf(s.in, "%s\necho \"%s$?\"\n", command, marker); err != nil {
		s.t.Fatalf("%s: %v; the shell: %s", command, err, &s.said)
	}
	return before
}

// finish waits for the end of the command that was entered, and returns what it printed and its exit code.
func (s *shellOn) finish(before int) (out string, code int) {
	s.t.Helper()
	ended := ""
	await.Until(s.t, "the command ends", func() bool {
		out, ended, _ = strings.Cut(s.said.String()[before:], marker)
		return strings.Contains(ended, "\n")
	})
	code, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(ended, "\n", 2)[0]))
	if err != nil {
		s.t.Fatal(err)
	}
	return out, code
}

// like reports whether a line is what the page shows, but for figures, sizes and the width of columns.
func like(printed, shown string) bool {
	plain := func(line string) string {
		line = regexp.MustCompile(`[\d.,]+( [KMG]iB| B| m?s| µs)?`).ReplaceAllString(line, "0")
		return strings.Join(strings.Fields(line), " ")
	}
	return plain(printed) == plain(shown)
}

// lacks returns the first line that the page shows and a command has not printed after those before it, "" if
// there is none. "..." stands for any lines.
func lacks(printed, shown string) string {
	lines := slices.Collect(bufioLines(printed))
	for want := range bufioLines(shown) {
		if strings.TrimSpace(want) == "..." || strings.TrimSpace(want) == "" {
			continue
		}
		at := slices.IndexFunc(lines, func(line string) bool { return like(line, want) })
		if at < 0 {
			return want
		}
		lines = lines[at+1:]
	}
	return ""
}

func bufioLines(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
			if !yield(s.Text()) {
				return
			}
		}
	}
}

// site is two machines that train and one that looks on, as docs/fleet.md has them: node0, node1 and you.
// They share /shared and the home folder's cache, but for you, who has another home.
type site struct {
	*network
	dir, bin string
}

// sites makes the machines. Their /shared is dir/shared.
func sites(t *testing.T, python string) *site {
	t.Helper()
	s := &site{network: connect(t, 3), dir: t.TempDir()}
	for _, name := range []string{"shared", "bin", "you", "cache", "root"} {
		if err := os.Mkdir(filepath.Join(s.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.bin = filepath.Join(s.dir, "bin")
	hosts := "127.0.0.1 localhost\n10.97.0.2 node0\n10.97.0.3 node1\n10.97.0.4 you\n10.97.0.2 login\n"
	if err := os.WriteFile(filepath.Join(s.dir, "hosts"), []byte(hosts), 0o644); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("gmemtop") // this binary, under the name that makes it the program
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(s.bin, "gmemtop")); err != nil {
		t.Fatal(err)
	}
	script(t, filepath.Join(s.bin, "torchrun"), fmt.Sprintf("exec '%s' -m torch.distributed.run \"$@\"\n",
		python))
	text, err := os.ReadFile("testdata/page.py")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "shared/train.py"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

// sshd starts an ssh server on a machine, which lets you in by a key, and what your ssh's own settings are.
// ok is false if this machine has none.
func (s *site) sshd(machine string) (ok bool) {
	s.t.Helper()
	server, ssh := "/usr/sbin/sshd", "/usr/bin/ssh"
	for _, program := range []string{server, ssh} {
		if _, err := os.Stat(program); err != nil {
			return false
		}
	}
	for _, name := range []string{"host", "key"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
			filepath.Join(s.dir, name)).CombinedOutput(); err != nil {
			s.t.Fatalf("ssh-keygen: %v %s", err, out)
		}
	}
	config := filepath.Join(s.dir, "sshd_config")
	if err := os.WriteFile(config, fmt.Appendf(nil, "HostKey %s\nAuthorizedKeysFile %s\nStrictModes no\n"+
		"UsePAM no\nPidFile none\nPermitRootLogin yes\nSetEnv PATH=%s XDG_CACHE_HOME=%s\n",
		filepath.Join(s.dir, "host"), filepath.Join(s.dir, "key.pub"), s.bin+":"+os.Getenv("PATH"),
		filepath.Join(s.dir, "cache")), 0o600); err != nil {
		s.t.Fatal(err)
	}
	script(s.t, filepath.Join(s.bin, "ssh"), fmt.Sprintf("exec '%s' -F none -i '%s' "+
		"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \"$@\"\n", ssh,
		filepath.Join(s.dir, "key")))
	_ = os.Mkdir("/run/sshd", 0o755) // where sshd has never run
	cmd := s.on(machine, server, "-D", "-e", "-f", config)
	var log words
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	await.Until(s.t, "sshd listens", func() bool { return strings.Contains(log.String(), "listening on") })
	return true
}

// stop makes the training end.
func (s *site) stop() {
	if err := os.WriteFile(filepath.Join(s.dir, "shared/stop"), nil, 0o600); err != nil {
		s.t.Error(err)
	}
}

// ownRoot runs a command with a name for its machine and a root folder that differs from the real one in
// /shared and the names of machines. Nothing of it outlives the command.
const ownRoot = `set -e
hostname "$0"
mount -t tmpfs none "$1/root"
for each in /*; do
	case $each in /shared) continue ;; esac
	if [ -L "$each" ]; then cp -d "$each" "$1/root$each"
	elif [ -d "$each" ]; then mkdir "$1/root$each" && mount --rbind "$each" "$1/root$each"
	fi
done
mkdir "$1/root/shared"
mount --bind "$1/shared" "$1/root/shared"
mount --bind "$1/hosts" "$1/root/etc/hosts"
root=$1/root folder=$2
shift 2
exec chroot "$root" sh -c 'cd "$0" && exec "$@"' "$folder" "$@"`

// on returns a command on a machine: node0, node1 or you.
func (s *site) on(machine string, argv ...string) *exec.Cmd {
	i := map[string]int{"node0": 1, "node1": 2, "you": 3}[machine]
	folder, cache := "/shared", "cache"
	if machine == "you" {
		folder, cache = filepath.Join(s.dir, "you"), "you"
	}
	cmd := exec.Command("ip", append([]string{"netns", "exec", s.space(i), "unshare", "--uts", "--mount",
		"sh", "-c", ownRoot, machine, s.dir, folder}, argv...)...)
	cmd.Env = append(os.Environ(), "PATH="+s.bin+":"+os.Getenv("PATH"), "OMP_NUM_THREADS=1",
		"XDG_CACHE_HOME="+filepath.Join(s.dir, cache), fmt.Sprintf("R=%d", i-1), "TERM=vt220",
		"BASH_ENV=", "PS1=", "PS2=")
	return cmd
}

// Every command of docs/fleet.md is typed as it stands there, in its order: two machines train, a third looks
// on, captures and plans. Commands of schedulers have tests of their own.
func TestThePageAboutSeveralMachinesIsTyped(t *testing.T) {
	python := torchtest.Python(t)
	s := sites(t, python)
	page, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	ssh := s.sshd("node0")
	shells := map[string]*shellOn{}
	shell := func(machine, of string) *shellOn {
		if shells[of] == nil {
			shells[of] = typedIn(t, s.on(machine, "bash", "--norc"), s.stop)
		}
		return shells[of]
	}
	var trains [2]int // where the output of torchrun begins
	var ran []string
	for _, c := range typedOn(string(page)) {
		elsewhere := strings.Contains(c.command, "slurm:") || strings.Contains(c.command, "k8s://") ||
			strings.Contains(c.command, "kubectl") || c.who == "login"
		if elsewhere || strings.Contains(c.command, "ssh://") && !ssh {
			t.Logf("left out: %s", c.command)
			continue
		}
		t.Logf("%s$ %s", c.who, c.command)
		ran = append(ran, c.command)
		switch {
		case c.who == "each":
			for i := range trains {
				machine := fmt.Sprintf("node%d", i)
				trains[i] = shell(machine, "train"+machine).enter(c.command)
			}
			s.trains(shell("you", "you"), shells)
			continue
		case onScreen(c.command):
			cmd := s.on(c.who, "bash", "--norc", "-c", c.command)
			s.look(c, cmd)
			continue
		case strings.Contains(c.command, "kill"): // the trainings end before their hub
			s.stop()
			for i := range trains {
				out, code := shells["trainnode"+strconv.Itoa(i)].finish(trains[i])
				if code != 0 {
					t.Errorf("node%d: exit code %d: %s", i, code, out)
				}
			}
		}
		at := shell(c.who, c.who)
		before := at.enter(c.command)
		out, code := at.finish(before)
		if code != exitOK {
			t.Fatalf("%s$ %s\nexit code %d: %s\nnode0: %s\ntraining: %s", c.who, c.command, code, out,
				&shell("node0", "node0").said, &shell("node0", "trainnode0").said)
		}
		t.Log(out)
		shown := c.shown
		if strings.HasPrefix(c.command, "gmemtop capture") && !strings.Contains(out, "of ranks 0, 3\n") {
			// On a busy machine another rank may be slow, and is captured as well.
			t.Logf("captured others, too: %s", out)
			shown = strings.Join(slices.Collect(bufioLines(shown))[1:4], "\n")
		}
		if missing := lacks(out, shown); missing != "" {
			t.Errorf("%s$ %s does not print %q; it prints\n%s", c.who, c.command, missing, out)
		}
	}
	for _, needed := range []string{"gmemtop hub", "gmemtop run", "gmemtop view", "gmemtop capture",
		"gmemtop compare"} {
		if !slices.ContainsFunc(ran, func(c string) bool { return strings.HasPrefix(c, needed) }) {
			t.Errorf("the page no longer says how to use %s", needed)
		}
	}
}

// onScreen reports whether a command shows a screen.
func onScreen(command string) bool {
	shows := strings.HasPrefix(command, "gmemtop view") || strings.HasPrefix(command, "gmemtop replay")
	return shows && !strings.Contains(command, "--text")
}

// trains waits until all four ranks have taken a few steps, as a viewer sees them.
func (s *site) trains(you *shellOn, shells map[string]*shellOn) {
	s.t.Helper()
	seen := ""
	late := time.Now().Add(4 * time.Minute)
	for {
		out, code := you.finish(you.enter("gmemtop view --join-file /shared/r1.join --json"))
		// The first steps take as long as they like.
		if seen = out; code == 0 && len(regexp.MustCompile(`"step": \d\d`).FindAllString(out, -1)) == 4 {
			return
		}
		said := shells["trainnode0"].said.String() + "\n" + shells["trainnode1"].said.String()
		if strings.Contains(said, marker) || time.Now().After(late) {
			s.t.Fatalf("the training does not begin: %s\n%s", seen, said)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// look runs a command on a terminal until it shows what it is for, and leaves it by its own key.
func (s *site) look(c typed, cmd *exec.Cmd) {
	s.t.Helper()
	x := newTerminal(s.t, 120, 40, cmd)
	defer x.close()
	wanted := []string{"node0", "node1"}
	compares := strings.HasPrefix(c.command, "gmemtop replay") // two traces
	if compares {
		wanted = []string{"rank0000.gmt", "Largest holder"}
	}
	screen, _ := x.until("both machines' ranks", func(screen string) bool {
		return !slices.ContainsFunc(wanted, func(w string) bool { return !strings.Contains(screen, w) })
	})
	s.t.Log("\n" + screen)
	press := func(key string) {
		if _, err := x.host.WriteString(key); err != nil {
			s.t.Fatal(err)
		}
	}
	if compares {
		press("9")
		screen, _ = x.until("both traces", func(screen string) bool {
			return strings.Contains(screen, "A rank0000.gmt") && strings.Contains(screen, "B rank0003.gmt")
		})
		s.t.Log("\n" + screen)
	}
	if strings.Contains(c.command, "ssh://") { // where another connection gives the order
		press("r")
		screen, _ = x.until("the captured step", func(screen string) bool {
			return strings.Contains(screen, "held") && strings.Contains(screen, "Largest holder")
		})
		s.t.Log("\n" + screen)
	}
	press("q")
	await.Until(s.t, c.command+" ends", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.over
	})
}

// The batch script of docs/fleet.md runs in a real Slurm of one node as job 4242, and is watched and captured
// by the commands of the page. Two ranks train.
func TestThePageAboutSlurmIsTyped(t *testing.T) {
	python := torchtest.Python(t)
	needSlurm(t)
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	for _, name := range []string{"bin", "job"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	batch := regexp.MustCompile("(?ms)^```sh\\n(J=.*?)^```$").FindSubmatch(page)
	if batch == nil {
		t.Fatal("the page has no batch script")
	}
	train, err := os.ReadFile("testdata/page.py")
	if err != nil {
		t.Fatal(err)
	}
	stop := filepath.Join(dir, "stop")
	train = []byte(strings.ReplaceAll(string(train), "/shared/stop", stop))
	if err := os.WriteFile(filepath.Join(dir, "job/train.py"), train, 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("gmemtop")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(bin, "gmemtop")); err != nil {
		t.Fatal(err)
	}
	script(t, filepath.Join(bin, "torchrun"), fmt.Sprintf("exec '%s' -m torch.distributed.run \"$@\"\n",
		python))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Setenv("OMP_NUM_THREADS", "1")
	t.Setenv("TERM", "vt220")
	startSlurm(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "job/job.sh"), append([]byte("#!/bin/bash\n"), batch[1]...),
		0o700); err != nil {
		t.Fatal(err)
	}
	submit := exec.Command("sbatch", "--parsable", "--nodes=1", "--cpus-per-task=2", "job.sh")
	submit.Dir = filepath.Join(dir, "job")
	id, err := submit.CombinedOutput()
	if err != nil || strings.TrimSpace(string(id)) != "4242" {
		t.Fatalf("sbatch: %v %s", err, id)
	}
	t.Cleanup(func() { endSlurmJob(t, "4242") })
	output := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "job/slurm-4242.out"))
		return string(text)
	}
	await.Until(t, "both ranks train", func() bool {
		out, _ := exec.Command("gmemtop", "view", "slurm:4242", "--json").Output()
		if strings.Contains(output(), "Error") {
			t.Fatal(output())
		}
		return len(regexp.MustCompile(`"step": \d\d`).FindAll(out, -1)) == 2
	})
	ran := 0
	for _, c := range typedOn(string(page)) {
		if c.who != "login" || !strings.HasPrefix(c.command, "gmemtop view slurm:") {
			continue
		}
		ran++
		x := newTerminal(t, 120, 40, exec.Command("bash", "--norc", "-c", c.command))
		screen, _ := x.until("both ranks", func(screen string) bool {
			return strings.Contains(screen, "of 2")
		})
		t.Log("\n" + screen)
		x.close()
	}
	if ran == 0 {
		t.Error("the page no longer says how to look at a job")
	}
	out, err := exec.Command("gmemtop", "capture", "slurm:4242", "--ranks", "0,1", "--steps", "2", "-o",
		filepath.Join(dir, "traces")).CombinedOutput()
	if found, _ := filepath.Glob(filepath.Join(dir, "traces/*.gmt")); err != nil || len(found) != 2 {
		t.Errorf("capture: %v %s", err, out)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the hub has written its recordings", func() bool {
		return strings.Contains(output(), "steps of 2 processes recorded")
	})
	sealed, err := exec.Command("gmemtop", "view", "--text", filepath.Join(dir, "job/4242")).CombinedOutput()
	if err != nil || strings.Count(string(sealed), "ended") != 2 {
		t.Errorf("sealed: %v %s", err, sealed)
	}
}
