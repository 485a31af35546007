package capture

import (
	"errors"
	"slices"

	"github.com/gmemtop/gmemtop/traces"
)

// builderRows lets a joiner write to a builder.
type builderRows struct{ *traces.Builder }

func (b builderRows) Device(d traces.Device) traces.DeviceID {
	known := len(b.T.Devices)
	id := b.Builder.Device(d.Kind, d.Ordinal)
	if len(b.T.Devices) > known {
		b.T.Devices[id] = d
	}
	return id
}

func (b builderRows) Op(o traces.Op) traces.OpID {
	b.T.Ops = append(b.T.Ops, o)
	return traces.OpID(len(b.T.Ops) - 1)
}

func (b builderRows) Access(a traces.Access) {
	a.Event = int32(b.T.Events.Len())
	b.T.Accesses = append(b.T.Accesses, a)
}

func (b builderRows) Mark(m traces.Mark) { b.T.Marks = append(b.T.Marks, m) }

// Join stitches windows, oldest first, into one trace of one process: what a recording of them must hold.
func Join(windows []Window) (*traces.Trace, error) {
	if len(windows) == 0 {
		return nil, errors.New("no window was captured yet")
	}
	b := traces.NewBuilder()
	first := windows[0].Trace
	b.T.Source, b.T.Process, b.T.Clock = first.Source, first.Process, first.Clock
	b.T.Settings, b.T.Extra = slices.Clone(first.Settings), slices.Clone(first.Extra)
	j := newJoiner(builderRows{b}, first.Clock.Epoch)
	for _, w := range windows {
		j.add(w)
	}
	b.T.Final = j.final
	return b.Finish(), nil
}
