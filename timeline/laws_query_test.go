package timeline_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces"
)

func TestBreakdownsAddUpToUsage(t *testing.T) {
	eachRandom(t, func(t *testing.T, d *timeline.Device, rng *rand.Rand) {
		for range 10 {
			m := randomMoment(rng, d)
			for by := range sites.NumBy {
				var bytes int64
				blocks := 0
				for _, g := range sites.Breakdown(d, m, by) {
					bytes += g.Bytes
					blocks += g.Blocks
				}
				if live := len(d.LiveAt(m, nil)); bytes != d.Allocated.At(m) || blocks != live {
					t.Fatalf("by %s at %d: %d bytes in %d blocks, want %d in %d", by, m, bytes, blocks,
						d.Allocated.At(m), live)
				}
			}
			var categories, boxes []int64
			for _, g := range sites.Breakdown(d, m, sites.ByCategory) {
				categories = append(categories, g.Bytes)
			}
			for _, n := range sites.CategoryIcicle(d, m).Children {
				boxes = append(boxes, n.Bytes)
			}
			if !slices.Equal(boxes, categories) {
				t.Fatalf("icicle by category at %d: %d, want %d", m, boxes, categories)
			}
			for _, by := range []sites.By{sites.ByStack, sites.ByModule} {
				if n := sites.Icicle(d, m, by); n.Bytes != d.Allocated.At(m) {
					t.Fatalf("icicle by %s at %d: %d bytes, want %d", by, m, n.Bytes, d.Allocated.At(m))
				}
			}
		}
	})
}

func TestCategoryColumnsAndBandsAddUpToTheColumn(t *testing.T) {
	eachRandom(t, func(t *testing.T, d *timeline.Device, rng *rand.Rand) {
		w := d.Full(timeline.AxisTime)
		const n = 77
		cols := d.Columns(d.Allocated, w, n, nil)
		cats, err := timeline.CategoryColumns(context.Background(), d, w, n)
		if err != nil {
			t.Fatal(err)
		}
		for _, least := range []int64{0, 1000, 1 << 40} {
			bands, err := timeline.Bands(context.Background(), d, w, n, least)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range cols {
				var sum int64
				for _, v := range cats[i] {
					sum += v
				}
				if sum != c.Max {
					t.Fatalf("column %d: categories add up to %d, max is %d", i, sum, c.Max)
				}
				checkBands(t, d, bands[i], c, least)
			}
		}
	})
}

func checkBands(t *testing.T, d *timeline.Device, bands []timeline.Band, c timeline.Column, least int64) {
	t.Helper()
	at, merged, blocks := int64(0), false, 0
	for _, b := range bands {
		if b.Bottom != at {
			t.Fatalf("a band begins at %d, the one below ends at %d", b.Bottom, at)
		}
		small := b.Count > 1 || d.Allocs.Rounded[b.Alloc] < least
		if small && merged {
			t.Fatal("two neighbouring bands of small allocations are not one")
		}
		at, merged, blocks = b.Top, small, blocks+int(b.Count)
	}
	if live := len(d.LiveAt(c.MaxAt, nil)); at != c.Max || blocks != live {
		t.Fatalf("bands end at %d with %d blocks, want %d and %d", at, blocks, c.Max, live)
	}
}

