//go:build standin

package allocator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The oracle is PyTorch's own allocator. A random program runs on it (testdata/oracle/oracle.py) and on the
// emulation, and both are logged in the language of the scripts: segment events, the place and the size of
// each block, the totals after each statement, the segments at the end. If the two texts differ, the program
// is cut down to the smallest one that still differs. The result is a script that can go to testdata as it
// is.
//
// Both sides have the same device: memory and ranges of addresses come from the lowest place that has room,
// and an event is done when something waits for its stream. So the emulation learns nothing from the real
// run, and equal texts mean equal decisions.
//
// Rejected: giving the emulation the recorded addresses, which would hide a wrong order of driver calls.

// real is what the real allocator did with one program.
type real struct {
	Failed      string // the whole run
	Died        string // how PyTorch's process ended, if it died before answering
	Free, Total int64
	Stopped     string // the error that ended the program early
	Answers     []struct {
		Events []struct {
			Action string
			Addr   uint64
			Size   int64
			Stream Stream
		}
		Addr   uint64
		Totals [6]int64
	}
	Segments []struct {
		Addr   uint64
		Size   int64
		Stream Stream
		Blocks []struct {
			Size  int64
			State string
		}
	}
}

// totals are the figures compared after each statement.
func totals(t [6]int64) string {
	return fmt.Sprintf("    requested %s allocated %s active %s reserved %s retries %d ooms %d\n", size(t[0]),
		size(t[1]), size(t[2]), size(t[3]), t[4], t[5])
}

// written returns what the real allocator did with a program, one text for each statement and one for the
// end.
func (a *real) written(lines []string) ([]string, error) {
	if a.Failed != "" {
		return nil, errors.New(a.Failed)
	}
	if len(a.Answers) != len(lines)-1 && a.Stopped == "" {
		return nil, fmt.Errorf("%d answers for %d statements", len(a.Answers), len(lines)-1)
	}
	s := &script{counts: map[byte]int{}}
	var texts []string
	var last [6]int64
	for i, answer := range a.Answers {
		f := strings.Fields(lines[i+1])
		for _, e := range answer.Events {
			k := slices.Index(actionNames(), e.Action)
			if k < 0 {
				return nil, fmt.Errorf("segment event %q", e.Action)
			}
			s.segment(SegmentEvent{Action: SegmentAction(k), Addr: e.Addr, Size: e.Size, Stream: e.Stream})
		}
		if f[0] == "malloc" && answer.Totals[5] == last[5] {
			n := answer.Totals[1] - last[1]
			fmt.Fprintf(&s.out, "    %s %s %s\n", f[1], s.place(answer.Addr, n), size(n))
		}
		s.out.WriteString(totals(answer.Totals))
		last = answer.Totals
		texts = append(texts, s.out.String())
		s.out.Reset()
	}
	if a.Stopped != "" {
		return append(texts, "stopped"), nil
	}
	for _, seg := range a.Segments {
		fmt.Fprintf(&s.out, "    %s %s stream=%d:", s.place(seg.Addr, seg.Size), size(seg.Size), seg.Stream)
		for _, b := range seg.Blocks {
			state := map[string]BlockState{"inactive": Inactive, "active_allocated": Allocated,
				"active_pending_free": PendingFree}[b.State]
			s.block(b.Size, state)
		}
		s.out.WriteByte('\n')
	}
	return append(texts, s.out.String()), nil
}

func actionNames() []string {
	var names []string
	for a := SegmentAlloc; a <= SegmentUnmap; a++ {
		names = append(names, a.String())
	}
	return names
}

// emulated returns what the emulation of a release does with a program.
func emulated(lines []string, torch Version) ([]string, error) {
	s := &script{blocks: map[string]Block{}, counts: map[byte]int{}, plain: true}
	if err := s.run(lines[0] + " torch=" + torch.String()); err != nil {
		return nil, err
	}
	var texts []string
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		if _, known := s.blocks[f[len(f)-1]]; f[0] == "free" && !known {
			f = nil // its malloc has failed
		} else if f[0] == "record" {
			if _, known := s.blocks[f[1]]; !known {
				f = nil
			}
		}
		if f != nil {
			if err := s.run(line); err != nil && !errors.Is(err, ErrOutOfMemory) {
				return append(texts, "stopped"), nil
			}
			if f[0] == "free" {
				delete(s.blocks, f[1])
			}
		}
		t := s.alloc.Stats()
		s.out.WriteString(totals([6]int64{t.Requested, t.Allocated, t.Active, t.Reserved, t.Retries, t.OOMs}))
		texts = append(texts, s.out.String())
		s.out.Reset()
	}
	if err := s.run("segments"); err != nil {
		return nil, err
	}
	return append(texts, s.out.String()), nil
}

