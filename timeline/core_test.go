package timeline_test

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces"
)

// TestTables runs testdata/core*.txtar: a trace as text, and the tables that the timeline makes of it.
func TestTables(t *testing.T) {
	eachArchive(t, "core*.txtar", func(t *testing.T, trace, section string) string {
		tl := timelinetest.Text(t, trace)
		d := tl.Devices[0]
		name, arg, _ := strings.Cut(section, " ")
		switch name {
		case "allocs":
			return allocTable(d)
		case "series":
			return seriesTable(d)
		case "totals":
			return totalsTable(d)
		case "losses":
			var b strings.Builder
			for _, l := range tl.Losses {
				fmt.Fprintf(&b, "%s %s %d\n", l.Name, l.Severity, l.Count)
			}
			return b.String()
		case "states":
			return stateTable(t, d)
		case "breakdown":
			return breakdownTable(d, arg)
		case "search":
			return searchTable(t, d, arg)
		case "icicle":
			m, by := momentAndBy(arg)
			var b strings.Builder
			writeNode(&b, sites.Icicle(d, m, by), 0)
			return b.String()
		case "bands":
			return bandTable(t, d, arg)
		case "sites":
			var b strings.Builder
			for i := range tl.Trace.Stacks.Len() {
				fmt.Fprintf(&b, "%d | %s | %s\n", i, sites.Name(d, traces.StackID(i)),
					sites.Module(d, traces.StackID(i)))
			}
			return b.String()
		}
		t.Fatalf("unknown section %q", section)
		return ""
	})
}

func printMoment(m timeline.Moment) string {
	switch m {
	case timeline.Start:
		return "start"
	case timeline.Never:
		return "never"
	}
	return fmt.Sprint(int(m))
}

func allocTable(d *timeline.Device) string {
	var b strings.Builder
	a := &d.Allocs
	for i := range timeline.AllocID(a.Len()) {
		inferred := ""
		if a.Inferred[i] {
			inferred = "~"
		}
		fmt.Fprintf(&b, "%-10s %5s %5s %5s %6d %6d s%d stack=%d %s%s\n", d.Name(i), printMoment(a.Start[i]),
			printMoment(a.Requested[i]),
			printMoment(a.End[i]), a.Size[i], a.Rounded[i], a.Stream[i], a.Stack[i], inferred, a.Category[i])
	}
	return b.String()
}

func seriesTable(d *timeline.Device) string {
	var b strings.Builder
	for m := timeline.Start; int(m) < d.Len(); m++ {
		action := "-"
		if m >= 0 {
			action = d.Event(m).Action.String()
		}
		fmt.Fprintf(&b, "%5s %-14s %6d %6d %6d\n", printMoment(m), action, d.Allocated.At(m), d.Active.At(m),
			d.Reserved.At(m))
	}
	return b.String()
}

func totalsTable(d *timeline.Device) string {
	t := d.Totals
	return fmt.Sprintf(`events %d allocations %d ooms %d streams %d segments %d
start allocated %d (%d requested) active %d (%d requested) reserved %d unattributed %d
end   allocated %d (%d requested) active %d (%d requested) reserved %d
peak  allocated %d at %s (%d requested) active %d at %s (%d requested) reserved %d at %s
law   %d %d %d, requested %d %d
begins empty %v, complete %v, %s: %s
`, t.Events, t.Allocations, t.OOMs, t.Streams, t.Segments,
		t.StartAllocated, t.StartAllocatedRequested.Or(-1),
		t.StartActive, t.StartActiveRequested.Or(-1), t.StartReserved.Or(-1),
		t.Unattributed,
		t.EndAllocated, t.EndAllocatedRequested.Or(-1),
		t.EndActive, t.EndActiveRequested.Or(-1), t.EndReserved.Or(-1),
		t.PeakAllocated, printMoment(t.PeakAt), t.PeakAllocatedRequested.Or(-1), t.PeakActive,
		printMoment(t.PeakActiveAt), t.PeakActiveRequested.Or(-1),
		t.PeakReserved.Or(-1), printMoment(t.PeakReservedAt), t.LawAllocated, t.LawActive, t.LawReserved,
		t.LawAllocatedRequested, t.LawActiveRequested,
		t.BeginsEmpty, t.Complete, t.Exactness, t.Reason)
}

func stateTable(t *testing.T, d *timeline.Device) string {
	var b strings.Builder
	for m := timeline.Start; int(m) < d.Len(); m++ {
		s, err := timeline.StateAt(context.Background(), d, m)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b,
			"%s: active %d internal %d stranded %d cached %d = reserved %d; pending %d hole %d unplaced "+
				"%d; %s\n", printMoment(m),
			s.ActiveRequested, s.Internal, s.Stranded, s.Cached, s.Reserved, s.PendingFree, s.LargestFree,
			s.Unplaced, s.Exactness)
		for _, g := range s.Segments {
			fmt.Fprintf(&b, "  %x+%d:", g.Addr, g.Size)
			for _, p := range g.Pieces {
				who := "hole"
				if p.Alloc != timeline.NoAlloc {
					who = d.Name(p.Alloc)
				}
				if p.State == traces.BlockPendingFree {
					who += "?"
				}
				fmt.Fprintf(&b, " %s %d", who, p.Size)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func momentAndBy(arg string) (timeline.Moment, sites.By) {
	at, name, _ := strings.Cut(arg, " ")
	m, err := strconv.Atoi(at)
	if err != nil {
		panic(err)
	}
	for by := range sites.NumBy {
		if by.String() == name {
			return timeline.Moment(m), by
		}
	}
	panic(name)
}

func breakdownTable(d *timeline.Device, arg string) string {
	m, by := momentAndBy(arg)
	var b strings.Builder
	for _, g := range sites.Breakdown(d, m, by) {
		inferred, largest := "", "-"
		if g.Inferred {
			inferred = "~"
		}
		if g.Largest != timeline.NoAlloc {
			largest = d.Name(g.Largest)
		}
		fmt.Fprintf(&b, "%6d %6d %3d %s%s, largest %s\n", g.Bytes, g.Requested, g.Blocks, inferred, g.Name,
			largest)
	}
	return b.String()
}

func searchTable(t *testing.T, d *timeline.Device, arg string) string {
	q, err := sites.ParseQuery(arg)
	if err != nil {
		return err.Error() + "\n"
	}
	q.LiveAt = d.Totals.PeakAt
	ids, err := sites.Search(context.Background(), d, q)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "%s %d\n", d.Name(id), d.Allocs.Size[id])
	}
	return b.String()
}

func writeNode(b *strings.Builder, n *sites.Node, depth int) {
	fmt.Fprintf(b, "%s%s %d in %d\n", strings.Repeat("  ", depth), cmp.Or(n.Name, "all"), n.Bytes, n.Blocks)
	for _, c := range n.Children {
		writeNode(b, c, depth+1)
	}
}

func bandTable(t *testing.T, d *timeline.Device, arg string) string {
	var n int
	var least int64
	if _, err := fmt.Sscan(arg, &n, &least); err != nil {
		t.Fatal(err)
	}
	cols, err := timeline.Bands(context.Background(), d, d.Full(timeline.AxisEvents), n, least)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, c := range cols {
		for _, band := range c {
			who := "-"
			if band.Alloc != timeline.NoAlloc {
				who = d.Name(band.Alloc)
			}
			fmt.Fprintf(&b, " [%d,%d) %s ×%d", band.Bottom, band.Top, who, band.Count)
		}
		b.WriteString("\n")
	}
	return b.String()
}
