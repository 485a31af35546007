package timeline

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
)

// Where does a block come from if its allocation was recorded without a stack? A step captured op by op has
// no stacks, but it knows more: which op wrote each block first, and in which module that op ran. Such a
// block gets a stack made of these: the op innermost, then the modules around it. Blocks that no op of the
// recording made (parameters, kept gradients) get the module of the op that touches them first, and without
// any ops a block gets the name that the source gives it. Sites, modules, icicles and causes then work as
// they do for recorded stacks.
//
// These stacks follow the recorded ones in a copy of the trace's tables. The recorded column, Allocs.Stack,
// stays as it was read: categories, phases and planners use recorded stacks only.

// origins are the stacks made from ops and names.
type origins struct {
	of    []traces.StackID // by row of the trace's events; NoStack if it has none
	first traces.StackID   // the first that was not recorded
	sites []Made           // by StackID from first on
}

// Made is a stack made of an op and its modules: its exact name, and its name as a site, which layers that
// differ only in their number share.
type Made struct {
	Exact, Label, Module string
	Phase                traces.Phase
}

// Origin returns the stack that says where an allocation comes from: the recorded one, else one made from its
// op or its name; NoStack if there is neither. Its frames are in the tables of Places.
func (d *Device) Origin(a AllocID) traces.StackID {
	s := d.Allocs.Stack[a]
	if s != traces.NoStack || d.tl.origins.of == nil || d.Allocs.Start[a] < 0 {
		return s
	}
	return d.tl.origins.of[d.first+int(d.Allocs.Start[a])]
}

// Places returns the trace whose tables hold the frames of every stack that Origin returns: Trace itself if
// all are recorded.
func (t *Timeline) Places() *traces.Trace {
	if t.places == nil {
		return t.Trace // a selection of devices, made by hand
	}
	return t.places
}

// Made describes a stack that was made of an op and its modules, nil for a recorded one.
func (t *Timeline) Made(s traces.StackID) *Made {
	if t.Recorded(s) {
		return nil
	}
	return &t.origins.sites[s-t.origins.first]
}

// Recorded reports whether a stack was recorded rather than made of an op and its modules.
func (t *Timeline) Recorded(s traces.StackID) bool { return t.origins.of == nil || s < t.origins.first }

// place finds the origins of all allocations without a stack: one walk over events and accesses.
func (t *Timeline) place() {
	t.places = t.Trace
	m := originMaker{tr: t.Trace, ids: map[originKey]traces.StackID{}, frames: map[string]traces.FrameID{}}
	for d := range t.Trace.Devices {
		m.walk(traces.DeviceID(d))
	}
	if m.of != nil {
		t.places, t.origins = &m.out, m.origins
	}
}

// originKey identifies an origin: blocks with equal keys share it.
type originKey struct {
	leaf, module string
	phase        traces.Phase
}

type originMaker struct {
	origins
	tr     *traces.Trace
	out    traces.Trace // tr with the new stacks, once there are any
	ids    map[originKey]traces.StackID
	frames map[string]traces.FrameID
}

// begin copies the tables that the new stacks need, when the first is made.
func (m *originMaker) begin() {
	if m.of != nil {
		return
	}
	m.out = *m.tr
	m.first = traces.StackID(m.tr.Stacks.Len())
	m.out.Stacks.Offsets = append(make([]int32, 0, m.first+1), m.tr.Stacks.Offsets...)
	if m.first == 0 {
		m.out.Stacks.Offsets = []int32{0}
	}
	m.out.Stacks.IDs = slices.Clone(m.tr.Stacks.IDs)
	m.out.Frames = slices.Clone(m.tr.Frames)
	m.out.Strings = slices.Clone(m.tr.Strings)
	m.of = make([]traces.StackID, m.tr.Events.Len())
	for i := range m.of {
		m.of[i] = traces.NoStack
	}
}

// walk follows a device's blocks by their addresses: an allocation's origin is decided by the first access
// before its address is allocated again, and until then by its name.
func (m *originMaker) walk(device traces.DeviceID) {
	ev := &m.tr.Events
	left := m.accesses(device)
	waiting := map[uint64]int{} // by address: the row of its allocation that nothing has touched yet
	touch := func(row int) {
		for ; len(left) > 0 && int(m.tr.Accesses[left[0]].Event) <= row; left = left[1:] {
			x := &m.tr.Accesses[left[0]]
			if i, ok := waiting[x.Addr]; ok {
				m.touched(i, x)
				delete(waiting, x.Addr)
			}
		}
	}
	first, end := m.tr.DeviceEvents(device)
	for row := first; row < end; row++ {
		touch(row)
		if ev.Action[row] != traces.Alloc || ev.Stack[row] != traces.NoStack {
			continue
		}
		if det := m.tr.DetailOf(row); det.UserMetadata != 0 || det.Op != 0 {
			m.named(row, cmp.Or(m.tr.Text(det.UserMetadata), m.tr.Text(det.Op)), det.Category != 0)
		}
		if len(left) > 0 {
			waiting[ev.Addr[row]] = row
		}
	}
	touch(ev.Len())
}

