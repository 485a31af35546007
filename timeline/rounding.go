package timeline

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// How many bytes does a block take? PyTorch's allocated_bytes counts block sizes, its recorder logs what the
// tensor asked for, and its snapshot has both for the blocks that exist when it is taken. So the size of a
// block freed before that has to be worked out. Only this file and remainder.go do so; everything else reads
// Allocs.Rounded.
//
// The size is the first of these that is known: the size of the block in the final state; the recorded size,
// if the source records the sizes that the allocator gave (the profiler, pinned memory) or no caching
// allocator is involved; else the request rounded by the allocator's rule (round_size), plus the rest of the
// hole that the allocator does not split off (remainder.go).
//
// The figures are exact if these rules leave nothing open: the settings are in the file, every segment is
// known, and the rules give all sizes that the final state has. Otherwise they are inferred, and sizeProof
// says why.
//
// Rejected: replaying every call in an emulation of the allocator. It has to find the same place for each
// block, which the recording already gives as its address, so it costs more, fails on more files and yields
// nothing new.
//
// Source: round_size, get_allocation_size and should_split in PyTorch's c10/cuda/CUDACachingAllocator.cpp;
// the sizes that torch 2.7 and 2.15 report, in this package's tests.

// rounding is what we know of the rule from requested to rounded bytes.
type rounding struct {
	given    bool // the source records what the allocator gave, not what was requested
	none     bool // no rule applies: sizes are as recorded
	settings bool // the source has the allocator's settings
	rule     torchalloc.Rounding
}

// newRounding returns the rule for a device of a trace.
func newRounding(tr *traces.Trace, kind traces.DeviceKind) rounding {
	var r rounding
	switch tr.Source.Format {
	case "kineto", "memory_timeline": // the profiler is told the sizes of blocks
		r.given = kind == traces.DeviceGPU
		r.none = true
	case "smartpool_text", "pipedream", "jax_memory_profile": // other allocators
		r.none = true
	}
	switch kind {
	case traces.DeviceGPU:
	case traces.DeviceHost:
		// PyTorch's recorder writes the sizes of pinned blocks, rounded up to powers of two.
		r.given, r.none = true, true
	default:
		r.none = true
	}
	if r.none {
		return r
	}
	var byMiB map[string]int64
	known := json.Unmarshal([]byte(tr.Setting("roundup_power2_divisions")), &byMiB) == nil
	if r.settings = known || tr.Setting("max_split_size") != ""; !known {
		return r
	}
	for i := range r.rule {
		r.rule[i] = byMiB[strconv.Itoa(1<<i)]
	}
	return r
}

// round returns the rounded size of a requested one.
func (r *rounding) round(size int64) int64 {
	if r.none {
		return size
	}
	return r.rule.Round(size)
}

// sizeProof counts how the sizes of blocks were found.
type sizeProof struct {
	byRule         int // blocks whose size comes from the rules alone
	checked, wrong int // blocks of the final state on which the rules were checked, and those that they miss
}

// doubt says why rounded figures rest on rules that the recording does not prove; "" if they do not.
func (p *sizeProof) doubt(b *deviceBuilder) string {
	what := Counted(p.byRule, "block")
	switch {
	case b.rule.none || p.byRule == 0:
		return ""
	case !b.rule.settings:
		return "the sizes of " + what + " follow PyTorch's rounding rule: the file does not hold the " +
			"allocator's settings"
	case p.wrong > 0:
		return fmt.Sprintf("the sizes of %s follow the allocator's rules, which miss %d of the %d that the "+
			"final state shows", what, p.wrong, p.checked)
	case b.rest == nil && !b.alwaysSplits():
		return "the sizes of " + what + " follow PyTorch's rounding rule: what is left of a hole and stays " +
			"with its block is not known"
	case b.rest != nil && b.mayNotSplit():
		return "the sizes of " + what + " follow the allocator's rules: a private pool may have handed out " +
			"whole segments (no_split)"
	}
	return ""
}

// alwaysSplits reports whether the allocator splits every rest off: expandable segments are on and the device
// has no others.
func (b *deviceBuilder) alwaysSplits() bool {
	if strings.TrimSpace(b.tr.Setting("expandable_segments")) != "true" {
		return false
	}
	for i := range b.tr.Final.Segments {
		if seg := &b.tr.Final.Segments[i]; seg.Device == b.d.ID && !seg.Expandable && !seg.Small {
			return false
		}
	}
	return true
}

// RequestedSeries returns the allocated series in requested bytes, which is Allocated itself if the source
// records nothing else (see RequestedKnown). It is computed on the first call, O(events).
func (d *Device) RequestedSeries() *Series { return requestedSeries.Of(d) }

// RequestedActiveSeries is RequestedSeries of active bytes.
func (d *Device) RequestedActiveSeries() *Series { return requestedActiveSeries.Of(d) }

var (
	requestedSeries = NewMemo(func(d *Device) *Series {
		return sumRequested(d, d.Allocated, d.Allocs.Requested)
	})
	requestedActiveSeries = NewMemo(func(d *Device) *Series {
		return sumRequested(d, d.Active, d.Allocs.End)
	})
)

// RequestedKnown reports whether the source records requested sizes, not only the sizes that the allocator
// gave.
func (d *Device) RequestedKnown() bool { return !newRounding(d.tl.Trace, d.Info.Kind).given }

// sumRequested adds up the requested bytes of allocations from their start to ends. If there are no others
// that is the series of rounded bytes.
func sumRequested(d *Device, rounded *Series, ends []Moment) *Series {
	if newRounding(d.tl.Trace, d.Info.Kind).none {
		return rounded
	}
	a, held := &d.Allocs, d.Totals.Unattributed
	for i := 0; i < a.Len() && a.Start[i] == Start; i++ {
		if ends[i] != Start {
			held += a.Size[i]
		}
	}
	start, values, closings := held, make([]int64, d.n), d.closings
	step := func(id AllocID, m Moment) {
		switch m {
		case a.Start[id]:
			held += a.Size[id]
		case ends[id]:
			held -= a.Size[id]
		}
	}
	for m := range Moment(d.n) {
		own := d.allocOf[m]
		for ; len(closings) > 0 && closings[0].at == m; closings = closings[1:] {
			if closings[0].id != own {
				step(closings[0].id, m)
			}
		}
		if own != NoAlloc {
			step(own, m)
		}
		values[m] = held
	}
	return newSeries(start, nil, values)
}
