package pytorch_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
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
var rounds = flag.Int("rounds", 4, "how often viewers come and go")

// roundTime is how long a round may take: longer is a hang.
const roundTime = time.Minute

// TestViewersComeAndGo attaches to one training again and again: one viewer after the other, two at one
// instant, a second one beside the first, one that is killed and one that comes behind it. Each round ends
// with a detach; the training learns the same, and nothing is left.
func TestViewersComeAndGo(t *testing.T) {
	private(t)
	h := torchtest.NewHost(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h.Start(ctx)
	way := func(ctx context.Context, pid int, source string) error {
		_, err := inject.Inject(ctx, pid, inject.Bootstrap{Source: source, Name: "gmemtop_agent"})
		return err
	}
	r := rand.New(rand.NewPCG(1, 2))
	kinds := []func(ctx context.Context, pid int, way pytorch.Injector) error{oneComes, twoCome, aSecondLooksAlong, oneIsKilled}
	for i := range *rounds {
		k := i % len(kinds)
		if i >= len(kinds) {
			k = r.IntN(len(kinds))
		}
		ctx, cancel := context.WithTimeout(t.Context(), roundTime)
		err := kinds[k](ctx, h.PID(), way)
		cancel()
		if i == 0 && errors.Is(err, inject.ErrNotPermitted) {
			t.Skip("needs the permission to trace a process of one's own: ", err)
		}
		if err != nil {
			t.Fatalf("round %d of kind %d: %v\n%s", i, k, err, h.Said())
		}
		if pytorch.Lives(h.PID()) {
			t.Fatalf("round %d of kind %d: an agent is left behind", i, k)
		}
	}
	h.Compare()
	dir, _ := pytorch.Folder()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}

// visitor is a viewer that runs.
type visitor struct {
	*pytorch.Session
	seen *capture.Session
	done chan error
	kill context.CancelFunc
}

// visit attaches to a process and watches it until a step has come.
func visit(ctx context.Context, pid int, way pytorch.Injector) (*visitor, error) {
	s, err := pytorch.Attach(ctx, pid, way)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	v := &visitor{Session: s, seen: capture.NewSession(capture.Limits{}), done: make(chan error, 1)}
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

// until waits until f holds of what was seen.
func (v *visitor) until(ctx context.Context, what string, f func(v *capture.View) bool) error {
	return v.seen.Until(ctx, func(x *capture.View) (bool, error) {
		switch {
		case f(x):
			return true, nil
		case x.Ended:
			return false, fmt.Errorf("waiting for %s it ends: %+v", what, x.End)
		}
		return false, nil
	})
}

// describe has a step captured and waits for the answer.
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

// leave detaches, and checks that this is how it ended.
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

func oneComes(ctx context.Context, pid int, way pytorch.Injector) error {
	v, err := visit(ctx, pid, way)
	if err != nil {
		return err
	}
	return errors.Join(v.describe(ctx), v.leave(ctx))
}

// twoCome attaches two viewers at the same moment. One of them injects the agent, or both try; each sees
// steps.
func twoCome(ctx context.Context, pid int, way pytorch.Injector) error {
	var both [2]*visitor
	var errs [2]error
	var work sync.WaitGroup
	for i := range both {
		work.Go(func() { both[i], errs[i] = visit(ctx, pid, way) })
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

func aSecondLooksAlong(ctx context.Context, pid int, way pytorch.Injector) error {
	first, err := visit(ctx, pid, way)
	if err != nil {
		return err
	}
	second, err := visit(ctx, pid, way)
	if err != nil {
		return fmt.Errorf("the second: %w", err)
	}
	if second.Host() == 0 {
		return errors.New("the second took the agent from the first")
	}
	return errors.Join(second.describe(ctx), second.leave(ctx), first.describe(ctx), first.leave(ctx))
}

// oneIsKilled hangs up without a goodbye. The next viewer finds the agent still there.
func oneIsKilled(ctx context.Context, pid int, way pytorch.Injector) error {
	v, err := visit(ctx, pid, way)
	if err != nil {
		return err
	}
	v.kill()
	if err := <-v.done; !errors.Is(err, context.Canceled) && !strings.Contains(fmt.Sprint(err), "closed") {
		return fmt.Errorf("killed, it ends with %w", err)
	}
	next, err := visit(ctx, pid, way)
	if err != nil {
		return fmt.Errorf("behind the one that was killed: %w", err)
	}
	return next.leave(ctx)
}
