package fidelity_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/fidelity"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// configurations are settings and capacities under which the recorder's programs reach every path.
var configurations = []struct {
	conf     string
	capacity int64
}{
	{"", 0}, {"", 600 << 20}, {"", 300 << 20},
	{"max_split_size_mb:24", 0}, {"max_split_size_mb:24", 500 << 20},
	{"roundup_power2_divisions:[4:2,16:8,>:4]", 0},
	{"large_segment_size_mb:40", 0},
	{"expandable_segments:True", 0}, {"expandable_segments:True", 500 << 20},
	{"expandable_segments:True,large_segment_size_mb:12", 0},
}

func TestARecordingOfTheEmulationReplaysInEveryDetail(t *testing.T) {
	emptied, refused, waited, ooms := 0, 0, 0, 0
	for _, c := range configurations {
		for seed := range uint64(6) {
			r := newRecorder(t, c.conf, c.capacity, seed)
			if seed%3 == 1 {
				r.pools = []traces.Pool{{First: 1}, {Second: 2}}
				r.named = true
			}
			r.program(3000)
			d := r.device(0)
			rep, err := fidelity.Replay(context.Background(), d)
			if err != nil {
				t.Fatalf("%q, %d: %v", c.conf, c.capacity, err)
			}
			if rep.Score() != 1 || rep.SegmentScore() != 1 || rep.FinalScore() != 1 || rep.PeakError() != 0 ||
				rep.First != nil {
				t.Errorf("%q, capacity %d, seed %d: %s %+v", c.conf, c.capacity, seed,
					rep.Sentence(timeline.IEC), rep)
			}
			if !rep.FromEmpty || rep.Allocations < 400 || rep.FinalBlocks == 0 {
				t.Errorf("%q: %+v", c.conf, rep)
			}
			emptied += rep.EmptiedCaches
			refused += rep.Refusals
			waited += len(r.done)
			ooms += d.Totals.OOMs
		}
	}
	if emptied == 0 || refused == 0 || waited == 0 || ooms == 0 {
		t.Errorf("the programs emptied the cache %d times, were refused %d times, waited for %d events, "+
			"failed %d times",
			emptied, refused, waited, ooms)
	}
}

// The rests kept by blocks older than the recording are not recorded and may in principle differ; in these
// recordings it does not matter. Releases that take blocks by the age of their segments are tested below.
func TestARecordingThatLostItsBeginningIsReplayedFromItsFinalState(t *testing.T) {
	for _, c := range configurations {
		for seed := range uint64(4) {
			r := newRecorderOf(t, allocator.Version{Major: 2, Minor: 11}, c.conf, c.capacity, seed)
			r.program(3000)
			d := r.device(int(r.now/1000) * int(3+seed) / 10)
			rep, err := fidelity.Replay(context.Background(), d)
			if err != nil {
				t.Fatalf("%q, %d: %v", c.conf, c.capacity, err)
			}
			t.Logf("%q %d: %s", c.conf, c.capacity, rep.Sentence(timeline.IEC))
			if rep.FromEmpty || rep.Restored == 0 {
				t.Errorf("%q: %+v", c.conf, rep)
			}
			if rep.Score() != 1 || rep.SegmentScore() != 1 || rep.FinalScore() != 1 {
				t.Errorf("%q, capacity %d, seed %d: %s", c.conf, c.capacity, seed, rep.Sentence(timeline.IEC))
			}
		}
	}
}

func TestAReplayThatHasToGuessTheAgeOfSegmentsSaysSo(t *testing.T) {
	guessed := 0
	for seed := range uint64(4) {
		r := newRecorder(t, "", 600<<20, seed)
		r.program(3000)
		r.b.T.Settings = append(r.b.T.Settings, traces.Setting{Key: allocator.TorchSetting, Value: "[2, 15]"})
		rep, err := fidelity.Replay(context.Background(), r.device(int(r.now/1000)*int(3+seed)/10))
		if err != nil {
			t.Fatal(err)
		}
		if rep.Score() < 0.85 || rep.SegmentScore() < 0.85 {
			t.Errorf("seed %d: %s", seed, rep.Sentence(timeline.IEC))
		}
		if said := strings.Contains(strings.Join(rep.Caveats, "; "),
			"by the age of their segments"); said != (rep.First != nil) {
			t.Errorf("seed %d: %v", seed, rep.Caveats)
		} else if said {
			guessed++
		}
	}
	if guessed == 0 {
		t.Error("no age mattered")
	}
}

