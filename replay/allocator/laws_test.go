package allocator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// variant is a policy with some settings.
type variant struct {
	name     string
	conf     string
	capacity int64
	config   Config
}

func variants(t testing.TB) []variant {
	all := []variant{
		{name: "direct"}, {name: "direct", capacity: 64 << 20},
		{name: "caching"}, {name: "caching", capacity: 96 << 20},
		{name: "caching", config: Config{Cap: 80 << 20}},
		{name: "caching", conf: "max_split_size_mb:24", capacity: 160 << 20},
		{name: "caching", conf: "garbage_collection_threshold:0.5,max_split_size_mb:64",
			config: Config{Cap: 160 << 20}},
		{name: "caching", conf: "roundup_power2_divisions:[4:2,16:8,>:4]"},
		{name: "caching", conf: "expandable_segments:True"},
		{name: "caching", conf: "expandable_segments:True", capacity: 100 << 20},
		{name: "caching", conf: "expandable_segments:True,large_segment_size_mb:6", capacity: 60 << 20},
		{name: "caching",
			conf:   "expandable_segments:True,max_split_size_mb:30,garbage_collection_threshold:0.4",
			config: Config{Cap: 120 << 20}},
		{name: "arena"}, {name: "arena", capacity: 64 << 20},
		{name: "arena", config: Config{ArenaSize: 48 << 20}},
		{name: "gmlake"}, {name: "gmlake", capacity: 80 << 20},
		{name: "gmlake", config: Config{StitchFrom: 8 << 20}},
		{name: "gmlake", config: Config{StitchedBytes: 64 << 20}},
	}
	for i := range all {
		s, err := ParseSettings(all[i].conf)
		if err != nil {
			t.Fatal(err)
		}
		all[i].config.Settings = s
	}
	return all
}

func (v variant) String() string {
	return fmt.Sprintf("%s capacity=%d cap=%d arena=%d %s", v.name, v.capacity>>20, v.config.Cap>>20,
		v.config.ArenaSize>>20, v.conf)
}

// program runs a random program on one allocator and checks the laws that hold for all of them.
type program struct {
	t      testing.TB
	v      variant
	rng    *rand.Rand
	driver *SimDriver
	events ManualEvents
	alloc  Allocator
	live   []Block
	held   int64 // by segment events
}

func newProgram(t testing.TB, v variant, seed uint64) *program {
	p := &program{t: t, v: v, rng: rand.New(rand.NewPCG(seed, 7)), driver: NewDriver(v.capacity)}
	c := v.config
	c.Driver, c.Events = p.driver, &p.events
	c.OnSegment = func(e SegmentEvent) {
		switch e.Action {
		case SegmentAlloc, SegmentMap:
			p.held += e.Size
		default:
			p.held -= e.Size
		}
	}
	a, err := New(v.name, c)
	if err != nil {
		t.Fatal(err)
	}
	p.alloc = a
	return p
}

// size draws from all size classes that the policies distinguish.
func (p *program) size() int64 {
	switch p.rng.IntN(6) {
	case 0:
		return p.rng.Int64N(2048)
	case 1:
		return p.rng.Int64N(1<<20 + 1024)
	case 2:
		return 1<<20 + p.rng.Int64N(9<<20)
	case 3:
		return 9<<20 + p.rng.Int64N(24<<20)
	case 4:
		return []int64{0, 1, 512, 513, 1 << 20, 1<<20 + 1, 2 << 20, 10 << 20, 10<<20 - 1,
			20 << 20}[p.rng.IntN(10)]
	}
	return []int64{3 << 20, 5 << 20, 12 << 20}[p.rng.IntN(3)]
}

