package autopsy

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
)

// code answers questions about stacks and their frames: whose code made a block.
type code struct {
	kinds  *frames.Kinds
	places *traces.Trace
}

func codeOf(d *timeline.Device) code {
	return code{kinds: d.Timeline().Kinds(), places: d.Timeline().Places()}
}

// evidence is what every detector sees. Its methods are the facts that several causes share.
type evidence struct {
	history
	a     *Result
	u     timeline.Units
	live  []timeline.AllocID // allocated at the moment
	total int64              // their bytes
}

// evidenceOf returns what detectors see of a device at the moment of an autopsy.
func evidenceOf(d *timeline.Device, a *Result, u timeline.Units) *evidence {
	c := &evidence{history: historyOf(d, a.At), a: a, u: u, live: d.LiveAt(a.At, nil)}
	for _, id := range c.live {
		c.total += d.Allocs.Rounded[id]
	}
	return c
}

// bySite sums blocks by the number of their site.
type bySite struct {
	bytes map[int32]int64
	top   int32 // the site with the most bytes, -1 for none
}

// sitesOf sums some of the live blocks by site.
func (c *evidence) sitesOf(ids []timeline.AllocID) bySite {
	s, table := bySite{bytes: map[int32]int64{}, top: -1}, sites.Of(c.d.Timeline())
	for _, id := range ids {
		if n := table.Number(c.d.Origin(id)); n >= 0 {
			s.bytes[n] += c.d.Allocs.Rounded[id]
		}
	}
	for n, b := range s.bytes {
		if s.top < 0 || b > s.bytes[s.top] || b == s.bytes[s.top] && n < s.top {
			s.top = n
		}
	}
	return s
}

// topName names the site with the most bytes.
func (c *evidence) topName(s bySite) string {
	if s.top < 0 {
		return "a place that the recording does not name"
	}
	return sites.Of(c.d.Timeline()).Names[s.top]
}

// bytesOf sums blocks.
func (c *evidence) bytesOf(ids []timeline.AllocID) (sum int64) {
	for _, id := range ids {
		sum += c.d.Allocs.Rounded[id]
	}
	return sum
}

// largest returns the line whose blocks have the most bytes, the first of equals; false if there is none.
func (c *evidence) largest(blocks map[int32][]timeline.AllocID) (best int32, ok bool) {
	for _, n := range slices.Sorted(maps.Keys(blocks)) {
		if !ok || c.bytesOf(blocks[n]) > c.bytesOf(blocks[best]) {
			best, ok = n, true
		}
	}
	return best, ok
}

// frameText returns the function and place of a frame, "" for none.
func (c *code) frameText(id traces.FrameID) string {
	if id < 0 {
		return ""
	}
	fn, file, line := c.places.FrameText(id)
	return place(fn, file, line)
}

// newDemand is by what factor the request plus what is allocated must exceed the most that was allocated at
// once before the current call or step, for it to be more than the run needed before.
const newDemand = 1.1

// inPieces reports whether the request fails because of how memory is laid out: what is idle or free would
// serve it if it were contiguous, and the run needed about as much before. If it did not, the holes are what
// smaller tensors left, and the size is what is new. Memory that the request may not use, such as that of
// other pools, counts as idle, too.
func (c *evidence) inPieces() bool {
	asked := c.a.Asked.Or(0)
	if c.likeLargeBlock() {
		return false
	}
	if c.d.Reserved.At(c.a.At)-c.total+c.a.Free.Or(0) < asked {
		return false
	}
	if f := factsOf(c.d, c.a, c.u); f.free() < asked || f.liesTogether() {
		return true
	}
	return !c.needsMore()
}

// largeBlock is the share of all that a process could have from which its blocks hardly ever find a hole.
const largeBlock = 0.25

// likeLargeBlock reports whether the failed request and some live block each take a quarter of what the
// process could have, and either come from one function or have one size (a gradient and its tensor). Then
// their size is the cause, not the holes.
func (c *evidence) likeLargeBlock() bool {
	all := c.d.Reserved.At(c.a.At) + c.a.Free.Or(0)
	least := int64(largeBlock * float64(all))
	fn, file := c.userFunction(c.d.Event(c.a.At).Stack)
	return c.a.Asked.Or(0) >= least && slices.ContainsFunc(c.live, func(id timeline.AllocID) bool {
		f, in := c.userFunction(c.d.Origin(id))
		return c.d.Allocs.Rounded[id] >= least &&
			(c.asLarge(id) || fn != "" && f == fn && in == file)
	})
}

// asLarge reports whether a block was requested with the size of the request that failed. What it occupies
// may be more, where the rest of its segment was too small to be split off.
func (c *evidence) asLarge(id timeline.AllocID) bool {
	asked := c.a.Asked.Or(0)
	return c.d.Allocs.Rounded[id] == asked || c.d.Allocs.Size[id] == asked
}

// needsMore reports whether the request plus what is allocated is more than the run needed before the current
// call or step. It is false if that is not recorded.
func (c *evidence) needsMore() bool {
	if len(c.parts) == 0 {
		return false
	}
	last := c.parts[len(c.parts)-1]
	from := last.First // of the call under way, or of what follows it
	if last.Phase != traces.PhaseForward {
		all := c.rounds()
		if len(all) == 0 {
			return false
		}
		from = all[len(all)-1].first
	}
	before := c.d.Allocated.Range(0, from).Max
	return float64(c.total+c.a.Asked.Or(0)) > newDemand*float64(before)
}

// place returns a frame as the tables name it.
func place(fn, file string, line int) string {
	s := fn + " " + path.Base(strings.ReplaceAll(file, `\`, "/"))
	if line > 0 {
		s += ":" + strconv.Itoa(line)
	}
	return s
}

func isKept(c timeline.Category) bool {
	return c == timeline.Parameter || c == timeline.OptimizerState || c == timeline.Gradient
}
