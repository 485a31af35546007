//go:build !nobus

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// network is a few network namespaces that one switch connects. They stand for machines.
type network struct {
	t    *testing.T
	name string
}

// connected counts those that the tests made, which run beside each other.
var connected atomic.Int32

// connect makes namespaces 0 to n. The address of number i is 10.97.0.i+1.
func connect(t *testing.T, n int) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip: it makes network namespaces")
	}
	w := &network{t, fmt.Sprintf("gm%d-%d", os.Getpid(), connected.Add(1))}
	t.Cleanup(func() {
		for i := range n + 1 {
			_ = exec.Command("ip", "netns", "del", w.space(i)).Run()
		}
	})
	w.ip("netns add " + w.space(0))
	w.ip("-n " + w.space(0) + " link add br0 type bridge")
	w.ip("-n " + w.space(0) + " addr add 10.97.0.1/24 dev br0")
	w.ip("-n " + w.space(0) + " link set br0 up")
	w.ip("-n " + w.space(0) + " link set lo up")
	for i := 1; i <= n; i++ {
		w.ip("netns add " + w.space(i))
		w.ip(fmt.Sprintf("-n %s link add v%d type veth peer name e0 netns %s", w.space(0), i, w.space(i)))
		w.ip(fmt.Sprintf("-n %s link set v%d master br0 up", w.space(0), i))
		w.ip(fmt.Sprintf("-n %s addr add 10.97.0.%d/24 dev e0", w.space(i), i+1))
		w.ip("-n " + w.space(i) + " link set e0 up")
		w.ip("-n " + w.space(i) + " link set lo up")
	}
	return w
}

func (w *network) space(i int) string { return fmt.Sprintf("%s-%d", w.name, i) }

func (w *network) ip(args string) {
	w.t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		w.t.Skipf("needs root: ip %s: %v: %s", args, err, out) // a container may lack the capability
	}
}