// differs returns the index of the first statement, or the number of statements for the end, where two texts
// differ; -1 for none.
func differs(a, b []string) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

// shrink returns the smallest failing program that it finds. It removes runs of statements, half of the
// program at first, then ever shorter ones, until no single statement can go (Zeller and Hildebrandt,
// Simplifying and Isolating Failure-Inducing Input, 2002).
func shrink(lines []string, fails func(lines []string) bool) []string {
	for run := max(1, len(lines)/2); ; run /= 2 {
		for again := true; again; again = again && run == 1 {
			again = false
			for from := len(lines) - run; from > -run; from -= run {
				smaller := slices.Concat(lines[:max(from, 1)], lines[min(from+run, len(lines)):])
				if len(smaller) < len(lines) && fails(smaller) {
					lines, again = smaller, true
				}
			}
		}
		if run <= 1 {
			return lines
		}
	}
}

// oracleSetting is a configuration to generate programs for.
type oracleSetting struct {
	conf     string
	memory   string
	fraction string
	pools    bool
}

// oracleSettings are the settings that are compared, alone and combined.
var oracleSettings = []oracleSetting{
	{memory: "4g"},
	{memory: "600m", pools: true},
	{memory: "400m", fraction: "0.7"},
	{conf: "expandable_segments:True", memory: "4g"},
	{conf: "expandable_segments:True", memory: "600m", pools: true},
	{conf: "expandable_segments:True", memory: "800m", fraction: "0.6"},
	{conf: "max_split_size_mb:24", memory: "700m"},
	{conf: "max_split_size_mb:64", memory: "1g", pools: true},
	{conf: "roundup_power2_divisions:8", memory: "600m"},
	{conf: "roundup_power2_divisions:[4:2,16:8,>:4]", memory: "1g"},
	{conf: "garbage_collection_threshold:0.4", memory: "1g", fraction: "0.8"},
	{conf: "garbage_collection_threshold:0.6", memory: "600m", fraction: "0.99", pools: true},
	{conf: "garbage_collection_threshold:0.4,max_split_size_mb:32", memory: "900m", fraction: "0.8"},
	{conf: "expandable_segments:True,roundup_power2_divisions:4", memory: "600m"},
	{conf: "expandable_segments:True,garbage_collection_threshold:0.5", memory: "800m", fraction: "0.7"},
	{conf: "expandable_segments:True,max_split_size_mb:40", memory: "700m"},
	{conf: "max_split_size_mb:32,roundup_power2_divisions:4", memory: "800m", fraction: "0.9"},
}

func (o oracleSetting) String() string {
	name := "memory " + o.memory
	if o.conf != "" {
		name = o.conf + ", " + name
	}
	if o.fraction != "" {
		name += ", fraction " + o.fraction
	}
	if o.pools {
		name += ", pools"
	}
	return name
}

// writer writes a random program.
type writer struct {
	rng   *rand.Rand
	lines []string
	live  []string
	bytes map[string]int64
	held  int64
	sizes []int64
	pools int // made so far
}