func TestThePartsOfReservedAddUpAtEveryMoment(t *testing.T) {
	var stranded, cached int
	eachRandom(t, func(t *testing.T, d *timeline.Device, rng *rand.Rand) {
		for range 30 {
			m := randomMoment(rng, d)
			s, err := timeline.StateAt(context.Background(), d, m)
			if err != nil {
				t.Fatal(err)
			}
			if sum := s.ActiveRequested + s.Internal + s.Stranded + s.Cached; sum != s.Reserved {
				t.Fatalf("at %d the parts add up to %d, reserved is %d", m, sum, s.Reserved)
			}
			checkTiles(t, s)
			if d.Totals.Exactness != timeline.Exact {
				continue
			}
			if s.Stranded > 0 {
				stranded++
			}
			if s.Cached > segSize { // more than the segment that the next event takes a block from
				cached++
			}
			if s.Reserved != d.Reserved.At(m) || s.ActiveRequested+s.Internal != d.Active.At(m) ||
				s.Unplaced != 0 {
				t.Fatalf("at %d reserved %d, active %d, unplaced %d; the series have %d and %d", m,
					s.Reserved, s.ActiveRequested+s.Internal,
					s.Unplaced, d.Reserved.At(m), d.Active.At(m))
			}
			if requested := d.RequestedActiveSeries(); s.ActiveRequested != requested.At(m) {
				t.Fatalf("at %d active is %d in requested bytes, the series has %d", m, s.ActiveRequested,
					requested.At(m))
			}
		}
	})
	if stranded == 0 || cached == 0 {
		t.Errorf("bytes are stranded at %d moments and cached at %d: the law was hardly tried", stranded,
			cached)
	}
}

// checkTiles checks that the pieces tile their segments and that segments do not overlap.
func checkTiles(t *testing.T, s *timeline.AllocatorState) {
	t.Helper()
	var last uint64
	for _, g := range s.Segments {
		if g.Addr < last {
			t.Fatalf("segment %x begins within the one before", g.Addr)
		}
		at := g.Addr
		for _, p := range g.Pieces {
			if p.Addr != at || p.Size <= 0 {
				t.Fatalf("piece %x+%d of segment %x, expected at %x", p.Addr, p.Size, g.Addr, at)
			}
			at += uint64(p.Size)
		}
		if last = g.Addr + uint64(g.Size); at != last {
			t.Fatalf("pieces end at %x, segment %x at %x", at, g.Addr, last)
		}
	}
}

func TestTheLastStateIsTheFinalOne(t *testing.T) {
	eachRandom(t, func(t *testing.T, d *timeline.Device, rng *rand.Rand) {
		if d.Totals.Exactness != timeline.Exact {
			return
		}
		s, err := timeline.StateAt(context.Background(), d, timeline.Moment(d.Len()-1))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := s.ActiveRequested+s.Internal, d.Totals.EndActive; got != want {
			t.Errorf("active %d at the end, the final state has %d", got, want)
		}
		if s.Exactness != timeline.Exact {
			t.Errorf("the final state is %s: %s", s.Exactness, s.Reason)
		}
	})
}

func TestEveryEventOfABlockLeadsToIt(t *testing.T) {
	eachRandom(t, func(t *testing.T, d *timeline.Device, rng *rand.Rand) {
		for m := range timeline.Moment(d.Len()) {
			ev, id := d.Event(m), d.AllocOf(m)
			isBlock := ev.Action == traces.Alloc || ev.Action == traces.FreeRequested ||
				ev.Action == traces.FreeCompleted
			if isBlock != (id != timeline.NoAlloc) {
				t.Fatalf("event %d, %s: allocation %d", m, ev.Action, id)
			}
			if isBlock && d.Allocs.Addr[id] != ev.Addr {
				t.Fatalf("event %d at %x leads to an allocation at %x", m, ev.Addr, d.Allocs.Addr[id])
			}
		}
	})
}

func TestMomentsAndTimesAgree(t *testing.T) {
	eachRandom(t, func(t *testing.T, d *timeline.Device, rng *rand.Rand) {
		from, to := d.Span()
		for range 100 {
			x := from - 5 + rng.Int64N(to-from+10)
			m := d.MomentAt(x)
			if m != timeline.Start && d.Time(m) > x || int(m)+1 < d.Len() && d.Time(m+1) <= x {
				t.Fatalf("MomentAt(%d) = %d", x, m)
			}
		}
	})
}

