package pytorch_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// rounds is how often viewers come and go in [TestViewersComeAndGo].
var rounds = flag.Int("rounds", 10, "how often viewers come and go")

const (
	// roundTime is how long a round may take: longer is a hang.
	roundTime = time.Minute
	// roundsPerTraining is how many rounds one training goes through before we compare it with the same
	// training alone.
	roundsPerTraining = 25
)

// kinds are the kinds of rounds. Each ends with a detach.
var kinds = []struct {
	name  string
	round func(ctx context.Context, pid int, r *rand.Rand) error
}{
	{"one", oneComes}, {"two at once", twoCome}, {"one beside another", oneBesideAnother},
	{"connection cut", oneIsCutOff}, {"viewer killed", oneIsKilled},
}

// TestViewersComeAndGo attaches to trainings again and again: one viewer after the other, two at one instant,
// a second one beside the first, one whose connection is cut, one that is killed. After each round no agent,
// marker or socket is left; the trainings learn the same and are clean in the end.
func TestViewersComeAndGo(t *testing.T) {
	dir := private(t)
	r := rand.New(rand.NewPCG(1, uint64(*rounds)))
	took := make([][]time.Duration, len(kinds))
	for first := 0; first < *rounds; first += roundsPerTraining {
		h := torchtest.NewHost(t)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), torchtest.Patience(t))
		h.Start(ctx)
		cancel()
		for i := first; i < min(first+roundsPerTraining, *rounds); i++ {
			k := i % len(kinds)
			if i >= len(kinds) {
				k = r.IntN(len(kinds))
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), roundTime)
			err := kinds[k].round(ctx, h.PID(), r)
			cancel()
			if i == 0 && errors.Is(err, inject.ErrNotPermitted) {
				t.Skip("needs the permission to trace a process of one's own: ", err)
			}
			took[k] = append(took[k], time.Since(began))
			err = errors.Join(err, nothingLeft(h.PID(), dir))
			if err != nil {
				t.Fatalf("round %d, %s: %v\n%s", i, kinds[k].name, err, h.Said())
			}
		}
		h.Compare()
		t.Logf("a training with rounds %d and later took %s", first, time.Since(began).Round(time.Second))
	}
	for k, list := range took {
		if slices.Sort(list); len(list) > 0 {
			t.Logf("%s: %d rounds, half within %s, the longest %s", kinds[k].name, len(list),
				list[len(list)/2].Round(time.Millisecond), list[len(list)-1].Round(time.Millisecond))
		}
	}
}

// nothingLeft checks that a process has no agent and that a folder holds no file and no socket.
func nothingLeft(pid int, dir string) error {
	if pytorch.Lives(pid) {
		return errors.New("an agent is left behind")
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = fmt.Errorf("%s is left", path)
		}
		return err
	})
}

// inside brings the agent into a process.
func inside(ctx context.Context, pid int, source string) error {
	_, err := inject.Inject(ctx, pid, inject.Bootstrap{Source: source, Name: "gmemtop_agent"})
	return err
}

// visitor is a running viewer.
type visitor struct {
	*pytorch.Session
	seen *capture.History
	done chan error
	kill context.CancelFunc
}

// visit attaches to a process and watches it until a step arrives.
func visit(ctx context.Context, pid int) (*visitor, error) {
	s, err := pytorch.Attach(ctx, pid, inside)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	v := &visitor{Session: s, seen: capture.NewHistory(capture.Limits{}), done: make(chan error, 1)}
	relay := pytorch.NewRelay(v.seen, s)
	s.Share(relay)
	run, kill := context.WithCancel(ctx)
	v.kill = kill
	go func() {
		err := s.Run(run, relay)
		relay.Close()
		v.done <- err
	}()
	return v, v.until(ctx, "a step", func(v *capture.View) bool { return len(v.Steps) > 0 })
}

// until waits until f holds of what was seen. If it never does, the error says what was awaited and what was
// seen instead.
func (v *visitor) until(ctx context.Context, what string, f func(v *capture.View) bool) error {
	err := v.seen.Until(ctx, func(x *capture.View) (bool, error) {
		switch {
		case f(x):
			return true, nil
		case x.Ended:
			return false, errors.New("the job ended")
		}
		return false, nil
	})
	if err != nil {
		x := v.seen.Snapshot()
		return fmt.Errorf("waiting for %s, with %d steps, answers %+v, end %+v, notices %+v: %w",
			what, len(x.Steps), x.Answers, x.End, x.Notices, err)
	}
	return nil
}

// describe orders a step and waits for the answer.
func (v *visitor) describe(ctx context.Context) error {
	o := capture.Order{ID: capture.NewOrderID(), Do: capture.Describe, Steps: 1}
	if err := v.Order(ctx, o); err != nil {
		return err
	}
	return v.until(ctx, "a captured step", func(v *capture.View) bool {
		a, _ := v.Answered(o.ID)
		return a.State == capture.OrderDone
	})
}

