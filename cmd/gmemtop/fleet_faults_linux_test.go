//go:build !nobus

package main

import (
	"encoding/json"
	"fmt"
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

	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
)

// watched is a training of two ranks on one machine that endures faults, and its hub on another one.
type watched struct {
	*network
	python, dir, join, sealed string
	said                      words // by the hub
	late                      time.Time
}

// faultyTraining makes the machines.
func faultyTraining(t *testing.T) *watched {
	t.Helper()
	x := &watched{python: torchtest.Python(t), network: connect(t, 1), dir: t.TempDir(),
		late: time.Now().Add(torchtest.Patience(t))}
	x.join, x.sealed = filepath.Join(x.dir, "r1.join"), filepath.Join(x.dir, "r1")
	return x
}

// train returns the training of some steps, 0 for as many as it takes until it is stopped. before is the
// command that starts it.
func (x *watched) train(steps int, before ...string) *exec.Cmd {
	argv := append(before, x.python, "-m", "torch.distributed.run", "--nproc-per-node", "2",
		"--master-addr", "127.0.0.1", "--master-port", "29512", "testdata/endless.py", x.dir,
		fmt.Sprint(steps))
	cmd := x.command(1, []string{"OMP_NUM_THREADS=1", "PACE=0.05"}, argv...)
	cmd.Stderr = os.Stderr
	return cmd
}

// start starts the training under gmemtop. ended receives its outcome.
func (x *watched) start() (run *exec.Cmd, learned *words, ended chan error) {
	x.t.Helper()
	run, learned = x.train(0, "gmemtop", "run", "--headless", "-q", "--join-file", x.join, "--"), new(words)
	run.Stdout = learned
	if err := run.Start(); err != nil {
		x.t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() {
		ended <- run.Wait() // which its ranks hold up, too: they have its output
		close(ended)
	}()
	x.t.Cleanup(func() { x.stop(); <-ended })
	x.until("the first steps arrive", func() bool { return x.progress() > 3 && x.arrived(3) })
	return run, learned, ended
}

// stop makes the training end.
func (x *watched) stop() { _ = os.WriteFile(filepath.Join(x.dir, "stop"), nil, 0o600) }

// hub starts the hub.
func (x *watched) hub() *exec.Cmd {
	x.t.Helper()
	hub := x.command(0, nil, "gmemtop", "hub", "--listen", "10.97.0.1:7422", "--run", "r1",
		"--join-file", x.join, "--store", filepath.Join(x.dir, "store"), "-o", x.sealed)
	hub.Stderr = &x.said
	if err := hub.Start(); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = hub.Process.Kill() })
	return hub
}

// end ends the hub and returns how many steps it has recorded.
func (x *watched) end(hub *exec.Cmd) (recorded int64) {
	x.t.Helper()
	_ = hub.Process.Signal(syscall.SIGTERM)
	err := hub.Wait()
	found := regexp.MustCompile(`(\d+) steps of 2 processes recorded`).FindStringSubmatch(x.said.String())
	if err != nil || found == nil {
		x.t.Fatalf("the hub: %v: %s", err, &x.said)
	}
	_, _ = fmt.Sscan(found[1], &recorded)
	return recorded
}

