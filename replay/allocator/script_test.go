package allocator

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
	"golang.org/x/tools/txtar"
)

// update rewrites the expected tables of testdata instead of comparing with them.
var update = flag.Bool("update", false, "rewrite the expected tables of testdata")

// script runs the small language in which the cases of testdata are written, one statement a line, # begins a
// comment:
//
//	allocator POLICY [conf=SETTINGS] [capacity=N] [cap=N] [arena=N] [stitch=N] [keep=N] [torch=VERSION]
//	          [memory=N] [fraction=SHARE]
//	malloc NAME SIZE [stream=N] [pool=A,B]      free NAME      record NAME STREAM
//	complete STREAM | complete all              process        empty_cache
//	use_pool A,B   release_pool A,B   drop_pool A,B   capture A,B STREAM   end_capture A,B
//	enter A,B      leave A,B                    fraction SHARE
//	sync STREAM                                 (with memory= only)
//	stats          segments
//
// With memory=N the device is like the stand-in GPU: it has N bytes, 2 MiB of them for the context, and
// events are done when sync, or the allocator, waits for their stream. Without it, events are done when
// complete says so.
//
// Sizes take k, m and g (binary). Segments are named S0, S1... and other addresses V0, V1... as they appear,
// so that a table shows relations between addresses and not the driver's choices.
type script struct {
	alloc  Allocator
	events ManualEvents
	queues queues
	blocks map[string]Block
	starts []named
	out    strings.Builder
	counts map[byte]int
	plain  bool // without pools: not all releases of PyTorch record them
}

type named struct {
	name        string
	addr, until uint64
}

func bytesOf(s string) (int64, error) {
	unit := int64(1)
	switch {
	case strings.HasSuffix(s, "k"):
		unit = 1 << 10
	case strings.HasSuffix(s, "m"):
		unit = 1 << 20
	case strings.HasSuffix(s, "g"):
		unit = 1 << 30
	}
	n, err := strconv.ParseInt(strings.TrimRight(s, "kmg"), 10, 64)
	return n * unit, err
}

func size(n int64) string {
	for _, u := range []struct {
		unit int64
		name string
	}{{1 << 30, "g"}, {1 << 20, "m"}, {1 << 10, "k"}} {
		if n%u.unit == 0 && n != 0 {
			return fmt.Sprintf("%d%s", n/u.unit, u.name)
		}
	}
	return strconv.FormatInt(n, 10)
}

// place names an address, relative to the segment or range that holds it.
func (s *script) place(addr uint64, length int64) string {
	for i := len(s.starts) - 1; i >= 0; i-- {
		if n := s.starts[i]; n.addr <= addr && addr < n.until {
			return fmt.Sprintf("%s+%s", n.name, size(int64(addr-n.addr)))
		}
	}
	return s.name('V', addr, length) + "+0"
}

func (s *script) name(kind byte, addr uint64, length int64) string {
	n := named{fmt.Sprintf("%c%d", kind, s.counts[kind]), addr, addr + uint64(length)}
	s.counts[kind]++
	s.starts = append(s.starts, n)
	return n.name
}

func (s *script) segment(e SegmentEvent) {
	if e.Action == SegmentAlloc {
		s.name('S', e.Addr, e.Size)
	}
	if e.Action == SegmentMap {
		known := false
		for _, n := range s.starts {
			known = known || n.addr <= e.Addr && e.Addr <= n.until
		}
		if !known {
			s.name('S', e.Addr, 1<<40) // a range of addresses
		}
	}
	fmt.Fprintf(&s.out, "    %s %s %s stream=%d", e.Action, s.place(e.Addr, e.Size), size(e.Size), e.Stream)
	if e.Pool != (traces.Pool{}) && !s.plain {
		fmt.Fprintf(&s.out, " pool=%d,%d", e.Pool.First, e.Pool.Second)
	}
	s.out.WriteByte('\n')
	if e.Action == SegmentFree {
		for i, n := range s.starts {
			if n.addr == e.Addr {
				s.starts = append(s.starts[:i:i], s.starts[i+1:]...)
				break
			}
		}
	}
}

func poolOf(text string) (p traces.Pool, err error) {
	_, err = fmt.Sscanf(text, "%d,%d", &p.First, &p.Second)
	return p, err
}

