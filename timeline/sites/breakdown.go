package sites

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strconv"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// unattributedName is the group of bytes that only the source's own total shows.
const unattributedName = "not in the recording"

// The groups of allocations without a stack.
const (
	noStackName = "no stack"
	earlierName = "allocated before the recording"
)

// grouping gives the key of a live allocation in a breakdown and the name of a key.
type grouping struct {
	key  func(id timeline.AllocID) int64
	name func(key int64) string
}

// Breakdown returns the allocated blocks at m grouped, in descending order of bytes. The groups' bytes add up
// to Allocated.At(m): bytes in no known allocation are a group of their own.
func Breakdown(d *timeline.Device, m timeline.Moment, by By) []Group {
	a := &d.Allocs
	g := groupingOf(d, m, by)
	index := make(map[int64]int)
	var groups []Group
	for _, id := range d.LiveAt(m, nil) {
		key := g.key(id)
		i, ok := index[key]
		if !ok {
			i = len(groups)
			index[key] = i
			groups = append(groups, Group{Name: g.name(key), Stack: traces.NoStack, Largest: id})
			if by == ByCategory {
				groups[i].Category = a.Category[id]
			}
			if by == ByStack {
				groups[i].Stack = d.Origin(id)
			}
		}
		groups[i].add(a, id)
	}
	if by == BySite {
		for i := range groups {
			groups[i].Stack = d.Origin(groups[i].Largest)
		}
	}
	if u := d.Totals.Unattributed; u > 0 {
		groups = append(groups, Group{Name: unattributedName, Stack: traces.NoStack, Bytes: u, Requested: u,
			Largest: timeline.NoAlloc})
	}
	slices.SortStableFunc(groups, func(x, y Group) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(y.Requested, x.Requested),
			cmp.Compare(x.Name, y.Name), cmp.Compare(x.Stack, y.Stack))
	})
	return groups
}

// Words returns the group's name for use in a sentence.
func (g *Group) Words() string {
	switch g.Name {
	case noStackName:
		return "blocks without a recorded stack"
	case earlierName:
		return "blocks allocated before the recording"
	case unattributedName:
		return "blocks that are not in the recording"
	}
	return g.Name
}

// add counts an allocation into the group.
func (g *Group) add(a *timeline.Allocs, id timeline.AllocID) {
	g.Bytes += a.Rounded[id]
	g.Requested += a.Size[id]
	g.Blocks += a.Blocks(id)
	g.Inferred = g.Inferred || a.Inferred[id]
	if larger(a, id, g.Largest) {
		g.Largest = id
	}
}

// larger reports whether allocation x is larger than y: more rounded bytes, or as many for more requested
// bytes.
func larger(a *timeline.Allocs, x, y timeline.AllocID) bool {
	return cmp.Or(cmp.Compare(a.Rounded[x], a.Rounded[y]), cmp.Compare(a.Size[x], a.Size[y])) > 0
}

func groupingOf(d *timeline.Device, m timeline.Moment, by By) grouping {
	a, tr := &d.Allocs, d.Timeline().Trace
	switch by {
	case BySite:
		return bySite(d)
	case ByStack:
		return grouping{func(id timeline.AllocID) int64 { return stackKey(d, id) },
			func(k int64) string { return stackName(d, k) }}
	case ByModule:
		return byModule(d)
	case BySize:
		return grouping{func(id timeline.AllocID) int64 {
			mean := a.Rounded[id] / int64(max(a.Blocks(id), 1)) // all that is known of a sum of several
			return int64(max(bits.Len64(uint64(max(mean, 0))), 9))
		}, sizeClass}
	case ByStream:
		return grouping{func(id timeline.AllocID) int64 { return int64(a.Stream[id]) }, func(k int64) string {
			if k == 0 {
				return "default stream"
			}
			return fmt.Sprintf("stream %d (0x%x)", k, tr.Streams[k])
		}}
	case BySegment:
		return bySegment(d, m)
	case ByAge:
		now := d.Time(m)
		return grouping{func(id timeline.AllocID) int64 {
			if a.Start[id] == timeline.Start {
				return 64
			}
			return ageClass(now - d.Time(a.Start[id]))
		}, ageName}
	}
	return grouping{func(id timeline.AllocID) int64 { return int64(a.Category[id]) },
		func(k int64) string { return timeline.Category(k).String() }}
}

// noStackKey is the key of allocations without a stack, earlierStack of those without one because they were
// there before the recording.
const (
	noStackKey   = int64(traces.NoStack)
	earlierStack = -2
)