func TestFittingRulesAreFoundIfTheReleaseIsNotRecorded(t *testing.T) {
	for _, c := range []struct {
		torch allocator.Version
		says  string
	}{{allocator.Version{Major: 2, Minor: 7}, "2.11 and older"},
		{allocator.Version{Major: 2, Minor: 12}, "2.12"}, {allocator.Version{Major: 2, Minor: 15}, ""}} {
		r := newRecorderOf(t, c.torch, "", 600<<20, 3)
		r.program(4000)
		rep, err := fidelity.Replay(context.Background(), r.device(0))
		if err != nil {
			t.Fatal(err)
		}
		if rep.First != nil || rep.Score() != 1 || rep.TorchRecorded {
			t.Errorf("%v: %s", c.torch, rep.Sentence(timeline.IEC))
		}
		said := strings.Join(rep.Caveats, "; ")
		if c.says == "" && strings.Contains(said, "release") || c.says != "" &&
			!strings.Contains(said, "those of "+c.says+" fit best") {
			t.Errorf("%v: %s", c.torch, said)
		}
	}
}

// TestTheFirstEventsOfALongRecordingTellTheRules: the rules that a replay of all would find are found,
// whether the recording begins empty or in the middle.
func TestTheFirstEventsOfALongRecordingTellTheRules(t *testing.T) {
	for _, minor := range []int{7, 12, 15} {
		torch := allocator.Version{Major: 2, Minor: minor}
		for _, skip := range []int{0, 1000} {
			r := newRecorderOf(t, torch, "", 600<<20, 3)
			r.program(4000)
			d := r.device(skip)
			all, err := fidelity.Replay(context.Background(), d)
			if err != nil {
				t.Fatal(err)
			}
			old := fidelity.SetFirstEvents(1500)
			first, err := fidelity.Replay(context.Background(), d)
			fidelity.SetFirstEvents(old)
			if err != nil {
				t.Fatal(err)
			}
			if first.Settings.Torch != all.Settings.Torch || first.Score() != all.Score() ||
				first.SegmentScore() != all.SegmentScore() || first.FinalScore() != all.FinalScore() {
				t.Errorf("%v from %d: %s of %v, and of %v: %s", torch, skip, first.Sentence(timeline.IEC),
					first.Settings.Torch, all.Settings.Torch, all.Sentence(timeline.IEC))
			}
		}
	}
}

