package xla_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/xla"
)

// dump is shaped as jaxlib writes it; the part after the allocations is from older releases.
const dump = `BufferAssignment:
allocation 0: size 1048576, maybe-live-out:
 value: <86 fusion.6 @0> (size=524288,offset=0): f32[256,512]{1,0}
 value: <103 dot @0> (size=1048576,offset=0): f32[512,512]{1,0}
allocation 1: size 3145728, parameter 0, shape |f32[512,1536]| at ShapeIndex {}:
 value: <84 p_0_.1 @0> (size=3145728,offset=0): f32[512,1536]{1,0}
allocation 2: size 32, output shape is |(f32[512,512])|, maybe-live-out:
 value: <111 tuple.1{} @0> (size=32,offset=0): (f32[512,512]{1,0})
allocation 3: size 2097152, preallocated-temp:
 value: <87 fusion.2 @0> (size=524288,offset=0): f32[256,512]{1,0}
 value: <90 fusion.1 @0> (size=524288,offset=1572864): f32[256,512]{1,0}
allocation 4: size 64, thread-local:
 value: <12 add @0> (size=4,offset=0): f32[]

Total bytes used: 6291488 (6.00MiB)
`

func read(text string) (*traces.Trace, error) {
	return xla.Read(context.Background(), strings.NewReader(text), nil)
}

func TestAnAssignmentIsReadAsTheProgramsNeeds(t *testing.T) {
	forms := map[string]string{"as it is": dump, "with CR": strings.ReplaceAll(dump, "\n", "\r\n")}
	for name, text := range forms {
		tr, err := read(text)
		if err != nil || !xla.Sniff([]byte(text)) {
			t.Fatalf("%s: recognised %t, %v", name, xla.Sniff([]byte(text)), err)
		}
		tl, err := timeline.Build(t.Context(), tr, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := tl.Main()
		if got := d.Totals.PeakAllocated; got != 6291488 || d.Totals.PeakReserved.IsKnown() {
			t.Errorf(
				"%s: %d bytes of %v reserved, XLA's own total is 6291488",
				name,
				got,
				d.Totals.PeakReserved,
			)
		}
		a, err := autopsy.Of(t.Context(), d, timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		if a.OOM || a.Inferred || len(a.Levers)+len(a.Causes) > 0 {
			t.Errorf("%s: an out-of-memory is seen: %s", name, a.Sentence)
		}
		for _, want := range []string{"6.00 MiB allocated on the program's device", "p_0_.1 f32[512,1536]"} {
			if !strings.Contains(a.Sentence, want) {
				t.Errorf("%s: %q lacks %q", name, a.Sentence, want)
			}
		}
		if len(tr.Losses) != 1 || tr.Losses[0].Name != "thread_local" {
			t.Errorf("%s: losses are %v", name, tr.Losses)
		}
	}
}

func TestDamageIsNamedByItsLine(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
		blocks     int
	}{
		"nothing in it": {"BufferAssignment:\n", "line 1: there is no allocation", 0},
		"thread-local alone": {"BufferAssignment:\nallocation 4: size 64, thread-local:\n",
			"line 2: there is no", 0},
		"another file":   {"BufferAssign\n", "line 1: the file does not begin with", 0},
		"no size":        {"BufferAssignment:\nallocation 1: size x:\n", "line 2: \"allocation 1", 0},
		"a broken value": {strings.Replace(dump, "(size=32,", "(size=,", 1), "line 8: \" value: <111", 3},
		"a value too far": {strings.Replace(dump, "offset=1572864", "offset=1572865", 1),
			"line 11: a value reaches", 4},
		"a size too large": {strings.Replace(dump, "size 32,", "size 9223372036854775807,", 1),
			"line 7: an allocation of 9223372036854775807", 2},
		"a size that overflows": {strings.Replace(dump, "size 32,", "size 99999999999999999999,", 1),
			"line 7: an allo", 2},
		"a line too long": {dump[:65] + strings.Repeat("x", 2<<20), "longer than 1 MiB", 1},
	} {
		tr, err := read(c.text)
		if !errors.Is(err, traces.ErrFormat) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if got := tr; c.blocks > 0 && (got == nil || len(got.Final.Blocks) != c.blocks) {
			t.Errorf("%s: the sound part is %v", name, got)
		}
	}
}

// FuzzRead looks for dumps that panic, or whose blocks do not add up to their segment.
func FuzzRead(f *testing.F) {
	f.Add(dump)
	f.Add(dump[:200])
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := read(text)
		if err != nil && !errors.Is(err, traces.ErrFormat) {
			t.Fatal(err)
		}
		if tr == nil {
			return
		}
		sum := int64(0)
		for _, b := range tr.Final.Blocks {
			sum += b.Size
		}
		if len(tr.Final.Segments) != 1 || tr.Final.Segments[0].TotalSize != sum {
			t.Errorf("blocks of %d bytes in %v", sum, tr.Final.Segments)
		}
	})
}