func TestSearchEqualsAScan(t *testing.T) {
	eachRandom(t, func(t *testing.T, d *timeline.Device, rng *rand.Rand) {
		for range 10 {
			q := sites.Query{MinSize: rng.Int64N(3000), Leaked: rng.IntN(3) == 0, Live: rng.IntN(2) == 0,
				LiveAt: randomMoment(rng, d), Text: "net3"}
			got, err := sites.Search(context.Background(), d, q)
			if err != nil {
				t.Fatal(err)
			}
			var want []timeline.AllocID
			for i := range timeline.AllocID(d.Allocs.Len()) {
				a := &d.Allocs
				live := a.Start[i] <= q.LiveAt && q.LiveAt < a.Requested[i]
				if a.Rounded[i] >= q.MinSize && (!q.Leaked || a.Requested[i] == timeline.Never) &&
					(!q.Live || live) && a.Stack[i] >= 0 &&
					sites.Name(d, a.Stack[i]) == "forward net3.py:4" {
					want = append(want, i)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%+v: %v, want %v", q, got, want)
			}
			for k := sites.SortStart; k <= sites.SortAddress; k++ {
				q.Sort, q.Descending = k, rng.IntN(2) == 0
				ordered, err := sites.Search(context.Background(), d, q)
				if err != nil {
					t.Fatal(err)
				}
				key := sortedBy(d, k)
				for i := 1; i < len(ordered); i++ {
					x, y := key(ordered[i-1]), key(ordered[i])
					if q.Descending {
						x, y = y, x
					}
					if x > y && k != sites.SortStart {
						t.Fatalf("sorted by %d, descending %v: %d stands before %d", k, q.Descending, x, y)
					}
				}
				slices.Sort(ordered)
				if !slices.Equal(ordered, want) {
					t.Fatalf("sorted by %d: %v, want %v", k, ordered, want)
				}
			}
		}
	})
}

// TestPagesOfASmallPoolStaySmall: neighbouring pages go back to the driver in one event that is larger than
// any small segment, and still belong to the small pool.
func TestPagesOfASmallPoolStaySmall(t *testing.T) {
	// Pages of 2 MiB: two from before the recording and ten that come one by one; one page of 20 MiB in the
	// large pool. All go back.
	const events = `
segment_unmap 0x40000000 4194304
segment_map 0x10000000 2097152
segment_map 0x10200000 2097152
segment_map 0x10400000 2097152
segment_map 0x10600000 2097152
segment_map 0x10800000 2097152
segment_map 0x10a00000 2097152
segment_map 0x10c00000 2097152
segment_map 0x10e00000 2097152
segment_map 0x11000000 2097152
segment_map 0x11200000 2097152
segment_map 0x20000000 20971520
segment_unmap 0x10000000 20971520
segment_unmap 0x20000000 20971520
`
	for _, final := range []string{"", "final 0x28000000 20971520 expandable: " +
		"inactive 0x28000000 20971520\n"} {
		var text strings.Builder
		for i, line := range strings.Split(strings.TrimSpace(events), "\n") {
			fmt.Fprintf(&text, "%d %s\n", i, line)
		}
		d := timelinetest.Text(t, text.String()+final).Devices[0]
		for _, m := range []timeline.Moment{timeline.Start, 5, 11} {
			s, err := timeline.StateAt(context.Background(), d, m)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range s.Segments {
				if want := g.Addr < 0x20000000 || g.Addr >= 0x40000000; g.Small != want {
					t.Errorf("final state %t, at %d: %d bytes at %#x are small: %t", final != "", m, g.Size,
						g.Addr, g.Small)
				}
			}
			if len(s.Segments) == 0 {
				t.Errorf("nothing is there at %d", m)
			}
		}
	}
}

// sortedBy returns the sort key of a search's rows.
func sortedBy(d *timeline.Device, k sites.SortKey) func(timeline.AllocID) uint64 {
	a := &d.Allocs
	return func(id timeline.AllocID) uint64 {
		switch k {
		case sites.SortSize:
			return uint64(a.Rounded[id])
		case sites.SortLifetime:
			start, end := d.Lifetime(id)
			return uint64(end - start)
		case sites.SortEnd:
			return uint64(a.Requested[id] + 1)
		case sites.SortCategory:
			return uint64(a.Category[id])
		}
		return a.Addr[id]
	}
}
