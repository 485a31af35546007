package fidelity

import (
	"context"
	"slices"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// BlockID numbers the blocks of a Program: first those held at the start, in order of their addresses, then
// the others in order of requests.
type BlockID int32

// StepKind is what a process does in a Step.
type StepKind uint8

// The kinds of steps.
const (
	// Malloc asks for Size bytes, which are Block from then on.
	Malloc StepKind = iota
	// Free gives a block back.
	Free
	// FreeLater gives back a block that is in use on another stream until its Complete; Stream is made up for
	// that use.
	FreeLater
	// Complete ends the use of a block freed by FreeLater.
	Complete
	// ProcessEvents is a place, outside requests, at which PyTorch checked whether such uses had ended.
	ProcessEvents
	// EmptyCache is torch.cuda.empty_cache(), inferred from segments given back.
	EmptyCache
	// Fail asks for Size bytes that the recorded process did not get (an oom event).
	Fail
)

// Step is one thing that a process does with memory.
type Step struct {
	Size   int64 // bytes asked for, of Malloc and Fail
	Block  BlockID
	Stream allocator.Stream
	Pool   int32           // in Program.Pools
	At     timeline.Moment // of Malloc and Fail
	Kind   StepKind
}

// Program is what a recorded process did with memory, without the allocator's decisions: it can be played
// against an allocator with other settings. Steps depends on the recorded settings only where a recording
// does not separate the process's acts from the allocator's, see Replay.
type Program struct {
	// Start is the state before the first step, whose blocks that are not Inactive are numbered from 0; nil
	// if it is empty.
	Start []allocator.Segment
	Steps []Step
	Pools []traces.Pool
	// Blocks is how many numbers are used.
	Blocks int
}

// Record is Replay that also returns what the process did. It needs 32 bytes an event.
func Record(ctx context.Context, d *timeline.Device) (*Program, *Report, error) {
	p := &Program{Pools: []traces.Pool{{}}}
	report, err := run(ctx, d, p)
	if err != nil {
		return nil, nil, err
	}
	return p, report, nil
}

// note adds a step; a nil program takes none.
func (p *Program) note(s Step) {
	if p != nil {
		p.Steps = append(p.Steps, s)
	}
}

// poolIndex returns the index of a pool in the program's list.
func (p *Program) poolIndex(pool traces.Pool) int32 {
	if p == nil {
		return 0
	}
	i := slices.Index(p.Pools, pool)
	if i < 0 {
		i = len(p.Pools)
		p.Pools = append(p.Pools, pool)
	}
	return int32(i)
}
