//go:build !nobus

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gmemtop/gmemtop/capture/bus/sitetest"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

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
	hosts := "127.0.0.1 localhost\n10.97.0.2 node0\n10.97.0.3 node1\n10.97.0.4 you\n10.97.0.2 login\n" +
		"10.97.0.1 nats.site\n"
	if err := os.WriteFile(filepath.Join(s.dir, "hosts"), []byte(hosts), 0o644); err != nil {
		t.Fatal(err)
	}
	putPrograms(t, s.bin, python)
	text, err := os.ReadFile("testdata/page.py")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "shared/train.py"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

// putPrograms puts gmemtop and the torchrun of a Python into a folder.
func putPrograms(t *testing.T, bin, python string) {
	t.Helper()
	program, err := exec.LookPath("gmemtop") // this binary, under the name that makes it the program
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(bin, "gmemtop")); err != nil {
		t.Fatal(err)
	}
	script(t, filepath.Join(bin, "torchrun"), fmt.Sprintf("exec '%s' -m torch.distributed.run \"$@\"\n",
		python))
}

// sshd starts an ssh server on a machine, which lets you in by a key, and what your ssh's own settings are.
// ok is false if this machine has none.
func (s *site) sshd(machine string) (ok bool) {
	s.t.Helper()
	settings, ok := startSSHD(s.t, s.dir, fmt.Sprintf("SetEnv PATH=%s XDG_CACHE_HOME=%s\n",
		s.bin+":"+os.Getenv("PATH"), filepath.Join(s.dir, "cache")),
		func(argv ...string) *exec.Cmd { return s.on(machine, argv...) })
	if ok {
		script(s.t, filepath.Join(s.bin, "ssh"), "exec /usr/bin/ssh "+settings+" \"$@\"\n")
	}
	return ok
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

// Two machines train, a third looks on, captures and plans, by the commands of docs/fleet.md in their order.
func TestThePageAboutSeveralMachinesIsTyped(t *testing.T) {
	s := sites(t, torchtest.Python(t))
	list := toType(t)
	if !s.sshd("node0") {
		list = withoutSSH(t, list)
	}
	s.typeAll(list)
	for _, needed := range []string{"gmemtop hub", "gmemtop run", "gmemtop view", "gmemtop capture",
		"gmemtop compare"} {
		if !slices.ContainsFunc(list, func(c typed) bool { return strings.HasPrefix(c.command, needed) }) {
			t.Errorf("the page no longer says how to use %s", needed)
		}
	}
}

// A site's own NATS server carries a run, and another run's hub is its leaf node, by the commands of
// docs/fleet.md.
func TestThePageAboutASitesServersIsTyped(t *testing.T) {
	s := sites(t, torchtest.Python(t))
	nats := sitetest.Start(t)
	t.Setenv("SSL_CERT_FILE", nats.Roots)
	creds, err := os.ReadFile(nats.Credentials)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"shared", "you"} {
		if err := os.WriteFile(filepath.Join(s.dir, folder, "me.creds"), creds, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.forward("10.97.0.1:4222", strings.TrimPrefix(nats.URL, "tls://"))
	s.forward("10.97.0.1:7422", strings.TrimPrefix(nats.Leaf, "tls://"))
	s.typeAll(toType(t))
}

// forward passes connections to an address of the switch on to one of this machine.
func (s *site) forward(from, to string) {
	s.t.Helper()
	type listening struct {
		net.Listener
		err error
	}
	listen := make(chan listening)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		space, err := os.Open("/run/netns/" + s.space(0))
		if err == nil {
			defer space.Close()
			err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
		}
		var l net.Listener
		if err == nil {
			l, err = net.Listen("tcp", from)
		}
		listen <- listening{l, err}
	}()
	l := <-listen
	if l.err != nil {
		s.t.Fatal(l.err)
	}
	s.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_ = to.Close()
			}
			go pass(near, far)
			go pass(far, near)
		}
	}()
}

// trainings is a command that is typed on each of the machines that train.
type trainings struct {
	shells []*shellOn
	before []int // where the output of each begins
}