func (p *program) step() {
	switch n := p.rng.IntN(100); {
	case n < 50:
		size, stream := p.size(), Stream(p.rng.IntN(3))
		b, err := p.alloc.Malloc(size, stream)
		if errors.Is(err, ErrOutOfMemory) {
			return
		}
		if err != nil {
			p.t.Fatal(err)
		}
		if b.Size < size || b.Requested != size || b.Stream != stream {
			p.t.Fatalf("asked for %d on %d, got %+v", size, stream, b)
		}
		p.live = append(p.live, b)
	case n < 90 && len(p.live) > 0:
		i := p.rng.IntN(len(p.live))
		b := p.live[i]
		p.live[i] = p.live[len(p.live)-1]
		p.live = p.live[:len(p.live)-1]
		for p.rng.IntN(4) == 0 {
			if err := p.alloc.RecordStream(b, Stream(p.rng.IntN(4))); err != nil {
				p.t.Fatal(err)
			}
		}
		if err := p.alloc.Free(b); err != nil {
			p.t.Fatal(err)
		}
		if err := p.alloc.Free(b); !errors.Is(err, errBlock) {
			p.t.Fatalf("freeing twice: %v", err)
		}
	case n < 97:
		if last := p.events.Last(); last > 0 {
			p.events.Complete(1 + Event(p.rng.Int64N(int64(last))))
		}
		p.alloc.ProcessEvents()
	case n == 98:
		if err := p.alloc.EmptyCache(); err != nil {
			p.t.Fatal(err)
		}
	}
}

// check checks the laws at one moment.
func (p *program) check() {
	t := p.t
	t.Helper()
	s := p.alloc.Stats()
	var reserved, allocated, pending, requested int64
	var end uint64
	for _, seg := range p.alloc.Segments() {
		if seg.Addr < end {
			t.Fatalf("segment %#x overlaps the previous one", seg.Addr)
		}
		at, last := seg.Addr, Allocated
		for _, b := range seg.Blocks {
			if b.Addr != at || b.Size <= 0 {
				t.Fatalf("block %#x does not begin where the previous one ends, %#x", b.Addr, at)
			}
			if p.v.name != "gmlake" && b.State == Inactive && last == Inactive {
				t.Fatalf("hole %#x comes right after a hole", b.Addr)
			}
			last = b.State
			at += uint64(b.Size)
			switch b.State {
			case Allocated:
				allocated += b.Size
			case PendingFree:
				pending += b.Size
			}
			requested += b.Requested
		}
		if end = seg.Addr + uint64(seg.Size); at != end {
			t.Fatalf("the blocks of segment %#x end at %#x, it at %#x", seg.Addr, at, end)
		}
		reserved += seg.Size
	}
	if reserved != s.Reserved || reserved != p.held {
		t.Fatalf("segments have %d bytes, stats %d, events %d", reserved, s.Reserved, p.held)
	}
	if held := p.driver.Held(); held != reserved && (p.v.name != "direct" || held < reserved) {
		t.Fatalf("%d bytes are reserved, the driver gave %d", reserved, held)
	}
	if allocated != s.Allocated || allocated+pending != s.Active || requested != s.Requested {
		t.Fatalf("blocks have %d allocated, %d pending, %d requested: stats %+v", allocated, pending,
			requested, s)
	}
	if s.PeakActive < s.Active || s.PeakAllocated < s.Allocated || s.PeakReserved < s.Reserved ||
		s.Reserved < s.Active {
		t.Fatalf("figures out of order: %+v", s)
	}
	var mine int64
	for _, b := range p.live {
		mine += b.Size
	}
	if mine != s.Allocated {
		t.Fatalf("the program holds %d bytes, but the allocator reports %d", mine, s.Allocated)
	}
	if limit := p.v.config.Cap; limit > 0 && !p.v.config.Settings.ExpandableSegments && s.Reserved > limit {
		t.Fatalf("%d bytes are reserved with a cap of %d", s.Reserved, limit)
	}
	if p.v.capacity > 0 && p.driver.Held() > p.v.capacity {
		t.Fatalf("%d of %d bytes are held", p.driver.Held(), p.v.capacity)
	}
}

// overlapping returns two live blocks that share an address.
func overlapping(live []Block) (x, y Block, found bool) {
	for i, a := range live {
		for _, b := range live[i+1:] {
			if a.Addr < b.Addr+uint64(b.Size) && b.Addr < a.Addr+uint64(a.Size) {
				return a, b, true
			}
		}
	}
	return x, y, false
}

func TestBlocksTileTheirSegmentsAndTheFiguresAddUp(t *testing.T) {
	for _, v := range variants(t) {
		t.Run(v.String(), func(t *testing.T) {
			for seed := range uint64(12) {
				p := newProgram(t, v, seed)
				for range 600 {
					p.step()
					p.check()
				}
				if a, b, found := overlapping(p.live); found {
					t.Fatalf("live blocks overlap: %+v and %+v", a, b)
				}
			}
		})
	}
}

