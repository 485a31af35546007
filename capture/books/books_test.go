//go:build cgo && linux

package books

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/capture/nvml/nvmltest"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

const gib = 1 << 30

// on is what the processes of a machine hold, by device.
type on = map[int][]nvmltest.Holder

// booksOf are the books of process 10 on a mocked machine, read once.
func booksOf(t *testing.T, device string, of on) *Books {
	t.Helper()
	s := capture.NewHistory(capture.Limits{})
	s.Begin(capture.Info{PID: 10, Device: device})
	b := New(s)
	b.root = t.TempDir()
	library := nvmltest.Mocked(t, of)
	b.open = func() (nvml.Source, error) { return library, nil }
	b.readNow(t)
	return b
}

// readNow asks for a reading and waits until it is there.
func (b *Books) readNow(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	b.began = time.Time{}
	b.mu.Unlock()
	b.Parts(10, step(0, 0))
	b.wait(t)
}

// wait waits for the reading that is under way.
func (b *Books) wait(t *testing.T) {
	t.Helper()
	await.Until(t, "the reading is done", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return !b.reading
	})
}

// step is a step that ends now with these allocator figures, 1 GiB of it parameters.
func step(allocated, reserved int64) *capture.Step {
	return &capture.Step{End: time.Now().UnixNano(), Allocated: maybe.Known(allocated),
		Reserved: maybe.Known(reserved), Parameters: maybe.Known(gib), OptimizerState: maybe.Known(0)}
}

func table(parts []Entry, whole Entry) string {
	var s strings.Builder
	for _, p := range append(parts, whole) {
		fmt.Fprintf(&s, "%s: %.3g", p.Name, float64(p.Bytes)/gib)
		if p.Derived {
			s.WriteString(" derived")
		}
		if p.Unexplained {
			s.WriteString(" unexplained")
		}
		s.WriteByte('\n')
	}
	return s.String()
}

