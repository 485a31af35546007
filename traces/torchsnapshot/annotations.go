package torchsnapshot

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// annotation is one end of a range that record_function, the profiler or an optimizer named.
type annotation struct {
	time   int64 // microseconds, traces.NoTime if it has none
	name   text
	device int32
	stage  text // tStart or tEnd; anything else is dropped and counted
}

type annotations []annotation

func (as *annotations) open() (value, error) {
	if len(*as) == maxRows {
		return value{}, limitf("more than %d annotations", maxRows)
	}
	*as = append(*as, annotation{time: traces.NoTime})
	return value{kind: kAnnotation, ref: uint32(len(*as) - 1)}, nil
}

func (as annotations) set(vs *values, i uint32, items []value) error {
	a := &as[i]
	for j := 0; j+1 < len(items); j += 2 {
		k, v := items[j], items[j+1]
		ok := k.kind == kText
		if !ok {
			vs.wrongType()
			continue
		}
		switch k.text() {
		case tName:
			a.name, ok = v.text(), v.kind == kText
		case tStage:
			a.stage, ok = v.text(), v.kind == kText
		case tTimeUS:
			a.time, ok = vs.micros(v)
		case tDevice:
			var n int64
			if n, ok = v.asInt(); ok && n >= 0 && n <= math.MaxInt32 {
				a.device = int32(n)
			}
		default:
			vs.lose("annotation_keys", traces.DataLoss, 1,
				"keys of external_annotations that this version does not know were dropped")
		}
		if !ok {
			vs.wrongType()
		}
	}
	return nil
}

// pending is a mark whose device and times are not final yet.
type pending struct {
	start, end int64 // microseconds
	name       text
	device     int32
}

func (p pending) at() int64 {
	if p.start == traces.NoTime {
		return p.end
	}
	return p.start
}

// pair joins starts and ends into ranges. Ranges with one name on one device nest, so an end
// closes the latest open start. An end without a start, or a start without an end, is kept as half a mark.
// The order is by time and does not depend on how the source interleaves names.
func (as annotations) pair(vs *values) []pending {
	type key struct {
		device int32
		name   text
	}
	var marks []pending
	open := map[key][]int{}
	for _, a := range as {
		k := key{a.device, a.name}
		stack := open[k]
		switch {
		case a.time == traces.NoTime || a.stage != tStart && a.stage != tEnd:
			vs.lose("annotations_dropped", traces.DataLoss, 1,
				"annotations without a time or of an unknown stage were dropped")
		case a.stage == tStart:
			open[k] = append(stack, len(marks))
			marks = append(marks, pending{a.time, traces.NoTime, a.name, a.device})
		case len(stack) > 0:
			marks[stack[len(stack)-1]].end = a.time
			open[k] = stack[:len(stack)-1]
		default:
			marks = append(marks, pending{traces.NoTime, a.time, a.name, a.device})
		}
	}
	slices.SortStableFunc(marks, func(a, b pending) int {
		return cmp.Or(
			cmp.Compare(a.at(), b.at()), cmp.Compare(b.end, a.end), cmp.Compare(a.start, b.start),
			cmp.Compare(a.device, b.device),
			strings.Compare(vs.texts.string(a.name), vs.texts.string(b.name)),
		)
	})
	return marks
}

// markKind returns the kind of a range by its name.
func markKind(name string) (traces.MarkKind, traces.Phase) {
	switch {
	case strings.HasPrefix(name, "ProfilerStep#"):
		return traces.MarkIteration, traces.PhaseUnknown
	case strings.HasPrefix(name, "Optimizer.step#"):
		return traces.MarkPhase, traces.PhaseOptimizer
	}
	return traces.MarkAnnotation, traces.PhaseUnknown
}