func TestARecordedReleaseIsNotGuessed(t *testing.T) {
	old := allocator.Version{Major: 2, Minor: 7}
	replay := func(release string) *fidelity.Report {
		r := newRecorderOf(t, old, "", 600<<20, 3)
		r.program(4000)
		r.b.T.Settings = append(r.b.T.Settings, traces.Setting{Key: allocator.TorchSetting, Value: release})
		rep, err := fidelity.Replay(context.Background(), r.device(0))
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	if rep := replay("[2, 7]"); rep.First != nil || !rep.TorchRecorded || rep.Settings.Torch != old {
		t.Errorf("its own release: %s", rep.Sentence(timeline.IEC))
	}
	if rep := replay("[2, 15]"); rep.First == nil || !rep.TorchRecorded {
		t.Errorf("another release counts as its own: %s", rep.Sentence(timeline.IEC))
	}
}

// With the memory fraction, garbage collection is replayed; without, its releases are attributed to the
// program.
func TestGarbageCollectionIsReplayedIfTheMemoryFractionIsRecorded(t *testing.T) {
	const total, share = 1 << 30, 0.8
	replay := func(devices string) *fidelity.Report {
		r := newRecorder(t, "garbage_collection_threshold:0.4", total, 5)
		r.alloc.SetMemoryFraction(share)
		r.program(4000)
		r.b.T.Settings = append(r.b.T.Settings, traces.Setting{Key: allocator.DevicesSetting, Value: devices})
		rep, err := fidelity.Replay(context.Background(), r.device(0))
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	if rep := replay(fmt.Sprintf(`{"0": {"total_bytes": %d, "memory_fraction": %v}}`, total,
		share)); rep.First != nil || rep.Score() != 1 ||
		rep.SegmentScore() != 1 || rep.FinalScore() != 1 {
		t.Errorf("with the fraction: %s", rep.Sentence(timeline.IEC))
	}
	if rep := replay(`{}`); rep.First == nil ||
		!strings.Contains(strings.Join(rep.Caveats, "; "), "garbage collection is not replayed") {
		t.Errorf("without: %s %v", rep.Sentence(timeline.IEC), rep.Caveats)
	}
}

// A comparison that cannot fail proves nothing.
func TestAChangedDecisionIsFound(t *testing.T) {
	// record returns the report of one recording with some of its events changed. It has no final state,
	// which the changes would contradict; the first sample of the source's own total says that it begins
	// empty.
	record := func(change func(row int, e *traces.Event)) *fidelity.Report {
		r := newRecorder(t, "", 0, 11)
		r.program(2000)
		tr := r.device(0).Timeline().Trace
		b := traces.NewBuilder()
		for _, s := range tr.Streams {
			b.Stream(s)
		}
		b.Device(traces.DeviceGPU, 0)
		b.T.Source, b.T.Settings = tr.Source, tr.Settings
		before := tr.Events.Time[0] - 1
		b.T.Counters = []traces.Counter{{Name: b.String(traces.CounterAllocated), Time: []int64{before},
			Value: []int64{0}}}
		for i := range tr.Events.Len() {
			e := tr.Events.At(i)
			change(i, &e)
			b.Event(e)
		}
		rep, err := fidelity.Replay(context.Background(), build(t, b.Finish()))
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	if same := record(func(int, *traces.Event) {}); same.First != nil || same.Score() != 1 ||
		same.SegmentScore() != 1 {
		t.Fatalf("unchanged: %s", same.Sentence(timeline.IEC))
	}
	var victim uint64 // an address whose blocks are put elsewhere from event 500 on
	moved := record(func(row int, e *traces.Event) {
		if row > 500 && victim == 0 && e.Action == traces.Alloc {
			victim = e.Addr
		}
		if row > 500 && e.Addr == victim && e.Action <= traces.FreeCompleted {
			e.Addr += 256
		}
	})
	if moved.SamePlace >= moved.Allocations || moved.First == nil || moved.First.At <= 500 ||
		moved.First.Why == "" {
		t.Errorf("moved block: %s", moved.Sentence(timeline.IEC))
	}
	grown := record(func(_ int, e *traces.Event) {
		if e.Action == traces.SegmentAlloc && e.Size == 2<<20 {
			e.Size = 4 << 20
		}
	})
	if grown.SegmentScore() == 1 || grown.First == nil ||
		!strings.Contains(grown.First.Recorded, "segment_alloc of 4194304") {
		t.Errorf("grown segment: %s", grown.Sentence(timeline.IEC))
	}
	// Settings other than the recorded ones must not pass for them.
	wrong := func() *fidelity.Report {
		r := newRecorder(t, "roundup_power2_divisions:4", 0, 11)
		r.program(2000)
		r.b.T.Settings = snapshotOf("", allocator.Settings{})
		rep, err := fidelity.Replay(context.Background(), r.device(0))
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}()
	if wrong.Score() > 0.5 || wrong.First == nil {
		t.Errorf("other settings: %s", wrong.Sentence(timeline.IEC))
	}
}

func refusal(t *testing.T, d *timeline.Device) *fidelity.Refusal {
	t.Helper()
	_, err := fidelity.Replay(context.Background(), d)
	var r *fidelity.Refusal
	if !errors.As(err, &r) || !errors.Is(err, fidelity.ErrRefused) {
		t.Fatalf("not refused: %v", err)
	}
	return r
}

func TestRecordingsThatCannotBeSimulatedAreRefused(t *testing.T) {
	// one returns a trace of one block, changed.
	one := func(change func(b *traces.Builder, events []traces.Event) []traces.Event) *timeline.Device {
		b := traces.NewBuilder()
		dev := b.Device(traces.DeviceGPU, 0)
		b.T.Final.Known = true
		events := []traces.Event{
			{Time: 1, Addr: 1 << 21, Size: 2 << 20, Action: traces.SegmentAlloc, Stack: traces.NoStack,
				Device: dev},
			{Time: 2, Addr: 1 << 21, Size: 100, Action: traces.Alloc, Stack: traces.NoStack, Device: dev},
			{Time: 3, Addr: 1 << 21, Size: 100, Action: traces.FreeRequested, Stack: traces.NoStack,
				Device: dev},
			{Time: 4, Addr: 1 << 21, Size: 100, Action: traces.FreeCompleted, Stack: traces.NoStack,
				Device: dev},
			{Time: 5, Addr: 1 << 21, Size: 2 << 20, Action: traces.SegmentFree, Stack: traces.NoStack,
				Device: dev},
		}
		for _, e := range change(b, events) {
			b.Event(e)
		}
		return build(t, b.Finish())
	}
	whole := one(func(_ *traces.Builder, e []traces.Event) []traces.Event { return e })
	if rep, err := fidelity.Replay(context.Background(), whole); err != nil || rep.Score() != 1 ||
		rep.SegmentScore() != 1 {
		t.Fatalf("unchanged: %+v, %v", rep, err)
	}
	for _, c := range []struct {
		name   string
		want   fidelity.Reason
		change func(b *traces.Builder, e []traces.Event) []traces.Event
	}{
		{"a CPU's memory", fidelity.NotCachingAllocator,
			func(b *traces.Builder, e []traces.Event) []traces.Event {
				b.T.Devices[0].Kind = traces.DeviceCPU
				return e
			}},
		{"made-up addresses", fidelity.NotCachingAllocator,
			func(b *traces.Builder, e []traces.Event) []traces.Event {
				b.T.Source.SyntheticAddresses = true
				return e
			}},
		{"no allocations", fidelity.NoAllocations,
			func(b *traces.Builder, e []traces.Event) []traces.Event { return e[:0] }},
		{"no segments", fidelity.NoSegments, func(b *traces.Builder, e []traces.Event) []traces.Event {
			b.T.Final.Known = false
			return e[1:4]
		}},
		{"lost beginning", fidelity.BeginningLost, func(b *traces.Builder, e []traces.Event) []traces.Event {
			b.T.Final.Known = false
			return e
		}},
		{"events missing", fidelity.EventsMissing,
			func(b *traces.Builder, e []traces.Event) []traces.Event { return e[:4] }},
		{"unknown option", fidelity.SettingsUnknown,
			func(b *traces.Builder, e []traces.Event) []traces.Event {
				b.T.Settings = []traces.Setting{{Key: "PYTORCH_CUDA_ALLOC_CONF", Value: `"time_travel:True"`}}
				return e
			}},
		{"another allocator", fidelity.SettingsUnknown,
			func(b *traces.Builder, e []traces.Event) []traces.Event {
				b.T.Settings = []traces.Setting{{Key: "PYTORCH_CUDA_ALLOC_CONF",
					Value: `"backend:cudaMallocAsync"`}}
				return e
			}},
		{"a block in no segment", fidelity.StateUnknown,
			func(b *traces.Builder, e []traces.Event) []traces.Event {
				return []traces.Event{e[1], e[2], e[3],
					{Time: 5, Addr: 1 << 30, Size: 7, Action: traces.FreeCompleted, Stack: traces.NoStack}}
			}},
	} {
		r := refusal(t, one(c.change))
		if r.Reason != c.want {
			t.Errorf("%s: refused for %s, want %s: %v", c.name, r.Reason, c.want, r)
		}
	}
}

func TestACancelledReplayStops(t *testing.T) {
	r := newRecorder(t, "", 0, 1)
	r.program(500)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := fidelity.Replay(ctx, r.device(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// FuzzReplay replays traces that no allocator made: whatever their events, the result is a report, a refusal
// or an error.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, "", true)
	f.Add([]byte("\x05\x00\x40\x01\x00\x02\x02\x00\x02\x03\x00\x02"), "expandable_segments:True", false)
	f.Add([]byte("70010A1000\x05\x00"), "expandable_segments:True", false) // half a pebibyte, page by page
	f.Fuzz(func(t *testing.T, data []byte, conf string, known bool) {
		b := traces.NewBuilder()
		dev := b.Device(traces.DeviceGPU, 0)
		b.T.Settings = []traces.Setting{{Key: "PYTORCH_CUDA_ALLOC_CONF", Value: fmt.Sprintf("%q", conf)}}
		b.T.Final.Known = known
		b.T.Counters = []traces.Counter{{Name: b.String(traces.CounterAllocated), Time: []int64{-1},
			Value: []int64{0}}}
		for i := 0; i+2 < len(data); i += 3 {
			size := int64(1) << (data[i+2] % 64)
			if data[i+2] >= 192 {
				size = -size
			}
			addr := uint64(data[i+1]&15) << (20 + data[i+1]>>4*2)
			b.Event(traces.Event{
				Time: int64(i), Addr: addr, Size: size, Stack: traces.NoStack, Device: dev,
				Stream: b.Stream(uint64(data[i] >> 6)),
				Action: traces.Action(data[i]&15) % (traces.Annotate + 1),
			})
			if data[i]&16 > 0 && data[i]&32 > 0 && known {
				final := &b.T.Final
				final.Blocks = append(final.Blocks, traces.Block{Address: addr, Size: size,
					Requested: maybe.Known(size),
					Stack:     traces.NoStack, Count: 1, State: traces.BlockState(data[i+2] % 3)})
				n := int32(len(final.Blocks))
				final.Segments = append(final.Segments,
					traces.Segment{Address: addr, TotalSize: size, FirstBlock: n - 1, EndBlock: n,
						Device: dev, Stack: traces.NoStack, Expandable: data[i+1]&8 > 0,
						Small: data[i+1]&4 > 0})
			}
		}
		tl, err := timeline.Build(context.Background(), b.Finish(), nil)
		if err != nil {
			return // no timeline, nothing to replay
		}
		rep, err := fidelity.Replay(context.Background(), tl.Devices[0])
		if err == nil && (rep.SamePlace > rep.Allocations || rep.SameSegments > rep.SegmentEvents ||
			rep.SameFinal > rep.FinalBlocks) {
			t.Errorf("%+v", rep)
		}
		if err == nil {
			_ = rep.Sentence(timeline.IEC)
		}
	})
}