func TestTheBooksAddUpToWhatTheDriverCounts(t *testing.T) {
	for _, c := range []struct {
		name, device        string
		of                  on
		allocated, reserved int64
		want                string
	}{
		{"a device of one's own", "cuda:0", on{0: {{10, 9 * gib}, {20, 2 * gib}}}, 5 * gib, 8 * gib,
			`parameters: 1
other tensors and rounding: 4 derived
cached and private pools: 3
CUDA context and libraries: 1 derived
program20 (20): 2
unexplained: 1 derived unexplained
Used on GPU 0, by NVML: 12
`},
		{"found by its process, whatever it calls its device", "cuda:0",
			on{5: {{10, 9 * gib}}, 0: {{20, gib}}}, 8 * gib, 8 * gib, `parameters: 1
other tensors and rounding: 7 derived
CUDA context and libraries: 1 derived
unexplained: 3 derived unexplained
Used on GPU 5, by NVML: 12
`},
		{"many others", "cuda:0", on{0: {{10, 4 * gib}, {20, 3 * gib}, {21, 2 * gib}, {22, gib}, {23, gib}}},
			4 * gib, 4 * gib, `parameters: 1
other tensors and rounding: 3 derived
program20 (20): 3
program21 (21): 2
2 other processes: 2
unexplained: 1 derived unexplained
Used on GPU 0, by NVML: 12
`},
		// Two sources, two moments: the remainder is negative, and is shown as such.
		{"freed meanwhile", "cuda:0", on{0: {{10, 13 * gib}}}, 13 * gib, 14 * gib, `parameters: 1
other tensors and rounding: 12 derived
cached and private pools: 1
CUDA context and libraries: -1 derived
unexplained: -1 derived unexplained
Used on GPU 0, by NVML: 12
`},
		{"inside a container: the numbers are the host's", "cuda:3", on{3: {{31337, 9 * gib}}}, 5 * gib,
			8 * gib, `parameters: 1
other tensors and rounding: 4 derived
cached and private pools: 3
context, other processes, unexplained: 4 derived unexplained
Used on GPU 3, by NVML: 12
`},
		{"the driver does not report its memory", "cuda:0",
			on{0: {{10, nvmltest.NotTold}, {20, nvmltest.NotTold}}}, 8 * gib, 8 * gib, `parameters: 1
other tensors and rounding: 7 derived
unexplained: 4 derived unexplained
Used on GPU 0, by NVML: 12
`},
		{"inside a container, and not that device", "cuda:3", on{3: {{31337, 9 * gib}}},
			5 * gib, 18 * gib, "nothing"},
		{"on two devices, and it trains on the second", "cuda:1", on{0: {{10, gib}}, 1: {{10, 12 * gib}}},
			11 * gib, 11 * gib, `parameters: 1
other tensors and rounding: 10 derived
CUDA context and libraries: 1 derived
Used on GPU 1, by NVML: 12
`},
		{"a device that is none", "mps", on{}, gib, gib, "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := booksOf(t, c.device, c.of)
			b.own[10].since = math.MaxInt64 // no reading is from the same moment: the context has no bound
			parts, whole, ok := b.Parts(10, step(c.allocated, c.reserved))
			got := "nothing"
			if ok {
				got = table(parts, whole)
				sum := int64(0)
				for _, p := range parts {
					sum += p.Bytes
				}
				if sum != whole.Bytes {
					t.Errorf("the parts sum to %d of %d", sum, whole.Bytes)
				}
			}
			if got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

func TestTheBooksShowRoundingAndPendingFrees(t *testing.T) {
	b := booksOf(t, "cuda:0", on{0: {{10, 10 * gib}}})
	b.own[10].since = math.MaxInt64
	s := step(6*gib, 9*gib)
	s.Requested, s.Active = maybe.Known(5*gib), maybe.Known(7*gib)
	parts, whole, ok := b.Parts(10, s)
	const want = `parameters: 1
other tensors: 4 derived
rounding: 1
pending free: 1
cached and private pools: 2
CUDA context and libraries: 1 derived
unexplained: 2 derived unexplained
Used on GPU 0, by NVML: 12
`
	if got := table(parts, whole); !ok || got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// cudaMallocAsync leaves requested and active bytes at 0; these are not figures.
func TestFiguresThatAnAllocatorDoesNotCountAreUnknown(t *testing.T) {
	s := step(6*gib, 9*gib)
	s.Requested, s.Active = maybe.Known(0), maybe.Known(0)
	const want = `parameters: 1
other tensors and rounding: 5 derived
cached and private pools: 3
Reserved after a step: 9
`
	if got := table(OfStep(s)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTheBooksShowPrivatePoolsAndTheAgeOfTheirFigure(t *testing.T) {
	for _, c := range []struct {
		name      string
		free, ago int64 // GiB, seconds before the step's end
		want      string
	}{
		{"counted at this step's end", 1, 0, "private pools: 1\ncached: 1\n"},
		{"counted before", 1, 12, "private pools, 12 s ago: 1\ncached: 1\n"},
		{"there are none", 0, 12, "cached: 2\n"},
		{"more than is free now", 5, 40, "private pools, 40 s ago: 2\n"},
		{"never counted", -1, 0, "cached and private pools: 2\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := booksOf(t, "cuda:0", on{0: {{10, 10 * gib}}})
			b.own[10].since = math.MaxInt64
			s := step(6*gib, 9*gib)
			s.Start = s.End - int64(time.Second)
			s.Requested, s.Active = maybe.Known(5*gib), maybe.Known(7*gib)
			if c.free >= 0 {
				s.PoolsFree = maybe.Known(c.free * gib)
				s.PoolsAt = maybe.Known(s.End - c.ago*int64(time.Second))
			}
			const after = "CUDA context and libraries: 1 derived\nunexplained: 2 derived unexplained\n" +
				"Used on GPU 0, by NVML: 12\n"
			const before = "parameters: 1\nother tensors: 4 derived\nrounding: 1\npending free: 1\n"
			parts, whole, ok := b.Parts(10, s)
			if got, want := table(parts, whole),
				before+c.want+after; !ok || got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			// Without NVML the allocator's parts are the same, and their total is what it has reserved.
			if parts, whole = OfStep(s); table(parts, whole) != before+c.want+"Reserved after a step: 9\n" {
				t.Errorf("without NVML:\n%s", table(parts, whole))
			}
		})
	}
}

func TestTheContextIsBoundedByTheLeastSeenOutsideTheAllocator(t *testing.T) {
	b := booksOf(t, "cuda:0", on{0: {{10, 9 * gib}}})
	first := step(5*gib, 8*gib)
	b.Parts(10, first) // the reading is older than the first step with that much: not the same moment
	if b.own[10].least.IsKnown() {
		t.Errorf("bound %v", b.own[10].least)
	}
	b.readNow(t)
	b.Parts(10, first)
	b.own[10].since = first.End // as if earlier steps had held as much
	parts, whole, ok := b.Parts(10, step(5*gib, 8*gib))
	if want := "CUDA context, at most: 1 derived\n"; !ok || !strings.Contains(table(parts, whole), want) {
		t.Errorf("got\n%s, want a line %q", table(parts, whole), want)
	}
}

func TestAReadingThatIsASecondOldIsMadeAgain(t *testing.T) {
	b := booksOf(t, "cuda:0", on{0: {{10, 9 * gib}}})
	began := time.Unix(1000, 0)
	for _, c := range []struct {
		age   time.Duration
		again bool
	}{
		{0, false}, {readAgain - 1, false}, {readAgain, true}, {time.Hour, true},
	} {
		b.mu.Lock()
		b.began, b.now = began, func() time.Time { return began.Add(c.age) }
		b.refresh()
		again := b.reading
		b.mu.Unlock()
		if again != c.again {
			t.Errorf("%v after a reading began, the next begins: %v", c.age, again)
		}
		b.wait(t)
	}
}

func TestWithoutNVMLThereAreNoBooks(t *testing.T) {
	s := capture.NewHistory(capture.Limits{})
	b := New(s)
	asked := 0
	b.open = func() (nvml.Source, error) { asked++; return nil, errors.New("no library") }
	b.readNow(t)
	for range 3 {
		if _, _, ok := b.Parts(10, step(1, 1)); ok {
			t.Error("there are books although nothing was measured")
		}
	}
	if asked != 1 {
		t.Errorf("opened %d times", asked)
	}
	if _, _, ok := b.Parts(10, &capture.Step{}); ok {
		t.Error("books of a process on the CPU")
	}
}

func TestCUDADeviceNumbersAreTranslatedOnlyIfCertain(t *testing.T) {
	equal := []nvml.Device{{Index: 0, Name: "H100", UUID: "GPU-aa1"},
		{Index: 1, Name: "H100", UUID: "GPU-bb2"}, {Index: 2, Name: "H100", UUID: "GPU-bb3"}}
	mixed := []nvml.Device{{Index: 0, Name: "T400", UUID: "GPU-aa1"},
		{Index: 1, Name: "H100", UUID: "GPU-bb2"}}
	const unset = "-"
	for _, c := range []struct {
		devices        []nvml.Device
		visible, order string
		ordinal, want  int
	}{
		{equal, unset, unset, 1, 1}, {equal, unset, unset, 3, -1}, {equal, "2,0", unset, 0, 2},
		{equal, "2, 0", unset, 1, 0}, {equal, "2", unset, 1, -1},
		{equal, "", unset, 0, -1}, {equal, "GPU-bb2", unset, 0, 1}, {equal, "GPU-cc", unset, 0, -1},
		{equal, "7", unset, 0, -1}, {equal, "-1", unset, 0, -1},
		{mixed, unset, unset, 0, -1}, {mixed, unset, "FASTEST_FIRST", 0, -1},
		{mixed, unset, "PCI_BUS_ID", 0, 0}, {mixed, "1", unset, 0, -1},
		{mixed, "1", "PCI_BUS_ID", 0, 1}, {mixed, "GPU-bb2", unset, 0, 1}, {mixed[:1], unset, unset, 0, 0},
		{nil, unset, unset, 0, -1},
	} {
		root := t.TempDir()
		env := "HOME=/root\x00"
		if c.visible != unset {
			env += "CUDA_VISIBLE_DEVICES=" + c.visible + "\x00"
		}
		if c.order != unset {
			env += "CUDA_DEVICE_ORDER=" + c.order + "\x00"
		}
		if err := errors.Join(os.Mkdir(filepath.Join(root, "10"), 0o755),
			os.WriteFile(filepath.Join(root, "10", "environ"), []byte(env), 0o644)); err != nil {
			t.Fatal(err)
		}
		got := visibleDevice(c.devices, c.ordinal, procs.Variables(filepath.Join(root, "10")))
		if got != maybe.NonNegative(int64(c.want)) { // -1 in a case stands for an unknown device
			t.Errorf("cuda:%d of %d devices with %q in order %q is %v, want %d", c.ordinal, len(c.devices),
				c.visible, c.order, got, c.want)
		}
	}
}