// progress returns how many steps the training has taken.
func (x *watched) progress() int64 {
	info, err := os.Stat(filepath.Join(x.dir, "progress"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// until waits until something is done.
func (x *watched) until(what string, done func() bool) {
	x.t.Helper()
	for !done() {
		if time.Now().After(x.late) {
			x.t.Fatalf("gave up waiting until %s", what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// seenRank is a rank as a viewer sees it.
type seenRank struct {
	Step  int64
	Lost  int64 `json:"steps_lost"`
	State string
}

// look returns both ranks as a viewer sees them now, nil if it does not.
func (x *watched) look() []seenRank {
	out, err := x.command(0, nil, "gmemtop", "view", "--json", "--join-file", x.join).Output()
	var r struct{ Ranks []seenRank }
	if err != nil || json.Unmarshal(out, &r) != nil || len(r.Ranks) != 2 {
		return nil
	}
	return r.Ranks
}

// arrived reports whether the viewer has a step of both ranks. Lost steps fail the test.
func (x *watched) arrived(step int64) bool {
	ranks := x.look()
	for _, r := range ranks {
		if r.Lost > 0 {
			x.t.Fatalf("%d steps are lost", r.Lost)
		}
		if r.Step < step-1 {
			return false
		}
	}
	return ranks != nil
}

// compare checks that the ranks learned what they learn without gmemtop in as many steps.
func (x *watched) compare(learned string, steps int64) {
	x.t.Helper()
	digests := func(text string) []string {
		list := regexp.MustCompile(`digest \d \w+ after \d+`).FindAllString(text, -1)
		slices.Sort(list)
		return list
	}
	alone, err := x.train(int(steps)).Output()
	if got, want := digests(learned), digests(string(alone)); err != nil || len(want) != 2 ||
		!slices.Equal(got, want) {
		x.t.Errorf("alone it learned %q, watched %q: %v", want, got, err)
	}
}

// The hub hangs, the link to it goes down, and it is killed. Each time the training goes on for many steps
// before the fault ends. Then all of them arrive, and nothing is lost. The training's results are
// bit-identical to those without gmemtop.
func TestATrainingDoesNotNoticeWhatBecomesOfItsHub(t *testing.T) {
	t.Parallel()
	x := faultyTraining(t)
	hub := x.hub()
	_, learned, ended := x.start()
	for _, fault := range []struct {
		name       string
		begin, end func()
	}{
		{"the hub hangs", func() { _ = hub.Process.Signal(syscall.SIGSTOP) },
			func() { _ = hub.Process.Signal(syscall.SIGCONT) }},
		{"the link is down", func() { x.ip("-n " + x.space(0) + " link set v1 down") },
			func() { x.ip("-n " + x.space(0) + " link set v1 up") }},
		{"the hub is killed", func() {
			_ = hub.Process.Kill()
			_ = hub.Wait()
		}, func() { hub = x.hub() }},
	} {
		before := x.progress()
		fault.begin()
		x.until(fault.name+" and the training goes on", func() bool { return x.progress() >= before+40 })
		at := x.progress()
		fault.end()
		x.until("what came while "+fault.name+" arrives", func() bool { return x.arrived(at) })
		t.Logf("%s: steps %d to %d arrived afterwards", fault.name, before, at)
	}
	x.stop()
	if err := <-ended; err != nil {
		t.Fatalf("the training: %v", err)
	}
	steps := x.progress()
	if recorded := x.end(hub); recorded != 2*steps || strings.Contains(x.said.String(), "never reached") {
		t.Errorf("%d steps of each rank, and %d recorded: %s", steps, recorded, &x.said)
	}
	x.compare(learned.String(), steps)
}

// standBy returns the process that stands by for a gmemtop that watches a command, 0 if none does yet.
func standBy(t *testing.T, watching int) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var l procs.Lister
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := l.Look(pid); err == nil && p.Parent == watching &&
			slices.Contains(p.Argv, headless.StandByCommand) {
			return pid
		}
	}
	return 0
}

// standBy waits for the process that stands by.
func (x *watched) standBy(watching int) (pid int) {
	x.t.Helper()
	x.until("another gmemtop stands by", func() bool {
		pid = standBy(x.t, watching)
		return pid > 0
	})
	return pid
}

// kill kills processes.
func (x *watched) kill(pids ...int) {
	x.t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			x.t.Fatal(err)
		}
	}
}

// The gmemtop that started a training is killed, and then the one that has taken its place, while the hub
// hangs and so does not take the steps that it holds. Each time the next one goes on by itself: every step of
// each rank is recorded once, and nobody has typed anything. At the end none is left.
func TestAKilledGmemtopComesBackByItself(t *testing.T) {
	t.Parallel()
	x := faultyTraining(t)
	hub := x.hub()
	run, learned, over := x.start()
	watching := run.Process.Pid
	for i := range 2 {
		next, at := x.standBy(watching), x.progress()
		if i == 1 {
			_ = hub.Process.Signal(syscall.SIGSTOP)
			x.until("some steps wait for the hub", func() bool { return x.progress() > at+20 })
		}
		x.kill(watching)
		at = x.progress()
		_ = hub.Process.Signal(syscall.SIGCONT)
		x.until("both ranks are seen again", func() bool { return x.progress() > at+20 && x.arrived(at+20) })
		watching = next
	}
	last := x.standBy(watching)
	x.stop()
	<-over
	x.until("the training ends by itself", func() bool {
		return strings.Count(learned.String(), "digest") == 2
	})
	ended := func(pid int) bool {
		s, err := procs.ReadStat(fmt.Sprintf("/proc/%d", pid))
		return err != nil || s.Ended()
	}
	x.until("no gmemtop is left", func() bool {
		return ended(watching) && ended(last)
	})
	steps := x.progress()
	if recorded := x.end(hub); recorded != 2*steps || strings.Contains(x.said.String(), "never reached") {
		t.Errorf("%d steps of each rank, and %d recorded: %s", steps, recorded, &x.said)
	}
	x.compare(learned.String(), steps)
}

// The gmemtop that started a training is killed, and the one that stands by with it. The training goes on to
// its end, with bit-identical results. Viewers are told that its machine is silent, and the hub keeps what
// came before.
func TestATrainingOutlivesItsGmemtop(t *testing.T) {
	t.Parallel()
	x := faultyTraining(t)
	hub := x.hub()
	run, learned, ended := x.start()
	at := x.progress()
	x.until("the steps so far arrive", func() bool { return x.arrived(at) })
	x.kill(x.standBy(run.Process.Pid), run.Process.Pid)
	x.until("the training goes on", func() bool { return x.progress() >= at+60 })
	x.until("viewers are told", func() bool {
		ranks := x.look()
		return ranks != nil && !slices.ContainsFunc(ranks, func(r seenRank) bool {
			return !strings.HasPrefix(r.State, "late") && !strings.HasPrefix(r.State, "lost")
		})
	})
	x.stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("gmemtop ended otherwise: %v", err)
	}
	x.until("the training ends by itself", func() bool {
		return strings.Count(learned.String(), "digest") == 2
	})
	steps := x.progress()
	if recorded := x.end(hub); recorded < 2*at || recorded >= 2*steps {
		t.Errorf("%d of %d steps of each rank came before the end, and %d were recorded", at, steps, recorded)
	}
	x.compare(learned.String(), steps)
}

// The gmemtop that started a training is killed, and so is the one that goes on for it, each with the one
// that stands by. Each time another one is typed and takes its place: viewers see the same two ranks go on,
// what the agents kept meanwhile arrives, and steps are captured again. The training's results are
// bit-identical to those without gmemtop.
func TestWhatAKilledGmemtopLeftIsAttachedTo(t *testing.T) {
	x := faultyTraining(t)
	hub := x.hub()
	watching, learned, ended := x.start()
	typed := strings.Fields(strings.ReplaceAll(attachBlock(t), "/shared/r1.join", x.join))
	attach := func() *exec.Cmd { return x.command(1, nil, typed...) }
	out, err := attach().CombinedOutput()
	if err == nil || !strings.Contains(string(out), "nothing to take over") {
		t.Errorf("beside the gmemtop that watches it: %v %s", err, out)
	}
	var said words
	for range 2 {
		x.until("both ranks are seen", func() bool { return x.look() != nil })
		x.kill(x.standBy(watching.Process.Pid), watching.Process.Pid)
		at := x.progress()
		x.until("the training goes on", func() bool { return x.progress() >= at+40 })
		watching = attach()
		watching.Stderr = &said
		if err := watching.Start(); err != nil {
			t.Fatal(err)
		}
		now := x.progress()
		x.until("both ranks are seen again", func() bool {
			ranks := x.look()
			return ranks != nil && !slices.ContainsFunc(ranks, func(r seenRank) bool {
				return r.Step < now || r.State != "runs"
			})
		})
	}
	captured := filepath.Join(x.dir, "captured")
	out, err = x.command(0, nil, "gmemtop", "capture", "--join-file", x.join, "--ranks", "all", "-o",
		captured).CombinedOutput()
	if found, _ := filepath.Glob(filepath.Join(captured, "*.gmt")); err != nil || len(found) != 2 {
		t.Errorf("capture: %v %s", err, out)
	}
	x.stop()
	if err := watching.Wait(); err != nil {
		t.Errorf("the last one: %v: %s", err, &said)
	}
	<-ended
	x.until("the training ends by itself", func() bool {
		return strings.Count(learned.String(), "digest") == 2
	})
	var lost int64
	for _, r := range x.look() {
		if lost += r.Lost; !strings.HasPrefix(r.State, "ended") {
			t.Errorf("%+v", r)
		}
	}
	// What an agent had sent to a gmemtop, and that had not sent on when it was killed, is in the rank's
	// ring.
	steps := x.progress()
	if recorded := x.end(hub); recorded != 2*steps || lost > 0 {
		t.Errorf("%d steps of each rank, %d lost, and %d recorded: %s", steps, lost, recorded, &said)
	}
	x.compare(learned.String(), steps)
}
