package torchsnapshot

import (
	"cmp"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// settings writes allocator_settings if the trace has any.
func (s *snapshotWriter) settings() error {
	if len(s.t.Settings) == 0 {
		return nil
	}
	s.key(tAllocatorSettings)
	s.op(opEmptyDict)
	s.op(opMark)
	for _, x := range s.t.Settings {
		s.string(x.Key)
		if err := s.json(x.Value); err != nil {
			return err
		}
	}
	s.op(opSetItems)
	return nil
}

// host writes the pinned memory if the trace has any.
func (s *snapshotWriter) host() error {
	if !slices.ContainsFunc(s.t.Devices, func(d traces.Device) bool { return d.Kind == traces.DeviceHost }) {
		return nil
	}
	if err := s.segments(tHostSegments, true); err != nil {
		return err
	}
	return s.traces(tHostTraces, s.ordinals(traces.DeviceHost))
}

// extra writes the keys of the top level that the source had and this version does not know.
func (s *snapshotWriter) extra() error {
	for _, x := range s.t.Extra {
		s.string(x.Key)
		if err := s.json(x.Value); err != nil {
			return err
		}
	}
	return nil
}

// own writes what PyTorch has no key for, if there is anything.
func (s *snapshotWriter) own() error {
	p := s.t.Process
	losses := slices.DeleteFunc(slices.Clone(s.t.Losses), func(l traces.Loss) bool { return found[l.Name] })
	if s.t.Final.Known && p == (traces.Process{}) && len(losses) == 0 {
		return nil
	}
	s.key(tGmemtop)
	s.op(opEmptyDict)
	s.op(opMark)
	if !s.t.Final.Known {
		s.string("no_final_state")
		s.bool(true)
	}
	if p.Host != "" {
		s.string("host")
		s.string(p.Host)
	}
	if len(losses) > 0 {
		s.string("losses")
		s.losses(losses)
	}
	for _, n := range []struct {
		key string
		n   maybe.Int
	}{{"pid", p.PID}, {"rank", p.Rank}, {"world_size", p.WorldSize}} {
		if v, known := n.n.Value(); known {
			s.string(n.key)
			s.int(v)
		}
	}
	s.op(opSetItems)
	return nil
}

// losses writes the losses that reading the file would not find again.
func (s *snapshotWriter) losses(losses []traces.Loss) {
	s.op(opEmptyList)
	s.op(opMark)
	for _, l := range losses {
		s.op(opEmptyList)
		s.op(opMark)
		s.string(l.Name)
		s.int(int64(l.Severity))
		s.int(l.Count)
		s.string(l.Detail)
		s.op(opAppends)
	}
	s.op(opAppends)
}

// boundary is one end of a mark, in the order in which external_annotations has them.
type boundary struct {
	at, time int64 // at never falls within one name: it orders where the clock steps back
	mark     int32
	end      bool
}

// annotations writes the marks as the starts and ends that make them up. Marks of one name on one device
// nest, so each is opened inside longer ones, and an end is written before a start at the same moment.
func (s *snapshotWriter) annotations() error {
	if len(s.t.Marks) == 0 {
		return nil
	}
	type key struct {
		device traces.DeviceID
		name   traces.StringID
	}
	byName := map[key][]int32{}
	for i, m := range s.t.Marks { // in order of start already
		k := key{m.Device, m.Name}
		byName[k] = append(byName[k], int32(i))
	}
	var all []boundary
	for _, k := range sortedKeys(byName, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.name, b.name))
	}) {
		all = append(all, s.boundaries(byName[k])...)
	}
	slices.SortStableFunc(all, func(a, b boundary) int { return cmp.Compare(a.at, b.at) })
	s.key(tExternalAnnotations)
	return s.list(len(all), func(i int) error {
		b := all[i]
		m := s.t.Marks[b.mark]
		s.op(opEmptyDict)
		s.op(opMark)
		s.textItem(tName, m.Name)
		s.key(tStage)
		s.key(map[bool]text{true: tEnd, false: tStart}[b.end])
		s.intItem(tDevice, int64(s.t.Devices[m.Device].Ordinal))
		s.intItem(tTimeUS, s.micros(b.time))
		s.op(opSetItems)
		return nil
	})
}

func sortedKeys[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compare)
	return keys
}

// boundaries returns the ends of the marks of one name on one device in the order that pairs them again.
func (s *snapshotWriter) boundaries(marks []int32) []boundary {
	var out []boundary
	last := int64(math.MinInt64)
	emit := func(i int32, t int64, end bool) {
		last = max(last, t)
		out = append(out, boundary{last, t, i, end})
	}
	// An end without a start comes before a start at the same moment, which it would otherwise close.
	marks = slices.Clone(marks)
	slices.SortStableFunc(marks, func(a, b int32) int {
		x, y := s.t.Marks[a], s.t.Marks[b]
		order := cmp.Compare(markAt(x), markAt(y))
		if order == 0 && (x.Start == traces.NoTime) != (y.Start == traces.NoTime) {
			order = map[bool]int{true: -1, false: 1}[x.Start == traces.NoTime]
		}
		return order
	})
	var open []int32
	closeUntil := func(t int64) {
		for n := len(open); n > 0 && s.t.Marks[open[n-1]].End <= t; n-- {
			emit(open[n-1], s.t.Marks[open[n-1]].End, true)
			open = open[:n-1]
		}
	}
	for _, i := range marks {
		m := s.t.Marks[i]
		switch {
		case m.Start == traces.NoTime: // an end without a start: nothing may be open
			closeUntil(m.End)
			emit(i, m.End, true)
		case m.End == traces.NoTime:
			closeUntil(m.Start)
			emit(i, m.Start, false)
		default:
			closeUntil(m.Start)
			emit(i, m.Start, false)
			open = append(open, i)
		}
	}
	closeUntil(math.MaxInt64)
	return out
}

func markAt(m traces.Mark) int64 {
	if m.Start == traces.NoTime {
		return m.End
	}
	return m.Start
}