// typeAll types commands, each at the shell of its machine.
func (s *site) typeAll(list []typed) {
	s.t.Helper()
	shells := map[string]*shellOn{}
	shell := func(machine, of string) *shellOn {
		if shells[of] == nil {
			shells[of] = typedIn(s.t, s.on(machine, "bash", "--norc"), s.stop)
		}
		return shells[of]
	}
	var trains trainings
	for _, c := range list {
		s.t.Logf("%s$ %s", c.who, c.command)
		switch {
		case c.who == "each":
			trains = trainings{}
			_ = os.Remove(filepath.Join(s.dir, "shared/stop"))
			for _, machine := range []string{"node0", "node1"} {
				x := shell(machine, "train"+machine)
				trains.shells = append(trains.shells, x)
				trains.before = append(trains.before, x.enter(c.command))
			}
			s.trains(shell("you", "you"), shell("node0", "node0"), &trains, c)
			continue
		case onScreen(c.command):
			s.look(c, s.on(c.who, "bash", "--norc", "-c", c.command))
			continue
		case strings.Contains(c.command, "kill"): // the trainings end before their hub
			s.stop()
			for i, x := range trains.shells {
				if out, code := x.finish(trains.before[i]); code != 0 {
					s.t.Errorf("node%d: exit code %d: %s", i, code, out)
				}
			}
		}
		at := shell(c.who, c.who)
		out, code := at.finish(at.enter(c.command))
		if code != exitOK {
			s.t.Fatalf("%s$ %s\nexit code %d: %s\nnode0: %s\ntraining: %v", c.who, c.command, code, out,
				&shell("node0", "node0").said, &trains)
		}
		s.t.Log(out)
		shown := c.shown
		if strings.HasPrefix(c.command, "gmemtop capture") && !strings.Contains(out, "of ranks 0, 3\n") {
			// On a busy machine another rank may be slow, and is captured as well.
			s.t.Logf("captured others, too: %s", out)
			if lines := slices.Collect(bufioLines(shown)); len(lines) > 4 {
				shown = strings.Join(lines[1:4], "\n")
			}
		}
		if missing := lacks(out, shown); missing != "" {
			s.t.Errorf("%s$ %s does not print %q; it prints\n%s", c.who, c.command, missing, out)
		}
	}
}

// String returns what the training has printed on all machines.
func (x *trainings) String() string {
	var all strings.Builder
	for i, shell := range x.shells {
		all.WriteString(shell.said.String()[x.before[i]:] + "\n")
	}
	return all.String()
}

// onScreen reports whether a command shows a screen.
func onScreen(command string) bool {
	shows := strings.HasPrefix(command, "gmemtop view") || strings.HasPrefix(command, "gmemtop replay")
	return shows && !strings.Contains(command, "--text")
}

// howToJoin are the flags by which a training finds its hub, and a viewer the same one.
var howToJoin = regexp.MustCompile(`--(join-file|creds) \S+`)

// trains waits until all four ranks of a training have taken a few steps, as a viewer sees them. hub is where
// the hub runs.
func (s *site) trains(you, hub *shellOn, x *trainings, c typed) {
	s.t.Helper()
	command := "gmemtop view --json " + strings.Join(howToJoin.FindAllString(c.command, -1), " ")
	late := time.Now().Add(torchtest.Patience(s.t))
	for {
		seen, code := you.finish(you.enter(command))
		// The first steps take as long as they like.
		if code == 0 && len(regexp.MustCompile(`"step": \d\d`).FindAllString(seen, -1)) == 4 {
			return
		}
		if said := x.String(); strings.Contains(said, marker) || time.Now().After(late) {
			s.t.Fatalf("the training does not begin: %s\n%s\nthe hub: %s", seen, said, &hub.said)
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
		press("7")
		screen, _ = x.until("the ranks", func(screen string) bool {
			return strings.Contains(screen, "r captures a step")
		})
		s.t.Log("\n" + screen)
		press("r")
		screen, _ = x.until("the two captured steps", func(screen string) bool {
			return strings.Contains(screen, "A rank") && strings.Contains(screen, "B rank")
		})
		s.t.Log("\n" + screen)
		press("m")
		screen, _ = x.until("plans for both", func(screen string) bool {
			text := strings.Join(strings.Fields(screen), " ")
			return strings.Contains(text, "for the 2 ranks that captured this step")
		})
		s.t.Log("\n" + screen)
	}
	x.quit()
}