// command returns a command that runs on machine i, which has a name of its own.
func (w *network) command(i int, env []string, argv ...string) *exec.Cmd {
	all := append([]string{"netns", "exec", w.space(i), "unshare", "--uts", "sh", "-c",
		fmt.Sprintf("hostname node%d && exec \"$@\"", i), "sh"}, argv...)
	cmd := exec.Command("ip", all...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// Two machines train together with torchrun and are watched from a third. The hub is killed on the way and
// started again. The training does not notice, no step is missing, and the recordings say the same.
func TestATrainingOnTwoMachinesIsWatchedFromAThird(t *testing.T) {
	t.Parallel()
	python := torchtest.Python(t)
	w := connect(t, 2)
	dir := t.TempDir()
	join, store, sealed := filepath.Join(dir, "r1.join"), filepath.Join(dir, "store"), filepath.Join(dir,
		"r1")
	const steps = 120
	train := func(i int, before ...string) *exec.Cmd {
		argv := append(before, python, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank",
			fmt.Sprint(i-1),
			"--nproc-per-node", "2", "--master-addr", "10.97.0.2", "--master-port", "29511",
			"testdata/nodes.py", fmt.Sprint(steps))
		return w.command(i, []string{"GLOO_SOCKET_IFNAME=e0", "OMP_NUM_THREADS=1", "PACE=0.1"}, argv...)
	}
	both := func(before ...string) []string {
		t.Helper()
		var out [2]bytes.Buffer
		var work sync.WaitGroup
		for i := range out {
			cmd := train(i+1, before...)
			cmd.Stdout, cmd.Stderr = &out[i], &out[i]
			work.Go(func() {
				if err := cmd.Run(); err != nil {
					t.Errorf("node%d: %v\n%s", i+1, err, out[i].Bytes())
				}
			})
		}
		work.Wait()
		found := regexp.MustCompile(`digest \d+ \w+`).FindAllString(out[0].String()+out[1].String(), -1)
		slices.Sort(found)
		return found
	}
	startHub := func() (*exec.Cmd, *bytes.Buffer) {
		t.Helper()
		said := new(bytes.Buffer)
		hub := w.command(0, nil, "gmemtop", "hub", "--listen", "10.97.0.1:7422", "--run", "r1",
			"--join-file", join,
			"--store", store, "-o", sealed)
		hub.Stderr = said
		if err := hub.Start(); err != nil {
			t.Fatal(err)
		}
		return hub, said
	}
	type line struct {
		Rank, Step int64
		Node       string
		Lost       int64 `json:"steps_lost"`
		State      string
	}
	type ranks struct{ Ranks []line }
	view := func(args ...string) (r ranks) {
		cmd := w.command(0, nil, append([]string{"gmemtop", "view", "--json"}, args...)...)
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &r)
		}
		if err != nil {
			t.Logf("view: %v %s", err, out)
		}
		return r
	}
	hub, _ := startHub()
	watched := make(chan []string)
	go func() { watched <- both("gmemtop", "run", "--headless", "-q", "--join-file", join, "--") }()
	begun := func() bool {
		r := view("--join-file", join).Ranks
		return len(r) == 4 && !slices.ContainsFunc(r, func(x line) bool { return x.Step < 2 })
	}
	for late := time.Now().Add(torchtest.Patience(t)); !begun() && time.Now().Before(late); {
		time.Sleep(200 * time.Millisecond)
	}
	captured := filepath.Join(dir, "captured")
	cmd := w.command(0, nil, "gmemtop", "capture", "--join-file", join, "--steps", "2", "--ranks", "0,3",
		"--json", "-o", captured)
	var answer struct {
		First int64 `json:"first_step"`
		Ranks []struct {
			Rank, Bytes int64
			First       int64 `json:"first_step"`
			Last        int64 `json:"last_step"`
			Path        string
			Late        bool
		}
	}
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &answer)
	}
	if err != nil || len(answer.Ranks) != 2 {
		t.Fatalf("capture: %v %s", err, out)
	}
	for i, r := range answer.Ranks {
		if r.Rank != int64(3*i) || r.First != answer.First || r.Last != answer.First+1 || r.Late ||
			r.Bytes == 0 {
			t.Errorf("captured: %s", out)
		}
	}
	cmd = w.command(0, nil, "gmemtop", "diff", answer.Ranks[0].Path, answer.Ranks[1].Path)
	compared, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(compared), "peak") {
		t.Errorf("the two ranks are not compared: %v\n%s", err, compared)
	}
	_ = hub.Process.Signal(syscall.SIGKILL)
	_ = hub.Wait()
	time.Sleep(time.Second) // in which the nodes keep their steps
	hub, said := startHub()
	learned := <-watched
	check := func(r ranks, state string) {
		t.Helper()
		if len(r.Ranks) != 4 {
			t.Fatalf("%d ranks: %+v", len(r.Ranks), r)
		}
		for i, x := range r.Ranks {
			if x.Rank != int64(i) || x.Node != fmt.Sprintf("node%d", i/2+1) || x.Step != steps-1 ||
				x.Lost != 0 ||
				!strings.HasPrefix(x.State, state) {
				t.Errorf("rank %d: %+v", i, x)
			}
		}
	}
	check(view("--join-file", join), "ended")
	_ = hub.Process.Signal(syscall.SIGTERM)
	if err := hub.Wait(); err != nil || !strings.Contains(said.String(),
		fmt.Sprintf("%d steps of 4 processes recorded", 4*steps)) {
		t.Errorf("the hub: %v: %s", err, said)
	}
	check(view(sealed), "ended")
	if _, err := os.Stat(join); err == nil {
		t.Error("the hub leaves the keys behind")
	}
	if alone := both(); len(alone) != 4 || !slices.Equal(alone, learned) {
		t.Errorf("alone they learned %q, watched %q", alone, learned)
	}
}