// leave detaches, and checks that the end says so.
func (v *visitor) leave(ctx context.Context) error {
	if err := v.Detach(ctx); err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	if err := <-v.done; err != nil {
		return err
	}
	if end := v.seen.Snapshot().End; end.Reason != capture.Detached {
		return fmt.Errorf("it ends with %+v", end)
	}
	return nil
}

func oneComes(ctx context.Context, pid int, _ *rand.Rand) error {
	v, err := visit(ctx, pid)
	if err != nil {
		return err
	}
	return errors.Join(v.describe(ctx), v.leave(ctx))
}

// twoCome attaches two viewers at the same moment. One of them injects the agent, or both try; each sees
// steps.
func twoCome(ctx context.Context, pid int, _ *rand.Rand) error {
	var both [2]*visitor
	var errs [2]error
	var work sync.WaitGroup
	for i := range both {
		work.Go(func() { both[i], errs[i] = visit(ctx, pid) })
	}
	work.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if both[0].Host() == 0 { // the second viewer leaves first: the first one takes the agent with it
		both[0], both[1] = both[1], both[0]
	}
	return errors.Join(both[0].leave(ctx), both[1].leave(ctx))
}

func oneBesideAnother(ctx context.Context, pid int, _ *rand.Rand) error {
	first, err := visit(ctx, pid)
	if err != nil {
		return err
	}
	second, err := visit(ctx, pid)
	if err != nil {
		return fmt.Errorf("the second: %w", err)
	}
	if second.Host() == 0 {
		return errors.New("the second took the agent from the first")
	}
	return errors.Join(second.describe(ctx), second.leave(ctx), first.describe(ctx), first.leave(ctx))
}

// oneIsCutOff hangs up without a bye. The next viewer finds the agent still there.
func oneIsCutOff(ctx context.Context, pid int, _ *rand.Rand) error {
	v, err := visit(ctx, pid)
	if err != nil {
		return err
	}
	v.kill()
	if err := <-v.done; !errors.Is(err, context.Canceled) && !strings.Contains(fmt.Sprint(err), "closed") {
		return fmt.Errorf("cut off, it ends with %w", err)
	}
	return oneFollows(ctx, pid)
}

// oneFollows attaches after a viewer that left without a bye.
func oneFollows(ctx context.Context, pid int) error {
	next, err := visit(ctx, pid)
	if err != nil {
		return fmt.Errorf("after the viewer that has gone: %w", err)
	}
	return next.leave(ctx)
}

// oneIsKilled kills a viewer in a separate process: as soon as the agent runs, once it has connected, or
// while a step is captured, and up to 20 ms later.
func oneIsKilled(ctx context.Context, pid int, r *rand.Rand) error {
	at := moments[r.IntN(len(moments))]
	later := time.Duration(r.IntN(20)) * time.Millisecond
	viewer := exec.CommandContext(ctx, os.Args[0])
	viewer.Env = append(os.Environ(), envAttach+"="+strconv.Itoa(pid))
	out, err := viewer.StdoutPipe()
	if err != nil {
		return err
	}
	if err := viewer.Start(); err != nil {
		return err
	}
	var said []string
	lines := bufio.NewScanner(out)
	for !slices.Contains(said, at) && lines.Scan() {
		said = append(said, lines.Text())
	}
	time.Sleep(later) // so that it is killed at any moment
	_ = viewer.Process.Kill()
	_ = viewer.Wait()
	if !slices.Contains(said, at) {
		return fmt.Errorf("the viewer to be killed said %q", said)
	}
	return oneFollows(ctx, pid)
}

// moments are what a viewer that will be killed prints.
var moments = []string{"injected", "attached", "asked"}

// envAttach makes the test binary a viewer: it names the process to attach to.
const envAttach = "TEST_ATTACH"

// attachUntilKilled is that viewer.
func attachUntilKilled(pid int) error {
	way := func(ctx context.Context, pid int, source string) error {
		err := inside(ctx, pid, source)
		if err == nil {
			fmt.Println("injected")
		}
		return err
	}
	s, err := pytorch.Attach(context.Background(), pid, way)
	if err != nil {
		return err
	}
	fmt.Println("attached")
	seen := capture.NewHistory(capture.Limits{})
	go func() {
		_ = seen.Until(context.Background(), func(v *capture.View) (bool, error) {
			return len(v.Steps) > 0, nil
		})
		_ = s.Order(context.Background(), capture.Order{Do: capture.Describe, Steps: 2})
		fmt.Println("asked")
	}()
	return s.Run(context.Background(), seen)
}
