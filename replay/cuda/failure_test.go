//go:build cuda && linux && cgo

package cuda

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/gmemtop/gmemtop/capture/standin/control"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

// onlinePolicies are the online allocators that are tried on a device.
var onlinePolicies = []plan.Policy{{Name: "caching"}, {Name: "caching", Settings: "expandable_segments:True"},
	{Name: "direct"}, {Name: "arena"}, {Name: "gmlake"}, {Name: plan.PolicyAsync}}

// policies are plans of one problem for every kind of memory.
func policies(t *testing.T) (*plan.Problem, []*plan.Plan) {
	t.Helper()
	p, pl := placed(t, 3, 0.8)
	plans := []*plan.Plan{pl}
	for _, policy := range append(slices.Clone(onlinePolicies),
		plan.Policy{Name: "caching", Settings: "backend:cudaMallocAsync"}) {
		plans = append(plans, kept(t, p, policy))
	}
	return p, plans
}

func name(pl *plan.Plan) string {
	if pl.Policy == nil {
		return "arena at planned offsets"
	}
	return pl.Policy.Name + " " + pl.Policy.Settings
}

func TestEveryKindOfMemoryIsVerifiedInEveryOrder(t *testing.T) {
	target := device(t, 1<<30, nil)
	p, plans := policies(t)
	for _, pl := range plans {
		for _, order := range []uint64{control.Late, control.Once, 5, 6, 7} {
			lib.Order(order)
			m, err := target.Run(context.Background(), p, pl, plan.RunOptions{})
			if err != nil {
				t.Fatalf("%s, order %d: %v", name(pl), order, err)
			}
			if live, _ := pl.PeakLive(); m.Footprint < min(live, m.PeakLive) || m.Footprint <= 0 {
				t.Errorf("%s holds %d bytes, %d are alive", name(pl), m.Footprint, live)
			}
		}
	}
}

// TestWhateverFailsEverythingIsGivenBack makes every call that takes something fail, one at a time, with an
// error that it can return on a device.
func TestWhateverFailsEverythingIsGivenBack(t *testing.T) {
	for _, c := range []struct {
		function string
		answer   int
		want     []error
	}{
		{"cuMemAlloc_v2", 2, []error{driver.ErrOutOfMemory, allocator.ErrOutOfMemory}},
		{"cuMemCreate", 2, []error{driver.ErrOutOfMemory, allocator.ErrOutOfMemory}},
		{"cuMemMap", 2, []error{driver.ErrOutOfMemory, allocator.ErrOutOfMemory}},
		{"cuMemSetAccess", 2, []error{driver.ErrOutOfMemory, allocator.ErrOutOfMemory}},
		{"cuMemAddressReserve", 2, []error{driver.ErrOutOfMemory, allocator.ErrOutOfMemory}},
		{"cuMemPoolCreate", 2, []error{driver.ErrOutOfMemory}},
		{"cuMemAllocFromPoolAsync", 2, []error{driver.ErrOutOfMemory}},
		{"cuMemHostRegister_v2", 304, []error{driver.ErrPinned}},
		{"cuStreamCreate", 2, []error{driver.ErrOutOfMemory}},
		{"cuEventCreate", 2, []error{driver.ErrOutOfMemory}},
		{"cuModuleLoadData", 222, []error{driver.ErrTooOld}},
		{"cuCtxCreate_v2", 46, []error{driver.ErrBusy}},
	} {
		t.Run(c.function, func(t *testing.T) {
			target := device(t, 1<<30, func(o *Options) { o.Iterations = 1 })
			p, plans := policies(t)
			failed := 0
			for _, pl := range plans {
				reset(1<<30, 0)
				if _, err := target.Run(context.Background(), p, pl, plan.RunOptions{}); err != nil {
					t.Fatal(err)
				}
				calls := lib.Calls(c.function)
				for n := 1; n <= calls; n += max(calls/40, 1) {
					reset(1<<30, 0)
					lib.Fail(c.function, n, c.answer)
					_, err := target.Run(context.Background(), p, pl, plan.RunOptions{})
					nothingLeft(t)
					if err == nil {
						continue // an allocator that gives its cache back and asks again
					}
					failed++
					if !isAny(err, c.want) {
						t.Fatalf("%s, call %d of %d: %v", name(pl), n, calls, err)
					}
				}
			}
			if failed == 0 {
				t.Error("no failure came through")
			}
		})
	}
}

func isAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// TestADeviceThatIsLostInMidRunSaysSoAndLeavesNothing loses the device at calls all over a run.
func TestADeviceThatIsLostInMidRunSaysSoAndLeavesNothing(t *testing.T) {
	target := device(t, 1<<30, func(o *Options) { o.Iterations = 1 })
	p, plans := policies(t)
	if _, err := target.Run(context.Background(), p, plans[0], plan.RunOptions{}); err != nil {
		// the first run measures rates, the later ones do not
		t.Fatal(err)
	}
	for _, pl := range plans {
		reset(1<<30, 0)
		if _, err := target.Run(context.Background(), p, pl, plan.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		calls := lib.Calls("*")
		for i, fault := range []struct {
			answer int
			want   error
		}{{214, driver.ErrECC}, {999, driver.ErrLost}, {719, driver.ErrLost}} {
			for n := 2 + i; n <= calls; n += max(calls/25, 1) {
				reset(1<<30, 0)
				lib.Fail("*", n, fault.answer)
				_, err := target.Run(context.Background(), p, pl, plan.RunOptions{})
				if !errors.Is(err, fault.want) {
					t.Fatalf("%s: answer %d at call %d of %d: %v", name(pl), fault.answer, n, calls, err)
				}
				if _, _, contexts := lib.Leaks(); contexts != 0 || lib.Held() != 0 || lib.Violation() != "" {
					t.Fatalf("%s, call %d: %d contexts and %d bytes are left; %s", name(pl), n, contexts,
						lib.Held(), lib.Violation())
				}
			}
		}
	}
	reset(1<<30, 0)
}

func TestCancellingReturnsAtOnceWithEverythingGivenBack(t *testing.T) {
	target := device(t, 1<<30, nil)
	p, plans := policies(t)
	for _, pl := range plans {
		for n := 0; n < 200; n += 13 {
			ctx := &expiring{Context: context.Background(), left: n}
			_, err := target.Run(ctx, p, pl, plan.RunOptions{})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: %v", name(pl), err)
			}
			nothingLeft(t)
		}
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	target.turn <- struct{}{} // somebody else has the device
	if _, err := target.Run(gone, p, plans[0], plan.RunOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for the device: %v", err)
	}
	<-target.turn
}

// expiring is a context that is cancelled once it has been checked a number of times.
type expiring struct {
	context.Context
	left int
}

func (e *expiring) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestAPanicGivesEverythingBack(t *testing.T) {
	target := device(t, 1<<30, nil)
	defer func() {
		if recover() == nil {
			t.Error("nothing panicked")
		}
		nothingLeft(t)
	}()
	_ = target.with(context.Background(), func(led *ledger, _ []driver.Kernel) error {
		if _, err := led.pin(1 << 16); err != nil {
			t.Error(err)
		}
		if _, err := led.Alloc(1 << 20); err != nil {
			t.Error(err)
		}
		panic("a defect")
	})
}

func TestMoreThanIsFreeLessTheMarginIsRefusedWithoutAskingTheDriver(t *testing.T) {
	target := device(t, 1<<30, func(o *Options) { o.Margin = 100 << 20 })
	p, pl := placed(t, 1, 0.5)
	reset(1<<30, 1<<30-(100<<20)-1<<10) // others hold all but the margin and 1 KiB
	_, err := target.Run(context.Background(), p, pl, plan.RunOptions{})
	if !errors.Is(err, driver.ErrOutOfMemory) || lib.Peak() > 1<<10 {
		t.Errorf("%v; %d bytes were held", err, lib.Peak())
	}
	reset(1<<30, 1<<30-(100<<20)+1)
	if _, err := target.Run(context.Background(), p, pl, plan.RunOptions{}); !errors.Is(err,
		driver.ErrOutOfMemory) || lib.Peak() != 0 {
		t.Errorf("%v; %d bytes were held", err, lib.Peak())
	}
	huge := *pl
	huge.Instances = append([]plan.Instance(nil), pl.Instances...)
	huge.Footprint = 2 << 30
	reset(1<<30, 0)
	if _, err := target.Run(context.Background(), p, &huge, plan.RunOptions{}); !errors.Is(err,
		driver.ErrOutOfMemory) || !strings.Contains(err.Error(), "needs") {
		t.Errorf("a plan above the card: %v", err)
	}
}

// TestTheLedgerGivesBackInTheOrderThatTheDriverWants takes one of everything and closes.
func TestTheLedgerGivesBackInTheOrderThatTheDriverWants(t *testing.T) {
	target := device(t, 1<<30, nil)
	err := target.with(context.Background(), func(led *ledger, _ []driver.Kernel) error {
		s, err := led.NewStream()
		if err != nil {
			return err
		}
		e, err := led.NewEvent(true)
		if err != nil {
			return err
		}
		host, err := led.pin(12345)
		if err != nil {
			return err
		}
		if len(host) != 12345 {
			t.Errorf("%d bytes are pinned, 12345 were wanted", len(host))
		}
		size, err := led.Granularity()
		if err != nil {
			return err
		}
		at, err := led.Reserve(4 * size)
		if err != nil {
			return err
		}
		h, err := led.Create(size)
		if err != nil {
			return err
		}
		if err := errors.Join(led.Map(at+driver.Ptr(size), size, h),
			led.Map(at+3*driver.Ptr(size), size, h)); err != nil {
			return err
		}
		// One physical page at two addresses: what is written at one is read at the other.
		copy(host, "written at one address")
		err = errors.Join(led.CopyIn(at+driver.Ptr(size), unsafe.Pointer(&host[0]), 64, s),
			led.CopyOut(unsafe.Pointer(&host[100]), at+3*driver.Ptr(size), 64, s), led.Record(e, s),
			led.SynchronizeEvent(e))
		if string(host[100:122]) != "written at one address" {
			t.Errorf("read %q", host[100:122])
		}
		if _, e := led.AllocAsync(1000, s); e != nil {
			return e
		}
		if _, e := led.Alloc(1000); e != nil {
			return e
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnlineAllocatorsKeepEveryByteOnManyStreams: if blocks go from stream to stream, an allocator on a
// device has to order more than addresses.
func TestOnlineAllocatorsKeepEveryByteOnManyStreams(t *testing.T) {
	target := device(t, 1<<30, nil)
	for seed := range uint64(24) {
		p, _ := placed(t, seed, 0)
		for i := 1; i < len(p.Buffers); i += 3 {
			p.Buffers[i].Stream = (p.Buffers[i].Stream + 1) % int16(p.Streams)
		}
		for _, policy := range onlinePolicies {
			pl := kept(t, p, policy)
			for _, order := range []uint64{control.Late, control.Once, control.Drawn + seed, 100 + seed} {
				lib.Order(order)
				if err := verifyOnly(t, target, p, pl); err != nil {
					t.Fatalf("seed %d, %s, order %d: %v", seed, name(pl), order, err)
				}
			}
		}
	}
}
