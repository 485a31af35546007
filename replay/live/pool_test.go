package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// script makes a recording: "+a 640" allocates, "-a" frees, "|" ends a step; a name is an address.
func script(text string) *traces.Trace {
	b := traces.NewBuilder()
	device := b.Device(traces.DeviceCPU, 0)
	sizes, began := map[byte]int64{}, int64(0)
	for i, line := range strings.Split(text, ", ") {
		e := traces.Event{Time: int64(i + 1), Addr: uint64(line[len(line)-1]), Stack: traces.NoStack,
			Stream: b.Stream(0), Device: device, Action: traces.Free}
		switch line[0] {
		case '|':
			b.T.Marks = append(b.T.Marks, traces.Mark{Start: began, End: e.Time, Kind: traces.MarkIteration,
				Device: device})
			began = e.Time
			continue
		case '+':
			e.Addr, e.Action = uint64(line[1]), traces.Alloc
			_, _ = fmt.Sscanf(line[2:], "%d", &e.Size)
			sizes[line[1]] = e.Size
		default:
			e.Size = sizes[line[1]]
		}
		b.Event(e)
	}
	return b.Finish()
}

func TestTheTableIsEveryAllocationOfTheIterationInOrder(t *testing.T) {
	tr := script("+k 512, |, +a 640, -a, +b 700, +g 900, -k, |, +a 640, -a, -g, +b " +
		"700, +g 900, |, +z 4096, |")
	row := func(addr byte, n int) int {
		for i := range tr.Events.Len() {
			if tr.Events.Action[i] == traces.Alloc && tr.Events.Addr[i] == uint64(addr) {
				if n--; n < 0 {
					return i
				}
			}
		}
		t.Fatalf("no allocation of %c", addr)
		return -1
	}
	// What was there before and what comes after have places as well, and are no part of the iteration.
	offsets := map[int]int64{row('k', 0): 0, row('a', 1): 64, row('g', 1): 1024, row('b', 1): -1}
	p, err := tabulate(tr, 0, offsets, 1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p)
	if want := `{"arena":1924,"steps":1,"entries":[[640,64,0],[700,-1,0],[900,1024,0]]}`; err != nil ||
		string(text) != want {
		t.Errorf("%s, %v, not %s", text, err, want)
	}
	var again Table
	if err := json.Unmarshal(text, &again); err != nil || !slices.Equal(again.Entries, p.Entries) ||
		again.Arena != p.Arena {
		t.Errorf("read again: %+v, %v", again, err)
	}
	if planned, all := p.PlannedBytes(); planned != 1540 || all != 2240 {
		t.Errorf("%d of %d bytes are planned", planned, all)
	}
	two, err := tabulate(tr, 0, map[int]int64{row('a', 0): 0, row('a', 1): 64}, 2)
	if err != nil || two.Steps != 2 || len(two.Entries) != 6 {
		t.Errorf("%+v, %v", two, err)
	}
	if _, err := tabulate(tr, 0, offsets, 5); err == nil ||
		!strings.Contains(err.Error(), "record more steps") {
		t.Errorf("%v", err)
	}
	if _, err := tabulate(tr, 0, map[int]int64{row('a', 0): -1}, 1); err == nil ||
		!strings.Contains(err.Error(), "record again") {
		t.Errorf("%v", err)
	}
}

func TestOnlyPlansThatChooseAddressesAndNothingElseArePooled(t *testing.T) {
	tr := script("+a 640, -a, |")
	d, err := trainingDevice(t.Context(), tr)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.FromDevice(t.Context(), d, plan.BuildOptions{Iteration: plan.SteadyIteration})
	if err != nil {
		t.Fatal(err)
	}
	placed := func() *plan.Plan {
		pl, err := plan.Assemble(p, plan.Decisions{})
		if err != nil {
			t.Fatal(err)
		}
		pl.Place(make([]int64, len(pl.Instances)))
		return pl
	}
	words, err := EncodePool(p, placed(), "/a/pool.so")
	if want := `{"version":1,"device":"cpu","pool":{"arena":640,"steps":1,"entries":[[640,0,0]]},"library":"/a/pool.so"}`; err != nil || string(words) != want {
		t.Errorf("%s, %v, not %s", words, err, want)
	}
	for want, spoil := range map[string]func(pl *plan.Plan){
		"moves or drops tensors":   func(pl *plan.Plan) { pl.Absences = []plan.Absence{{}} },
		"to the allocator caching": func(pl *plan.Plan) { pl.Policy = &plan.Policy{Name: "caching"} },
		"has no address":           func(pl *plan.Plan) { pl.Instances[0].Offset = -1 },
		"leave every tensor whole": func(pl *plan.Plan) { pl.SectionBytes = 1 << 20 },
		"for the executor ideal":   func(pl *plan.Plan) { pl.Executor = plan.TorchEager },
	} {
		pl := placed()
		spoil(pl)
		if _, err := EncodePool(p, pl, ""); !errors.Is(err, ErrNotLive) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
}

// An arena that takes as much as PyTorch's own allocator is refused, with what it is spent on.
func TestAPoolThatTakesMoreThanPyTorchsAllocatorIsRefused(t *testing.T) {
	const step = "+a 4194304, -a, -g, +g 4194304, |, "
	const steps = "+g 4194304, |, " + step + step + "-g, |"
	d, err := trainingDevice(t.Context(), script(steps))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.FromDevice(t.Context(), d, plan.BuildOptions{Iteration: 1})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	pl.Place(make([]int64, len(pl.Instances)))
	if err := pays(t.Context(), p, pl); err != nil { // PyTorch takes a segment of 20 MiB
		t.Errorf("an arena of %d bytes: %v", pl.Footprint, err)
	}
	far := make([]int64, len(pl.Instances))
	far[0] = 16 << 20
	pl.Place(far)
	target := NewPoolTarget(struct{ PoolCarrier }{}, "", Options{})
	_, err = target.encode(t.Context(), p, pl)
	if !errors.Is(err, ErrNoGain) || !strings.HasSuffix(err.Error(),
		"its arena takes 20.0 MiB, while PyTorch's allocator needs 20.0 MiB") {
		t.Errorf("an arena of %d bytes: %v", pl.Footprint, err)
	}
	pl.Manager = smartPool
	if err := pays(t.Context(), p, pl); !errors.Is(err, ErrNoGain) ||
		!strings.Contains(err.Error(), "two places for the 4.00 MiB that live from one step into the next") {
		t.Errorf("of SmartPool: %v", err)
	}
}
