//go:build !nobus

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// farHub is a hub that a viewer reaches only through a program: it listens at no port, and the viewer's user
// has another home there.
type farHub struct {
	dir, join string
	far       string // the gmemtop at the far end
	bin       string // a folder that comes first on the viewer's PATH
	log       words
}

// newFarHub prepares a hub, which is not started.
func newFarHub(t *testing.T) *farHub {
	t.Helper()
	h := &farHub{dir: t.TempDir()}
	h.join, h.bin, h.far = filepath.Join(h.dir, "r.join"), filepath.Join(h.dir, "bin"),
		filepath.Join(h.dir, "far gmemtop")
	if err := os.Mkdir(h.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	own, err := exec.LookPath("gmemtop")
	if err != nil {
		t.Fatal(err)
	}
	script(t, h.far, fmt.Sprintf("echo a banner of the far end\nXDG_CACHE_HOME='%s' exec '%s' \"$@\"\n",
		filepath.Join(h.dir, "far"), own))
	return h
}

// script writes a program for the shell.
func script(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// start starts the hub by a command that takes gmemtop's arguments, and sends it steps of a rank.
func (h *farHub) start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stdout, cmd.Stderr = &h.log, &h.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	first := job.NewWatch(job.Options{})
	j := job.New(first)
	first.Process.Begin(capture.Info{PID: 7, Started: 1, Rank: maybe.Known(3), WorldSize: maybe.Known(4)})
	for i := range int64(5) {
		first.Process.Step(capture.Step{Index: i, Start: i, End: i + 1, Allocated: maybe.Known(100 + i)})
	}
	n := fleet.StartNode(j, fleet.NodeOptions{Identity: fleet.Identity{Node: "n1"}, Join: h.join})
	t.Cleanup(func() { n.Close(); _ = j.Close() })
}

// gmemtop runs gmemtop where the viewer is.
func (h *farHub) gmemtop(ctx context.Context, args ...string) (out, said string, err error) {
	cmd := exec.CommandContext(ctx, "gmemtop", args...)
	cmd.Env = append(os.Environ(), "PATH="+h.bin+":"+os.Getenv("PATH"),
		"XDG_CACHE_HOME="+filepath.Join(h.dir, "near"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	return string(text), stderr.String(), err
}

// check looks at the run from where the viewer is.
func (h *farHub) check(t *testing.T, run, place string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), torchtest.Patience(t))
	defer stop()
	var r struct {
		Run   string
		Ranks []struct{ Rank, Step int64 }
	}
	out, said := "", ""
	for ctx.Err() == nil && (len(r.Ranks) == 0 || r.Ranks[0].Step < 4) {
		var err error
		out, said, err = h.gmemtop(ctx, "view", "--json", "--far-gmemtop", h.far, place)
		if err == nil {
			err = json.Unmarshal([]byte(out), &r)
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
	if r.Run != run || len(r.Ranks) != 1 || r.Ranks[0].Rank != 3 || r.Ranks[0].Step != 4 {
		t.Fatalf("%s shows %s; %s; the hub: %s", place, out, said, &h.log)
	}
}

// watchSecrets searches the arguments and environments of all processes for the run's keys until untold is
// called, which also searches the hub's output.
func (h *farHub) watchSecrets(t *testing.T) (untold func()) {
	t.Helper()
	join, err := bus.ReadJoin(h.join)
	for late := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(late); {
		time.Sleep(20 * time.Millisecond)
		join, err = bus.ReadJoin(h.join)
	}
	if err != nil || len(join.Seeds) < 3 {
		t.Fatalf("the join file: %v", err)
	}
	tells := func(where string, text []byte) {
		for role, seed := range join.Seeds {
			if bytes.Contains(text, []byte(seed)) {
				t.Errorf("%s tells the key of role %s", where, role)
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, path := range list {
				if text, err := os.ReadFile(path); err == nil {
					tells("a command line", text)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return func() {
		stop()
		work.Wait()
		tells("the hub", []byte(h.log.String()))
	}
}

func hubOf(h *farHub, run string) *exec.Cmd {
	return exec.Command(h.far, "hub", "--run", run, "--join-file", h.join)
}

// startSSHD starts a real sshd with the command that on makes, and with more lines of configuration. It
// returns the options with which ssh connects; ok is false if this machine has no sshd.
func startSSHD(t *testing.T, dir, config string, on func(argv ...string) *exec.Cmd) (options string,
	ok bool) {
	t.Helper()
	const server = "/usr/sbin/sshd"
	for _, program := range []string{server, "/usr/bin/ssh"} {
		if _, err := os.Stat(program); err != nil {
			return "", false
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"host", "key"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
			in(name)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v %s", err, out)
		}
	}
	if err := os.WriteFile(in("sshd_config"), fmt.Appendf(nil, "HostKey %s\nAuthorizedKeysFile %s\n"+
		"StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n%s", in("host"), in("key.pub"),
		config), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = os.Mkdir("/run/sshd", 0o755) // for root, where sshd has never run
	cmd := on(server, "-D", "-e", "-f", in("sshd_config"))
	var log words
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("sshd: %s", &log)
		}
	})
	await.Until(t, "sshd listens", func() bool { return strings.Contains(log.String(), "listening on") })
	return fmt.Sprintf("-F none -i '%s' -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "+
		"-o LogLevel=ERROR", in("key")), true
}

// localCommand is a command on this machine.
func localCommand(argv ...string) *exec.Cmd { return exec.Command(argv[0], argv[1:]...) }

// A real ssh and sshd connect to a hub that listens on no port.
func TestAHubIsReachedBySSH(t *testing.T) {
	h := newFarHub(t)
	port := freePort(t)
	settings, ok := startSSHD(t, h.dir, "Port "+port+"\nListenAddress 127.0.0.1\n", localCommand)
	if !ok {
		t.Skip("needs sshd: a viewer comes by ssh")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	h.start(t, hubOf(h, "r'1"))
	script(t, filepath.Join(h.bin, "ssh"), "exec /usr/bin/ssh "+settings+" \"$@\"\n")
	place := "ssh://" + me.Username + "@127.0.0.1:" + port + "/r'1"
	untold := h.watchSecrets(t)
	h.check(t, "r'1", place)
	// An operator's login is another one: this rank takes no orders, which only the node knows.
	ctx := t.Context()
	if _, said, err := h.gmemtop(ctx, "capture", "--far-gmemtop", h.far, "--ranks", "3",
		place); err == nil || !strings.Contains(said, "no rank is running that could be captured") {
		t.Errorf("capture: %v %s", err, said)
	}
	untold()
	// Errors at the far end are reported here.
	if _, said, err := h.gmemtop(ctx, "view", "--text", "--far-gmemtop", h.far,
		"ssh://"+me.Username+"@127.0.0.1:"+port+"/other"); err == nil ||
		!strings.Contains(said, `no hub is known here for run "other"`) || !strings.Contains(said, "r'1") {
		t.Errorf("another run: %v %s", err, said)
	}
}

// freePort returns a port that nothing listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return port
}

// A real Slurm of one node runs a job with a hub. srun leads to it, beside the job's own step.
func TestAHubIsReachedBySrun(t *testing.T) {
	needSlurm(t)
	h := newFarHub(t)
	startSlurm(t, h.dir)
	batch := filepath.Join(h.dir, "job.sh")
	// The hub runs as its own job step, as the training would.
	script(t, batch, fmt.Sprintf("exec srun --ntasks=1 '%s' hub --join-file '%s'\n", h.far, h.join))
	out, err := exec.Command("sbatch", "--parsable", "--ntasks=1", "--output="+
		filepath.Join(h.dir, "job.out"), batch).CombinedOutput()
	if err != nil {
		t.Fatalf("sbatch: %v %s", err, out)
	}
	id := strings.TrimSpace(string(out))
	t.Cleanup(func() { endSlurmJob(t, id) })
	h.start(t, exec.Command("sleep", "infinity"))
	h.check(t, id, "slurm:"+id)
	_, said, err := h.gmemtop(t.Context(), "capture", "--far-gmemtop", h.far, "slurm:"+id)
	if err == nil || !strings.Contains(said, "srun encrypts nothing") {
		t.Errorf("the operator's key passes through srun: %v %s", err, said)
	}
}

func needSlurm(t *testing.T) {
	t.Helper()
	for _, program := range []string{"slurmctld", "slurmd", "munged", "srun", "sbatch"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs Slurm: the test starts one of one node")
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: it starts slurmd")
	}
}

// endSlurmJob cancels a job and waits until its steps have ended: they outlive a slurmd that stops first.
func endSlurmJob(t *testing.T, id string) {
	t.Helper()
	_ = exec.Command("scancel", id).Run()
	await.Until(t, "Slurm's job has ended", func() bool {
		left, err := exec.Command("squeue", "-h", "-j", id).Output()
		return err != nil || len(strings.TrimSpace(string(left))) == 0
	})
}

// startSlurm starts munged, slurmctld and slurmd for one node, which is this machine.
func startSlurm(t *testing.T, dir string) {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"munge", "state", "spool"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	config := fmt.Sprintf(`ClusterName=test
SlurmctldHost=%s(127.0.0.1)
SlurmUser=root
AuthInfo=socket=%s
StateSaveLocation=%s
SlurmdSpoolDir=%s
SlurmctldPidFile=%s
SlurmdPidFile=%s
SlurmctldPort=%s
SlurmdPort=%s
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SelectType=select/cons_tres
MpiDefault=none
FirstJobId=4242
NodeName=%s NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES State=UP
`, host, in("munge/socket"), in("state"), in("spool"), in("ctld.pid"), in("d.pid"), freePort(t), freePort(t),
		host)
	if err := os.WriteFile(in("slurm.conf"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in("munge.key"), bytes.Repeat([]byte("0123456789abcdef"), 64), 0o400); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_CONF", in("slurm.conf"))
	for _, argv := range [][]string{
		{"munged", "--foreground", "--force", "--key-file=" + in("munge.key"),
			"--socket=" + in("munge/socket"), "--pid-file=" + in("munge/pid"),
			"--log-file=" + in("munge/log"), "--seed-file=" + in("munge/seed")},
		{"slurmctld", "-D", "-i"}, {"slurmd", "-D"},
	} {
		var log words
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdout, cmd.Stderr = &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait()
			if late.Stop(); t.Failed() {
				t.Logf("%s: %s", argv[0], &log)
			}
		})
		// Each needs the one before it.
		for late := time.Now().Add(20 * time.Second); argv[0] == "munged" && time.Now().Before(late); {
			if _, err := os.Stat(in("munge/socket")); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	for late := time.Now().Add(torchtest.Patience(t)); ; time.Sleep(100 * time.Millisecond) {
		out, err := exec.Command("sinfo", "--noheader", "--format=%T").CombinedOutput()
		if err == nil && strings.TrimSpace(string(out)) == "idle" {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("the node is not ready: %v %s", err, out)
		}
	}
}

// There is no Kubernetes here. A stand-in for kubectl takes the arguments that the real one takes, and runs
// the command in another environment.
func TestAHubIsReachedByKubectl(t *testing.T) {
	h := newFarHub(t)
	h.start(t, hubOf(h, "my-train"))
	script(t, filepath.Join(h.bin, "kubectl"), `[ "$1 $2 $3 $4" = "exec -i -n ml" ] && [ "$6" = -- ] || exit 9
echo "$5" >>`+h.dir+`/asked
shift 6
exec "$@"
`)
	h.check(t, "my-train", "k8s://ml/my-train")
	h.check(t, "my-train", "k8s://ml/pod/my-train-0")
	asked, err := os.ReadFile(filepath.Join(h.dir, "asked"))
	if err != nil || !strings.HasPrefix(string(asked), "job/my-train\n") ||
		!strings.HasSuffix(string(asked), "pod/my-train-0\n") {
		t.Errorf("kubectl was asked for %q: %v", asked, err)
	}
}
