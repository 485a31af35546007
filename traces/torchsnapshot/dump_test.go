package torchsnapshot

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// dump writes a trace as the tables of the golden files, ids resolved.
func dump(t *traces.Trace) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("format %s, kind %s", t.Source.Format, t.Kind())
	if t.Process != (traces.Process{}) {
		p("process %+v", t.Process)
	}
	p("clock epoch %d resolution %d has_time %t", t.Clock.Epoch, t.Clock.Resolution, t.Clock.HasTime)
	for i, d := range t.Devices {
		first, end := t.DeviceEvents(traces.DeviceID(i))
		p("device %s%d events [%d, %d)", d.Kind, d.Ordinal, first, end)
	}
	dev := func(id traces.DeviceID) string {
		return fmt.Sprintf("%s%d", t.Devices[id].Kind, t.Devices[id].Ordinal)
	}
	for i := range t.Events.Len() {
		e := t.Events.At(i)
		p("event %s t %d %s addr 0x%x size %d stream 0x%x%s%s", dev(e.Device), e.Time, e.Action, e.Addr,
			e.Size, t.Streams[e.Stream], dumpStack(t, " frames", e.Stack), dumpDetail(t, t.DetailOf(i)))
	}
	p("final known %t", t.Final.Known)
	for _, s := range t.Final.Segments {
		p("segment %s 0x%x total %d allocated %d active %d requested %d stream 0x%x pool %t%v expandable "+
			"%t small %t%s%s", dev(s.Device),
			s.Address, s.TotalSize, s.AllocatedSize, s.ActiveSize, s.Wanted, t.Streams[s.Stream], s.HasPool,
			s.Pool, s.Expandable, s.Small, dumpStack(t, " frames", s.Stack), dumpText(t, " extra ", s.Extra))
		for _, k := range t.Final.Blocks[s.FirstBlock:s.EndBlock] {
			p("  block 0x%x size %d requested %d %s%s%s", k.Address, k.Size, k.Requested.Or(-1), k.State,
				dumpStack(t, " frames", k.Stack), dumpText(t, " extra ", k.Extra))
		}
	}
	for _, m := range t.Marks {
		p("mark %s kind %d phase %s [%s, %s) %q", dev(m.Device), m.Kind, m.Phase, dumpTime(m.Start),
			dumpTime(m.End), t.Text(m.Name))
	}
	for _, s := range t.Settings {
		p("setting %s = %s", s.Key, s.Value)
	}
	for _, s := range t.Extra {
		p("extra %s = %s", s.Key, s.Value)
	}
	for _, l := range t.Losses {
		p("loss %s %s %d", l.Severity, l.Name, l.Count)
	}
	return b.String()
}

func dumpTime(n int64) string {
	if n == traces.NoTime {
		return "none"
	}
	return fmt.Sprint(n)
}

func dumpText(t *traces.Trace, label string, id traces.StringID) string {
	if id == 0 {
		return ""
	}
	return label + t.Text(id)
}

func dumpStack(t *traces.Trace, label string, id traces.StackID) string {
	if id == traces.NoStack {
		return ""
	}
	var parts []string
	for _, fr := range t.Stacks.At(id) {
		fn, file, line := t.FrameText(fr)
		parts = append(parts, fmt.Sprintf("%s %s:%d%s", fn, file, line, dumpText(t, " ", t.Frames[fr].Extra)))
	}
	return label + " <" + strings.Join(parts, " | ") + ">"
}

func dumpDetail(t *traces.Trace, d traces.Detail) string {
	s := dumpText(t, " action ", d.Action) + dumpText(t, " compile ", d.CompileContext) + dumpText(t,
		" metadata ", d.UserMetadata) +
		dumpText(t, " category ", d.Category)
	if d.HasPool {
		s += fmt.Sprintf(" pool %v", d.Pool)
	}
	return s + dumpStack(t, " forward", d.ForwardStack) + dumpText(t, " extra ", d.Extra)
}

// sameTables fails the test where any table of the two traces differs. The size of the source may.
func sameTables(t *testing.T, want, got *traces.Trace) {
	t.Helper()
	a, b := *want, *got
	a.Source.Bytes, b.Source.Bytes = 0, 0
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		name := va.Type().Field(i).Name
		if !va.Type().Field(i).IsExported() {
			continue
		}
		x, y := va.Field(i), vb.Field(i)
		if x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0 {
			continue
		}
		if !reflect.DeepEqual(x.Interface(), y.Interface()) {
			t.Errorf("%s differs:\n%.2000s\n%.2000s", name, fmt.Sprintf("%+v", x.Interface()),
				fmt.Sprintf("%+v", y.Interface()))
		}
	}
}