func TestFreeingEverythingAndEmptyingTheCacheGivesEverythingBack(t *testing.T) {
	for _, v := range variants(t) {
		t.Run(v.String(), func(t *testing.T) {
			p := newProgram(t, v, 99)
			for range 2000 {
				p.step()
			}
			for _, b := range p.live {
				if err := p.alloc.Free(b); err != nil {
					t.Fatal(err)
				}
			}
			p.live = nil
			if err := p.alloc.EmptyCache(); err != nil {
				t.Fatal(err)
			}
			p.check()
			s := p.alloc.Stats()
			if s.Reserved != 0 || s.Active != 0 || p.driver.Held() != 0 || len(p.alloc.Segments()) != 0 {
				t.Fatalf("%d bytes stay reserved, %d held: %+v", s.Reserved, p.driver.Held(), s)
			}
			left := 0
			for _, a := range p.driver.allocs {
				// Addresses stay reserved for a growing arena, and for a range in which the device refused to
				// map anything.
				if !a.reserved || v.name == "gmlake" {
					left++
				}
			}
			if left > 0 || len(p.driver.mapped) > 0 || len(p.driver.unused) != len(p.driver.made) {
				t.Fatalf("%d allocations and %d mappings are left", left, len(p.driver.mapped))
			}
		})
	}
}

func TestTheSameProgramGetsTheSameAnswers(t *testing.T) {
	for _, v := range variants(t) {
		a, b := newProgram(t, v, 5), newProgram(t, v, 5)
		for range 1500 {
			a.step()
			b.step()
		}
		if a.alloc.Stats() != b.alloc.Stats() || len(a.live) != len(b.live) {
			t.Fatalf("%v: %+v and %+v", v, a.alloc.Stats(), b.alloc.Stats())
		}
		for i := range a.live {
			if a.live[i] != b.live[i] {
				t.Fatalf("%v: block %d is %+v and %+v", v, i, a.live[i], b.live[i])
			}
		}
	}
}