func (s *script) run(line string) error {
	f := strings.Fields(strings.SplitN(line, "#", 2)[0])
	if len(f) == 0 {
		return nil
	}
	options := map[string]string{}
	var words []string
	for _, w := range f[1:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			options[k] = v
		} else {
			words = append(words, w)
		}
	}
	for len(words) < 2 {
		words = append(words, "")
	}
	caching, _ := s.alloc.(*Caching)
	switch f[0] {
	case "allocator":
		return s.begin(words[0], options)
	case "malloc":
		return s.malloc(words, options)
	case "free":
		return s.alloc.Free(s.blocks[words[0]])
	case "record":
		n, err := strconv.Atoi(words[1])
		if err != nil {
			return err
		}
		return s.alloc.RecordStream(s.blocks[words[0]], Stream(n))
	case "complete":
		if words[0] == "all" {
			for e := Event(1); e <= s.events.Last(); e++ {
				s.events.Complete(e)
			}
			return nil
		}
		n, err := strconv.Atoi(words[0])
		s.events.completeStream(Stream(n))
		return err
	case "process":
		s.alloc.ProcessEvents()
	case "empty_cache":
		return s.alloc.EmptyCache()
	case "use_pool": // the first request makes it
	case "fraction":
		share, err := strconv.ParseFloat(words[0], 64)
		if err != nil {
			return err
		}
		caching.SetMemoryFraction(share)
	case "sync":
		n, err := strconv.Atoi(words[0])
		if err != nil {
			return err
		}
		s.queues.sync(Stream(n))
	case "stats":
		t := s.alloc.Stats()
		fmt.Fprintf(&s.out, "    requested %s allocated %s active %s reserved %s, peaks %s %s %s %s\n",
			size(t.Requested), size(t.Allocated), size(t.Active), size(t.Reserved), size(t.PeakRequested),
			size(t.PeakAllocated), size(t.PeakActive), size(t.PeakReserved))
		fmt.Fprintf(&s.out, "    mallocs %d frees %d driver %d/%d maps %d/%d retries %d ooms %d "+
			"synchronisations %d stitches %d\n", t.Mallocs, t.Frees,
			t.DriverMallocs, t.DriverFrees, t.Maps, t.Unmaps, t.Retries, t.OOMs, t.Synchronisations,
			t.Stitches)
	case "segments":
		for _, seg := range s.alloc.Segments() {
			fmt.Fprintf(&s.out, "    %s %s stream=%d:", s.place(seg.Addr, seg.Size), size(seg.Size),
				seg.Stream)
			for _, b := range seg.Blocks {
				s.block(b.Size, b.State)
			}
			s.out.WriteByte('\n')
		}
	default:
		return fmt.Errorf("no statement %q", f[0])
	}
	return nil
}

func (s *script) block(n int64, state BlockState) {
	fmt.Fprintf(&s.out, " %s", size(n))
	switch state {
	case Allocated:
		s.out.WriteByte('*')
	case PendingFree:
		s.out.WriteByte('~')
	}
}

func (s *script) begin(policy string, options map[string]string) error {
	c := Config{Events: &s.events, OnSegment: s.segment}
	var torch Version
	var err error
	if options["torch"] != "" {
		if torch, err = ParseVersion(options["torch"]); err != nil {
			return err
		}
	}
	if c.Settings, err = ParseSettingsOf(torch, options["conf"]); err != nil {
		return err
	}
	var capacity, memory int64
	for k, v := range options {
		n, err := bytesOf(v)
		switch k {
		case "conf", "torch":
			err = nil
		case "fraction":
			c.Settings.MemoryFraction, err = strconv.ParseFloat(v, 64)
		case "memory":
			memory = n
		case "capacity":
			capacity = n
		case "cap":
			c.Cap = n
		case "arena":
			c.ArenaSize = n
		case "stitch":
			c.StitchFrom = n
		case "keep":
			c.StitchedBytes = n
		default:
			return fmt.Errorf("no option %q", k)
		}
		if err != nil {
			return err
		}
	}
	c.Driver = NewDriver(capacity)
	if memory > 0 {
		c.Driver = &device{SimDriver: NewDriver(memory - contextBytes), total: memory,
			onFree: s.queues.syncAll}
		c.Events = &s.queues
		c.OnSegment = func(e SegmentEvent) {
			if e.Action == SegmentUnmap {
				s.queues.sync(e.Stream) // the allocator waits for the stream before it unmaps
			}
			s.segment(e)
		}
	}
	a, err := New(policy, c)
	s.alloc = a
	return err
}

func (s *script) malloc(words []string, options map[string]string) error {
	n, err := bytesOf(words[1])
	if err != nil {
		return err
	}
	stream, _ := strconv.Atoi(options["stream"])
	var b Block
	if text := options["pool"]; text != "" {
		p, e := poolOf(text)
		if e != nil {
			return e
		}
		b, err = s.alloc.(*Caching).MallocFrom(p, n, Stream(stream))
	} else {
		b, err = s.alloc.Malloc(n, Stream(stream))
	}
	if err != nil {
		return err
	}
	s.blocks[words[0]] = b
	fmt.Fprintf(&s.out, "    %s %s %s\n", words[0], s.place(b.Addr, b.Size), size(b.Size))
	return nil
}

func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil || len(a.Files) != 2 {
				t.Fatalf("%v: %d files, want a script and its output", err, len(a.Files))
			}
			s := &script{blocks: map[string]Block{}, counts: map[byte]int{}}
			for line := range strings.Lines(string(a.Files[0].Data)) {
				line = strings.TrimSpace(line)
				if line == "" {
					continue
				}
				fmt.Fprintln(&s.out, line)
				if err := s.run(line); err != nil {
					text := err.Error()
					if i := strings.Index(text, "0x"); i >= 0 { // addresses are the driver's
						text = text[:i] + "..."
					}
					fmt.Fprintf(&s.out, "    error: %s\n", text)
				}
			}
			got := s.out.String()
			if *update {
				a.Files[1].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want := string(a.Files[1].Data); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// completeStream marks all of a stream's work so far as done.
func (m *ManualEvents) completeStream(stream Stream) {
	for i, s := range m.streams {
		if s == stream {
			m.done[i] = true
		}
	}
}