func (w *writer) add(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// generate returns a random program of n statements. Its working set grows and shrinks between a fifth of the
// device and more than all of it; most sizes come from a few that repeat, as in training, so that holes of
// equal size are common.
func generate(o oracleSetting, seed uint64, n int) []string {
	w := &writer{rng: rand.New(rand.NewPCG(seed, 16)), bytes: map[string]int64{}}
	first := "allocator caching memory=" + o.memory
	if o.conf != "" {
		first += " conf=" + o.conf
	}
	if o.fraction != "" {
		first += " fraction=" + o.fraction
	}
	w.lines = []string{first}
	memory, err := bytesOf(o.memory)
	if err != nil {
		panic(err)
	}
	memory = min(memory, 1<<30)
	for range 14 {
		w.sizes = append(w.sizes, w.size(memory))
	}
	var target int64
	for i := range n {
		if i%40 == 0 {
			target = int64((0.2 + 1.1*w.rng.Float64()) * float64(memory))
		}
		w.step(o, memory, target)
	}
	return w.lines
}

// size draws from all size classes that the allocator distinguishes.
func (w *writer) size(memory int64) int64 {
	switch w.rng.IntN(12) {
	case 0, 1:
		return 1 + w.rng.Int64N(4096)
	case 2, 3:
		return 1 + w.rng.Int64N(1<<20+1024)
	case 4, 5, 6:
		return 1<<20 + w.rng.Int64N(9<<20)
	case 7, 8:
		return 9<<20 + w.rng.Int64N(24<<20)
	case 9:
		return []int64{512, 513, 1 << 20, 1<<20 + 1, 2 << 20, 10 << 20, 10<<20 - 1, 20 << 20,
			64 << 20}[w.rng.IntN(9)]
	case 10:
		return 20<<20 + w.rng.Int64N(100<<20)
	}
	return []int64{3 << 20, 5 << 20, 12 << 20, 32 << 20, memory / 5, memory / 3}[w.rng.IntN(6)]
}

func (w *writer) step(o oracleSetting, memory, target int64) {
	switch k := w.rng.IntN(1000); {
	case k < 40:
		w.add("sync %d", w.rng.IntN(4))
	case k < 78:
		w.add("empty_cache")
	case k < 84 && o.fraction != "":
		w.add("fraction %.2f", min(1, 0.3+0.9*w.rng.Float64()))
	case k < 86 && o.pools:
		w.pools++
		w.add("use_pool 0,%d", w.pools)
	case k < 112:
		w.malloc(memory + w.rng.Int64N(memory)) // never fits
	case k < 180 && len(w.live) > 0:
		w.add("record %s %d", w.live[w.rng.IntN(len(w.live))], w.rng.IntN(4))
	case len(w.live) > 0 && (w.held > target || w.rng.IntN(3) == 0):
		w.free()
	case w.rng.IntN(5) == 0:
		w.malloc(w.size(memory))
	default:
		w.malloc(w.sizes[w.rng.IntN(len(w.sizes))])
	}
}

func (w *writer) malloc(n int64) {
	name := "b" + strconv.Itoa(len(w.lines))
	line := fmt.Sprintf("malloc %s %s stream=%d", name, size(n), w.rng.IntN(2)*w.rng.IntN(4))
	if w.pools > 0 && w.rng.IntN(2) == 0 {
		line += fmt.Sprintf(" pool=0,%d", 1+w.rng.IntN(w.pools))
	}
	w.lines = append(w.lines, line)
	w.live = append(w.live, name)
	w.bytes[name] = n
	w.held += n
}

func (w *writer) free() {
	i := w.rng.IntN(len(w.live))
	if w.rng.IntN(4) == 0 {
		i = len(w.live) - 1
	}
	w.add("free %s", w.live[i])
	w.held -= w.bytes[w.live[i]]
	w.live = slices.Delete(w.live, i, i+1)
}

// valid reports whether pools are made in the order of their numbers, before they are used.
func valid(lines []string) bool {
	made := 0
	for _, line := range lines[1:] {
		if _, pool, ok := strings.Cut(line, " pool=0,"); ok {
			if n, err := strconv.Atoi(pool); err != nil || n > made {
				return false
			}
		}
		if pool, ok := strings.CutPrefix(line, "use_pool 0,"); ok {
			if made++; pool != strconv.Itoa(made) {
				return false
			}
		}
	}
	return true
}

func TestShrinkFindsTheSmallestProgramThatFails(t *testing.T) {
	program := []string{"allocator"}
	for i := range 100 {
		program = append(program, strconv.Itoa(i))
	}
	calls := 0
	got := shrink(program, func(lines []string) bool {
		calls++
		return slices.Contains(lines, "7") && slices.Contains(lines, "42") && slices.Contains(lines, "43")
	})
	if want := []string{"allocator", "7", "42", "43"}; !slices.Equal(got, want) || calls > 200 {
		t.Errorf("got %v after %d programs, want %v", got, calls, want)
	}
}