func stackKey(d *timeline.Device, id timeline.AllocID) int64 {
	if s := d.Origin(id); s != traces.NoStack || d.Allocs.Start[id] != timeline.Start {
		return int64(s)
	}
	return earlierStack
}

func stackName(d *timeline.Device, key int64) string {
	if key == earlierStack {
		return earlierName
	}
	return cmp.Or(Name(d, traces.StackID(key)), noStackName)
}

// bySite groups by the site of stacks; stacks without a site are grouped by stack.
func bySite(d *timeline.Device) grouping {
	f := Of(d.Timeline())
	return grouping{func(id timeline.AllocID) int64 {
		if site := f.Number(d.Origin(id)); site >= 0 {
			return int64(site)
		}
		return min(stackKey(d, id), noStackKey)
	}, func(k int64) string {
		if k >= 0 {
			return f.Names[k]
		}
		return stackName(d, k)
	}}
}

// byModule groups by the names of modules, not by stacks.
func byModule(d *timeline.Device) grouping {
	keys, names := make(map[string]int64), []string{}
	of := make(map[traces.StackID]int64)
	return grouping{func(id timeline.AllocID) int64 {
		s := d.Origin(id)
		if k, ok := of[s]; ok {
			return k
		}
		name := cmp.Or(Module(d, s), "outside of modules")
		k, ok := keys[name]
		if !ok {
			k = int64(len(names))
			keys[name] = k
			names = append(names, name)
		}
		of[s] = k
		return k
	}, func(k int64) string { return names[k] }}
}

// bySegment groups by the segment that holds the address at m.
func bySegment(d *timeline.Device, m timeline.Moment) grouping {
	segments := timeline.SegmentsAt(d, m)
	return grouping{func(id timeline.AllocID) int64 {
		addr := d.Allocs.Addr[id]
		i := sort.Search(len(segments), func(i int) bool { return segments[i].Addr > addr }) - 1
		if i < 0 || addr-segments[i].Addr >= uint64(segments[i].Size) {
			return -1
		}
		return int64(i)
	}, func(k int64) string {
		if k < 0 {
			return "unknown segment"
		}
		return fmt.Sprintf("s'%x, %s", segments[k].Addr, timeline.IEC.Bytes(segments[k].Size))
	}}
}

// sizeClass names the sizes that need k bits, [2^(k-1), 2^k); all that need fewer than 10 bits are one class.
func sizeClass(k int64) string {
	lo := int64(1) << (k - 1)
	switch {
	case k <= 9:
		return "below 512 B"
	case k >= 63:
		return "from " + shortBytes(lo)
	}
	return shortBytes(lo) + "–" + shortBytes(2*lo)
}

// shortBytes prints a power of two without decimals.
func shortBytes(n int64) string {
	k := 0
	for n >= 1024 {
		n /= 1024
		k++
	}
	return strconv.FormatInt(n, 10) + " " + [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}[k]
}

// ageClass returns the decade of an age in nanoseconds.
func ageClass(ns int64) int64 {
	k := int64(0)
	for ns >= 1000 && k < 10 {
		ns /= 10
		k++
	}
	return k
}

var ageNames = [...]string{
	"below 1 µs", "1–10 µs", "10–100 µs", "0.1–1 ms", "1–10 ms", "10–100 ms",
	"0.1–1 s", "1–10 s", "10–100 s", "100–1000 s", "from 1000 s",
}

func ageName(k int64) string {
	if k == 64 {
		return "before the recording"
	}
	return ageNames[min(max(k, 0), int64(len(ageNames)-1))]
}

// By says what a breakdown groups by.
type By uint8

// The groupings.
const (
	// BySite groups by call site as people read it, see Name: the same code called from different places is
	// one row.
	BySite By = iota
	ByCategory
	// ByStack keeps all stacks apart, even those that differ only in frames below their site.
	ByStack
	ByModule
	BySize
	ByStream
	BySegment
	ByAge
	NumBy
)

// String returns the grouping's name on screen.
func (b By) String() string {
	return [...]string{"call site", "category", "stack", "module", "size", "stream", "segment",
		"age"}[min(b, ByAge)]
}

// Group is one row of a breakdown: allocated blocks that share a key.
type Group struct {
	Name      string
	Stack     traces.StackID    // for ByStack; for BySite the stack of Largest; NoStack otherwise
	Category  timeline.Category // for ByCategory
	Bytes     int64             // rounded: the groups of a moment add up to its allocated bytes
	Requested int64             // requested bytes
	Blocks    int
	Largest   timeline.AllocID
	Inferred  bool
}