// named gives the allocation of a row the source's own name. For a tensor with a category that is the name of
// a parameter within its module.
func (m *originMaker) named(row int, name string, tensor bool) {
	if i := strings.LastIndexByte(name, '.'); tensor && i > 0 {
		m.set(row, name[i+1:], name[:i], traces.PhaseUnknown)
		m.rename(row, name)
		return
	}
	m.set(row, bufferLabel(name), "", traces.PhaseUnknown)
}

// rename names the site of a row after a path.
func (m *originMaker) rename(row int, path string) {
	x := &m.sites[m.of[row]-m.first]
	x.Exact, x.Label = path, anyLayer(path)
}

// accesses returns the rows of a device's accesses by op, in order.
func (m *originMaker) accesses(device traces.DeviceID) []int32 {
	if len(m.tr.Ops) == 0 {
		return nil
	}
	return accessRows(m.tr, func(x *traces.Access) bool { return x.Device == device && x.Op != traces.NoOp })
}

// touched decides the origin of the allocation of a row by its first access.
func (m *originMaker) touched(row int, x *traces.Access) {
	op := &m.tr.Ops[x.Op]
	name, module := m.tr.Text(op.Name), m.tr.Text(op.Module)
	det := m.tr.DetailOf(row)
	switch {
	case det.UserMetadata != 0: // the source names the block itself
	case op.Stack != traces.NoStack:
		m.begin()
		m.of[row] = op.Stack
	case x.Mode == traces.Write && name != "":
		m.set(row, name, module, max(op.Phase, traces.PhaseForward))
	default:
		kept := "" // by an earlier step, or made outside the recording
		if cat, _ := ParseCategory(m.tr.Text(det.Category)); cat != Unknown {
			kept = cat.Words()
		}
		m.set(row, kept, module, traces.PhaseUnknown)
	}
}

// set gives the allocation of a row the stack of a leaf within a module; both empty give none. A phase says
// that the leaf is an op, which made the block.
func (m *originMaker) set(row int, leaf, module string, phase traces.Phase) {
	if leaf == "" && module == "" {
		return
	}
	m.begin()
	key := originKey{leaf, module, phase}
	id, ok := m.ids[key]
	if !ok {
		id = m.stack(leaf, module)
		m.ids[key] = id
		m.sites = append(m.sites, Made{
			Exact: originLabel(key, module), Label: originLabel(key, anyLayer(module)),
			Module: strings.ReplaceAll(module, ".", "/"), Phase: phase,
		})
	}
	m.of[row] = id
}

// stack adds the frames of a leaf within a module.
func (m *originMaker) stack(leaf, module string) traces.StackID {
	s := &m.out.Stacks
	if leaf != "" {
		s.IDs = append(s.IDs, m.frame(leaf))
	}
	for end := len(module); end > 0; end = strings.LastIndexByte(module[:end], '.') {
		s.IDs = append(s.IDs, m.frame(frames.ModulePrefix+module[:end]))
	}
	s.Offsets = append(s.Offsets, int32(len(s.IDs)))
	return m.first + traces.StackID(len(m.sites))
}

// originLabel names an origin within a module.
func originLabel(k originKey, module string) string {
	leaf := strings.TrimPrefix(k.leaf, "aten::")
	switch {
	case leaf == "" || module == "":
		return leaf + module
	case strings.Trim(module, "*0123456789") == "": // of a Sequential
		module = "layer " + module
	}
	switch {
	case k.phase == traces.PhaseUnknown:
		return leaf + " of " + module
	}
	return leaf + " " + module
}

func (m *originMaker) frame(fn string) traces.FrameID {
	id, ok := m.frames[fn]
	if !ok {
		id = traces.FrameID(len(m.out.Frames))
		m.frames[fn] = id
		m.out.Frames = append(m.out.Frames, traces.Frame{Func: traces.StringID(len(m.out.Strings))})
		m.out.Strings = append(m.out.Strings, fn)
	}
	return id
}

// anyLayer writes the numbers in a module's path as *, so that the layers of a model are one site:
// blocks.*.up.
func anyLayer(module string) string {
	parts := strings.Split(module, ".")
	for i, p := range parts {
		if p != "" && strings.Trim(p, "0123456789") == "" {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, ".")
}

// bufferLabel turns a name that is only a number into a word.
func bufferLabel(name string) string {
	if strings.Trim(name, "0123456789") == "" {
		return "buffer " + name
	}
	return name
}
