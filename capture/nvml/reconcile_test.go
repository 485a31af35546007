package nvml

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Cases are text: the figures of the two sources (name: bytes, one a line), and the split that must result.
func TestReconcile(t *testing.T) {
	data, err := os.ReadFile("testdata/reconcile.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files := txtar.Parse(data).Files
	for i := 0; i+1 < len(files); i += 2 {
		name := strings.TrimSuffix(files[i].Name, ".in")
		t.Run(name, func(t *testing.T) {
			r, b := parseCase(t, string(files[i].Data))
			if got, want := split(Reconcile(r, b)), string(files[i+1].Data); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func parseCase(t *testing.T, text string) (*Reading, AllocatorFigures) {
	r, b := &Reading{ProcessesKnown: true}, AllocatorFigures{}
	figures := map[string]*maybe.Int{"used": &r.Memory.Used, "requested": &b.Requested,
		"allocated": &b.Allocated, "active": &b.Active, "reserved": &b.Reserved,
		"pools": &b.PrivatePools, "context": &b.Context, "bound": &b.ContextBound}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		f := maybe.Int{}
		if v := int64(0); value != "?" && key != "processes unknown" {
			if _, err := fmt.Sscan(value, &v); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			f = maybe.Known(v)
		}
		word, rest, _ := strings.Cut(key, " ")
		switch to := figures[word]; {
		case to != nil:
			*to = f
		case word == "pid":
			b.PID = int(f.Or(0))
		case word == "process":
			p := Process{Used: f}
			fmt.Sscan(rest, &p.PID, &p.Name)
			r.Processes = append(r.Processes, p)
		case word == "processes":
			r.ProcessesKnown = false
		default:
			t.Fatalf("unknown key %q", key)
		}
	}
	return r, b
}

func split(r Reconciliation) string {
	var s strings.Builder
	for _, p := range r.Entries {
		fmt.Fprintf(&s, "%s", p.Name)
		if p.PID != 0 {
			fmt.Fprintf(&s, " %d", p.PID)
		}
		fmt.Fprintf(&s, ": %d", p.Bytes)
		if p.Derived {
			s.WriteString(" (derived)")
		}
		s.WriteByte('\n')
	}
	for _, u := range r.Unknown {
		fmt.Fprintf(&s, "unknown: %s\n", u)
	}
	return s.String()
}

func TestThePartsAlwaysSumToTheDevicesUse(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	figure := func() maybe.Int {
		if rng.IntN(3) == 0 {
			return maybe.Int{}
		}
		return maybe.Known(rng.Int64N(1000))
	}
	for range 20000 {
		r := &Reading{Memory: Memory{Used: maybe.Known(rng.Int64N(3000))}, ProcessesKnown: rng.IntN(4) > 0}
		for range rng.IntN(4) {
			r.Processes = append(r.Processes, Process{PID: 1 + rng.IntN(3), Used: figure()})
		}
		b := AllocatorFigures{PID: rng.IntN(3), Requested: figure(), Allocated: figure(), Active: figure(),
			Reserved: figure(), PrivatePools: figure(), Context: figure(),
			ContextBound: figure()}
		out := Reconcile(r, b)
		sum := int64(0)
		for _, p := range out.Entries {
			sum += p.Bytes
			if p.Bytes < 0 && p.Name != Unexplained && p.Name != Libraries && p.Name != OutsidePyTorch {
				t.Fatalf("negative part %+v of %+v %+v", p, r, b)
			}
		}
		if sum != r.Memory.Used.Or(-1) {
			t.Fatalf("parts sum to %d, used %v: %+v of %+v %+v", sum, r.Memory.Used, out, r, b)
		}
	}
}

func TestTheBoundOfAContextOnlyFallsAndStaysPossible(t *testing.T) {
	var c ContextBound
	if got := c.Observe(maybe.Int{}, maybe.Known(1)); got.IsKnown() {
		t.Error(got)
	}
	c.Observe(maybe.Known(1000), maybe.Known(400))
	c.Observe(maybe.Known(900), maybe.Known(400))
	c.Observe(maybe.Known(300), maybe.Known(400)) // of two moments
	if got := c.Observe(maybe.Known(2000), maybe.Known(400)); got != maybe.Known(500) {
		t.Errorf("bound %v, want 500", got)
	}
}
