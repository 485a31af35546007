package pack

import (
	"errors"
	"fmt"
)

// Item is one buffer: Size bytes at one address while it lives.
type Item struct {
	Start, End int64 // The lifetime [Start, End), in any unit of time; End > Start.

	// Start2 and End2 are a second stretch of life [Start2, End2) at the same address, for a buffer that
	// wraps round the end of an iteration; both zero where there is none. It may not overlap the first.
	Start2, End2 int64

	Size int64 // Bytes; an item of size 0 is free of charge and is put at offset 0.
}

// hasSecond reports whether the item has a second stretch of life.
func (it Item) hasSecond() bool { return it.Start2 != 0 || it.End2 != 0 }

// Problem is a set of items to place.
type Problem struct {
	Items []Item
	// Sizes are rounded up to a multiple of Align and offsets are multiples of it; 1 or less means none.
	Align int64
	Fixed []int64 // Nil, or for each item the offset it must have, -1 if it is free.
}

// Limits that keep every sum of sizes inside an int64.
const (
	maxSize  = int64(1) << 48
	maxTotal = int64(1) << 62
	maxItems = 1 << 27
)

// Check reports the first thing that makes the problem meaningless, as a sentence that names the item by its
// index.
func (p *Problem) Check() error {
	if len(p.Items) > maxItems {
		return fmt.Errorf("the problem has %d items; at most %d can be packed", len(p.Items), maxItems)
	}
	if p.Align > maxSize {
		return fmt.Errorf("the alignment %d is over 2^48; give it in bytes", p.Align)
	}
	if p.Fixed != nil && len(p.Fixed) != len(p.Items) {
		return fmt.Errorf("there are %d fixed offsets for %d items; give one for each "+
			"item, -1 where it is free",
			len(p.Fixed), len(p.Items))
	}
	var total int64
	for i, it := range p.Items {
		if err := it.check(); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
		if total += p.alignedSize(i); total > maxTotal {
			return fmt.Errorf("item %d: the sizes add up to more than 2^62; give them in a coarser unit", i)
		}
	}
	return p.checkFixed()
}

func (it Item) check() error {
	switch {
	case it.Size < 0:
		return fmt.Errorf("its size %d is negative", it.Size)
	case it.Size > maxSize:
		return fmt.Errorf("its size %d is over 2^48; give it in bytes", it.Size)
	case it.End <= it.Start:
		return fmt.Errorf("its lifetime [%d, %d) is empty; the end has to come after the start", it.Start,
			it.End)
	case it.hasSecond() && it.End2 <= it.Start2:
		return fmt.Errorf("its second lifetime [%d, %d) is empty; the end has to come after the start",
			it.Start2, it.End2)
	case it.hasSecond() && it.Start < it.End2 && it.Start2 < it.End:
		return fmt.Errorf("its lifetimes [%d, %d) and [%d, %d) overlap; join them", it.Start, it.End,
			it.Start2, it.End2)
	}
	return nil
}

func (p *Problem) checkFixed() error {
	pinned := Problem{Align: p.Align}
	var offsets []int64
	var index []int
	for i, at := range p.Fixed {
		switch {
		case at == -1:
			continue
		case at < 0 || at > maxTotal:
			return fmt.Errorf("item %d: its fixed offset %d is out of range; use -1 for a free item", i, at)
		case p.Align > 1 && at%p.Align != 0:
			return fmt.Errorf("item %d: its fixed offset %d is not a multiple of the alignment %d", i, at,
				p.Align)
		}
		pinned.Items = append(pinned.Items, p.Items[i])
		offsets = append(offsets, at)
		index = append(index, i)
	}
	var clash *overlapError
	if err := Validate(&pinned, offsets); errors.As(err, &clash) {
		return fmt.Errorf("the fixed offsets contradict each other: %w",
			&overlapError{A: index[clash.A], B: index[clash.B]})
	} else if err != nil {
		return fmt.Errorf("the fixed offsets are wrong: %w", err)
	}
	return nil
}

// alignedSize is the size of item i rounded up to the alignment.
func (p *Problem) alignedSize(i int) int64 {
	size := p.Items[i].Size
	if p.Align > 1 {
		size = (size + p.Align - 1) / p.Align * p.Align
	}
	return size
}

// Status says what is known about a result.
type Status int

// The states of a result.
const (
	// Unknown: the work ran out before any packing under the capacity was found, and none was ruled out. The
	// offsets are still a packing, of a top above the capacity.
	Unknown Status = iota
	// Feasible: a packing, within the capacity where one was given; a lower top has not been ruled out.
	Feasible
	// Optimal: no packing has a lower top. With a capacity, it is only claimed if the top also meets the
	// lower bound or the search was exhausted.
	Optimal
	// Infeasible: no packing meets the capacity; the search was exhausted or the lower bound is above it. The
	// offsets are a packing of a top above the capacity.
	Infeasible
)

// String returns the status as a lower-case word.
func (s Status) String() string {
	switch s {
	case Unknown:
		return "unknown"
	case Feasible:
		return "feasible"
	case Optimal:
		return "optimal"
	case Infeasible:
		return "infeasible"
	}
	return fmt.Sprintf("status(%d)", int(s))
}

// Result is an answer. Its offsets are always a packing that Validate accepts, whatever the status.
type Result struct {
	Offsets []int64 // Bytes from the start of the arena, one for each item.
	Top     int64   // The largest offset + aligned size.
	// No packing has a lower top; at least LowerBound of the problem, more where search proved more.
	LowerBound int64
	Status     Status
	// Counted steps: search nodes and repair placements. Equal problem, seed and limit give equal work.
	Work int64
}