// A block is handed out only once all of its events are done: no pending block may share an address with a
// live one, which the segments' tiling shows. This test shows that the events, and nothing else, hold them
// back.
func TestABlockUsedElsewhereComesBackWithItsLastEvent(t *testing.T) {
	for _, policy := range []string{"caching", "arena", "gmlake"} {
		var events ManualEvents
		a, err := New(policy, Config{Driver: NewDriver(0), Events: &events})
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.Malloc(4<<20, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, stream := range []Stream{2, 1, 0, 2} {
			if err := a.RecordStream(b, stream); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Free(b); err != nil {
			t.Fatal(err)
		}
		if n := events.Last(); n != 2 {
			t.Fatalf("%s: %d events for two other streams", policy, n)
		}
		for e, want := range []int64{4 << 20, 4 << 20, 0} {
			if e > 0 {
				events.Complete(Event(e))
			}
			a.ProcessEvents()
			if got := a.Stats().Active; got != want {
				t.Errorf("%s: after %d events %d bytes are active, want %d", policy, e, got, want)
			}
		}
	}
}

// The set is checked against a scan.
func TestTheSetIsOrderedLikeASortedList(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, byAddress := range []bool{false, true} {
		var s slab
		set := set{byAddress: byAddress}
		var in []ref
		for step := range 4000 {
			if rng.IntN(5) < 3 || len(in) == 0 {
				r := s.add()
				b := s.at(r)
				b.stream, b.size, b.born, b.addr = Stream(rng.IntN(3)), rng.Int64N(20), rng.Int64N(3),
					uint64(step)
				set.insert(&s, r)
				in = append(in, r)
			} else {
				i := rng.IntN(len(in))
				set.erase(&s, in[i])
				s.remove(in[i])
				in[i] = in[len(in)-1]
				in = in[:len(in)-1]
			}
			k := key{Stream(rng.IntN(3)), rng.Int64N(20), rng.Int64N(3), uint64(rng.IntN(step + 1))}
			if byAddress {
				k.size, k.born = 0, 0
			}
			var atLeast, below ref
			for _, r := range in {
				if o := set.keyOf(s.at(r)); !o.less(k) {
					if atLeast == 0 || o.less(set.keyOf(s.at(atLeast))) {
						atLeast = r
					}
				} else if below == 0 || set.keyOf(s.at(below)).less(o) {
					below = r
				}
			}
			if got := set.atLeast(&s, k); got != atLeast {
				t.Fatalf("step %d: atLeast is %d, want %d", step, got, atLeast)
			}
			if got := set.below(&s, k); got != below {
				t.Fatalf("step %d: below is %d, want %d", step, got, below)
			}
			if set.n != len(in) {
				t.Fatalf("step %d: %d in the set of %d", step, set.n, len(in))
			}
		}
		seen := 0
		for r := set.first(&s); r != 0; r = set.after(&s, r) {
			seen++
		}
		if seen != len(in) {
			t.Fatalf("iteration saw %d of %d", seen, len(in))
		}
	}
}

func TestARestoredStateBehavesLikeTheOriginal(t *testing.T) {
	for _, conf := range []string{"", "expandable_segments:True", "max_split_size_mb:24"} {
		settings, err := ParseSettings(conf)
		if err != nil {
			t.Fatal(err)
		}
		v := variant{name: "caching", config: Config{Settings: settings}}
		for seed := range uint64(5) {
			p := newProgram(t, v, seed)
			for range 700 {
				p.step()
			}
			if err := p.alloc.EmptyCache(); err != nil { // no events outstanding
				t.Fatal(err)
			}
			// The simulated driver's own addresses cannot be requested; shifted down they can, in the same
			// order.
			const shift = firstAddress - 1<<40
			segments := p.alloc.Segments()
			for i := range segments {
				segments[i].Addr -= shift
				if segments[i].Expandable {
					segments[i].Base -= shift
				}
				for k := range segments[i].Blocks {
					segments[i].Blocks[k].Addr -= shift
				}
			}
			twin, err := NewCaching(Config{Driver: NewDriver(0), Settings: settings})
			if err != nil {
				t.Fatal(err)
			}
			blocks, err := twin.Restore(segments)
			if err != nil {
				t.Fatalf("%q: %v", conf, err)
			}
			if len(blocks) != len(p.live) || twin.Stats().Reserved != p.alloc.Stats().Reserved ||
				twin.Stats().Allocated != p.alloc.Stats().Allocated {
				t.Fatalf("%q: restored %d blocks of %d: %+v", conf, len(blocks), len(p.live), twin.Stats())
			}
			before := p.alloc.Stats().DriverMallocs + p.alloc.Stats().Maps
			restored := twin.Stats().DriverMallocs + twin.Stats().Maps
			for range 400 {
				size, stream := p.size(), Stream(p.rng.IntN(3))
				a, err1 := p.alloc.Malloc(size, stream)
				b, err2 := twin.Malloc(size, stream)
				if err1 != nil || err2 != nil {
					t.Fatal(err1, err2)
				}
				s := p.alloc.Stats()
				if s.DriverMallocs+s.Maps > before ||
					twin.Stats().DriverMallocs+twin.Stats().Maps > restored {
					break // new segments lie at addresses that differ
				}
				if a.Addr-shift != b.Addr || a.Size != b.Size {
					t.Fatalf("%q: %d bytes at %#x, in the twin at %#x", conf, size, a.Addr-shift, b.Addr)
				}
			}
		}
	}
}

// Stitching is what gmlake adds to the caching allocator: without it the same program takes more from the
// driver.
func TestWithoutStitchingMoreIsReserved(t *testing.T) {
	var with, without int64
	more := 0
	for seed := range uint64(40) {
		reserved := func(from int64) int64 {
			p := newProgram(t, variant{name: "gmlake", config: Config{StitchFrom: from}}, seed)
			for range 600 {
				p.step()
			}
			s := p.alloc.Stats()
			if (s.Stitches > 0) != (from == 0) {
				t.Fatalf("seed %d, stitching from %d bytes: %d stitches", seed, from, s.Stitches)
			}
			return s.PeakReserved
		}
		a, b := reserved(0), reserved(1<<40)
		with, without = with+a, without+b
		if a > b {
			more++
		}
	}
	if t.Logf("%d bytes with stitching, %d without; more in %d of 40", with, without,
		more); with >= without || more > 4 {
		t.Errorf("%d bytes reserved with stitching, %d without; more in %d of 40 programs", with, without,
			more)
	}
}
