package torchsnapshot

import (
	"math"

	"github.com/gmemtop/gmemtop/traces"
)

// timing converts microseconds to the trace's clock.
type timing struct {
	epoch   int64 // microseconds
	hasTime bool
}

// clock finds the earliest time. If there are events, their times decide whether the trace has a clock at
// all.
func (t *eventTable) clock(runs []run, marks []pending) timing {
	c := timing{epoch: math.MaxInt64}
	events := false
	for _, r := range runs {
		for i := r.first; i < r.end; i++ {
			events = true
			if at := t.at(i).time; at != traces.NoTime {
				c.epoch = min(c.epoch, at)
			}
		}
	}
	c.hasTime = c.epoch != math.MaxInt64
	if c.hasTime || !events {
		for _, m := range marks {
			c.hasTime = true
			for _, at := range [2]int64{m.start, m.end} {
				if at != traces.NoTime {
					c.epoch = min(c.epoch, at)
				}
			}
		}
	}
	if !c.hasTime {
		c.epoch = 0
	}
	return c
}

func (c timing) clock() traces.Clock {
	if !c.hasTime {
		return traces.Clock{Resolution: 1}
	}
	return traces.Clock{Epoch: c.epoch * 1000, Resolution: 1000, HasTime: true}
}

func (c timing) nanos(t int64) int64 {
	if t == traces.NoTime {
		return t
	}
	return (t - c.epoch) * 1000
}
