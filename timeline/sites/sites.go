package sites

import (
	"path"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
)

// Where does an allocation come from, in a person's terms? A stack has tens of frames, one of which is the
// line that a user would change. Stacks that share this line are one call site, whatever PyTorch does below
// it: the layers of a model are one row, and many by module. Every stack's site is determined once, from the
// kinds of its frames (see frames.go), so that all sentences, tables and queries agree on what belongs
// together: O(frames of all stacks), four bytes a stack.
//
// A line can be too coarse a key in two cases. A line in an installed package serves many callers: there the
// nearest frame of the user's own code tells them apart. And one line may run a whole step: the backward pass
// and the optimizer are sites of their own. Names mention this only if they must, judged on the whole trace
// and not on the rows in view, so that a site has the same name at every moment.
//
// Rejected: merging by name (two files may be called model.py), and distinguishing rows by whichever frame
// differs between them (the same blocks would change names as the cursor moves, and totals would differ from
// table to table).

// Name returns the most informative place in a stack, as "func file.py:123": the innermost Python frame
// outside PyTorch, the standard library and packages that merely run others' code. Failing that, it is the
// innermost Python frame or node of the autograd graph, then the innermost frame that is not noise; "" for
// NoStack. Files of one name in different folders are printed with as many folders as it takes to tell them
// apart.
func Name(d *timeline.Device, s traces.StackID) string {
	return Of(d.Timeline()).Name(s)
}

// Frame returns the index of the frame that Name names, -1 for none.
func Frame(d *timeline.Device, s traces.StackID) int {
	return siteFrame(d.Timeline(), d.Timeline().Kinds(), d.Timeline().Places().Stacks.At(s))
}

// sameSite reports whether two stacks have the same site, or neither has one.
func sameSite(d *timeline.Device, s, t traces.StackID) bool {
	f := Of(d.Timeline())
	return f.Number(s) == f.Number(t)
}

// place identifies a frame by its text: frames that look alike are one place.
type place struct {
	fn, file string
	line     int
}

// label returns "func file.py:123" without the parts that the place lacks, and with the last few folders of
// the file.
func (p place) label(folders int) string {
	file := frames.PathEnd(p.file, folders+1)
	if file == "" || file == "??" {
		return p.fn
	}
	if p.line > 0 {
		file += ":" + strconv.Itoa(p.line)
	}
	if p.fn == "" {
		return file
	}
	return p.fn + " " + file
}

// site is the key of a call site: its place, the calling place in the user's own code if it lies in an
// installed package, and whether it belongs to the backward pass or the optimizer. torch.profiler records
// where functions begin, not which line calls, so a whole training step would be one site without the phase.
type site struct {
	place, caller int32 // in siteNamer.texts; no caller is -1
	phase         traces.Phase
}

// siteNamer numbers places and sites in the order in which they appear in stacks.
type siteNamer struct {
	t      *timeline.Timeline
	f      *frames.Kinds
	places map[place]int32
	texts  []place
	sites  map[site]int32
	list   []site
}

// Table has the sites and modules of a trace's stacks.
type Table struct {
	kinds   *frames.Kinds
	sites   []int32  // by StackID: the place in Names, -1 for none
	Names   []string // by number, each once
	modules []string // by StackID
}

// Of returns the sites of a timeline's stacks.
func Of(t *timeline.Timeline) *Table { return named.Of(t) }

var named = timeline.NewMemo(func(t *timeline.Timeline) *Table {
	f := &Table{kinds: t.Kinds()}
	nameSites(t, f)
	f.modules = make([]string, len(f.sites))
	for i := range f.modules {
		f.modules[i] = moduleOf(t, f.kinds, traces.StackID(i))
	}
	return f
})

// Number returns the number of a stack's site, -1 for none.
func (f *Table) Number(s traces.StackID) int32 {
	if s < 0 || int(s) >= len(f.sites) {
		return -1
	}
	return f.sites[s]
}

// Name returns the name of a stack's site, "" for none.
func (f *Table) Name(s traces.StackID) string {
	if i := f.Number(s); i >= 0 {
		return f.Names[i]
	}
	return ""
}

// nameSites finds the site of every stack and gives each site a name of its own. A name mentions caller and
// phase only if another site has the same place.
func nameSites(t *timeline.Timeline, f *Table) {
	n := siteNamer{t: t, f: f.kinds, places: make(map[place]int32), sites: make(map[site]int32)}
	f.sites = make([]int32, len(f.kinds.Stacks))
	for i := range f.sites {
		f.sites[i] = n.number(traces.StackID(i))
	}
	labels := distinctLabels(n.texts)
	callers, phases := make([]int32, len(labels)),
		make([]uint8, len(labels)) // of each place: the one caller, -2 for several; a bit set
	for i := range callers {
		callers[i] = -1
	}
	for _, x := range n.list {
		phases[x.place] |= 1 << x.phase
		switch callers[x.place] {
		case -1, x.caller:
			callers[x.place] = x.caller
		default:
			callers[x.place] = -2
		}
	}
	for _, x := range n.list {
		name := labels[x.place]
		if callers[x.place] == -2 && x.caller >= 0 {
			name += " < " + labels[x.caller]
		}
		if phases[x.place]&(phases[x.place]-1) != 0 {
			name += siteSuffix[x.phase]
		}
		f.Names = append(f.Names, name)
	}
}

// number returns the number of a stack's site, -1 for none.
func (n *siteNamer) number(s traces.StackID) int32 {
	if made := n.t.Made(s); made != nil {
		x := site{place: n.text(place{fn: made.Label}), caller: -1}
		if made.Phase != traces.PhaseForward {
			x.phase = made.Phase
		}
		return n.add(x)
	}
	stack := n.t.Trace.Stacks.At(s)
	at := siteFrame(n.t, n.f, stack)
	if at < 0 {
		return -1
	}
	x := site{place: n.place(stack[at]), caller: -1}
	if n.f.Frames[stack[at]]&frames.KindPackage != 0 {
		for _, id := range stack[at+1:] {
			if k := n.f.Frames[id]; isUsers(k) && k&frames.KindPackage == 0 {
				x.caller = n.place(id)
				break
			}
		}
	}
	if p := frames.PhaseOf(n.f.Stacks[s]); p != traces.PhaseForward {
		x.phase = p
	}
	return n.add(x)
}

// add returns the number of a site.
func (n *siteNamer) add(x site) int32 {
	i, known := n.sites[x]
	if !known {
		i = int32(len(n.list))
		n.sites[x] = i
		n.list = append(n.list, x)
	}
	return i
}

func (n *siteNamer) place(id traces.FrameID) int32 { return n.text(placeOf(n.t, id)) }

// text returns the number of a place.
func (n *siteNamer) text(p place) int32 {
	i, known := n.places[p]
	if !known {
		i = int32(len(n.texts))
		n.places[p] = i
		n.texts = append(n.texts, p)
	}
	return i
}

var siteSuffix = map[traces.Phase]string{
	traces.PhaseBackward:  " in backward",
	traces.PhaseOptimizer: " in the optimizer",
}

// distinctLabels labels places with as few folders as tell them apart; only those that share a label get
// more.
func distinctLabels(places []place) []string {
	names := make([]string, len(places))
	todo := make([]int, len(places))
	for i := range todo {
		todo[i] = i
	}
	for folders := 0; len(todo) > 0; folders++ {
		users := make(map[string]int)
		for _, i := range todo {
			names[i] = places[i].label(folders)
			users[names[i]]++
		}
		more := todo[:0]
		for _, i := range todo {
			file := places[i].file
			longer := frames.PathEnd(file, folders+1) != frames.PathEnd(file, folders+2)
			if users[names[i]] > 1 && longer {
				more = append(more, i)
			}
		}
		todo = more
	}
	return names
}

// isUsers reports whether a Python frame is the user's, or in a package that does more than run others' code.
func isUsers(k frames.Kind) bool {
	return k&frames.KindPython != 0 && k&(frames.KindLibrary|frames.KindWrapper|frames.KindModule) == 0
}

// siteFrame returns the index of the frame that represents a stack, -1 for none.
func siteFrame(t *timeline.Timeline, f *frames.Kinds, stack []traces.FrameID) int {
	tiers := [...]func(k frames.Kind) bool{
		isUsers,
		func(k frames.Kind) bool {
			return k&(frames.KindPython|frames.KindOp) != 0 &&
				k&(frames.KindWrapper|frames.KindModuleCall) == 0
		},
		func(k frames.Kind) bool { return k&(frames.KindNoise|frames.KindPlumbing) == 0 },
		func(k frames.Kind) bool { return k&frames.KindNoise == 0 },
	}
	for _, tells := range tiers {
		for i, id := range stack {
			if tells(f.Frames[id]) && frameLabel(t, id) != "" {
				return i
			}
		}
	}
	return -1
}

// placeOf returns a frame's text, C++ functions by their short names.
func placeOf(t *timeline.Timeline, id traces.FrameID) place {
	fn, file, line := t.Places().FrameText(id)
	if t.Kinds().Frames[id]&frames.KindPython == 0 {
		fn = cppName(fn)
	}
	return place{fn, strings.ReplaceAll(file, "\\", "/"), line}
}

// frameLabel returns a frame as "func file.py:123", without the parts that the frame lacks.
func frameLabel(t *timeline.Timeline, id traces.FrameID) string { return placeOf(t, id).label(0) }

// cppName shortens the name of a C++ function: it drops arguments, result and PyTorch's long namespaces. A
// name with spaces but no arguments is a named range, such as those of torch.compile ("Torch-Compiled Region:
// 0/0", "## Call CompiledFxGraph f5zq ##"), and is kept whole.
func cppName(fn string) string {
	s := strings.ReplaceAll(fn, "(anonymous namespace)::", "")
	if graph, ok := strings.CutPrefix(s, "## Call CompiledFxGraph "); ok {
		graph = strings.TrimSuffix(graph, " ##")
		return "compiled graph " + graph[:min(8, len(graph))]
	}
	if i := strings.IndexByte(s, '('); i > 0 {
		s = s[:i]
		if i := strings.LastIndexByte(s, ' '); i >= 0 && !strings.Contains(s[i:], ">") &&
			!strings.HasSuffix(s, "operator") {
			s = s[i+1:]
		}
	}
	s = strings.TrimPrefix(strings.TrimPrefix(s, "torch::autograd::"), "generated::")
	return strings.TrimSuffix(s, "::apply")
}

// Module returns the module path that a stack shows, outermost first and joined by "/", "" if it shows none.
// torch.profiler's module frames give class names (ResNet_0/Conv2d_1). PyTorch's allocator records no
// classes: there the path is the chain of forward functions by file, with the line of each except the
// built-in modules (model:40/block:17/linear), which distinguishes the layers of one file and never claims a
// class name.
func Module(d *timeline.Device, s traces.StackID) string {
	return Of(d.Timeline()).module(s)
}

// module returns the module path of a stack, "" for none.
func (f *Table) module(s traces.StackID) string {
	if s < 0 || int(s) >= len(f.modules) {
		return ""
	}
	return f.modules[s]
}

func moduleOf(t *timeline.Timeline, f *frames.Kinds, s traces.StackID) string {
	if made := t.Made(s); made != nil {
		return made.Module
	}
	stack := t.Trace.Stacks.At(s)
	want := frames.KindForward
	for _, id := range stack {
		if f.Frames[id]&frames.KindModule != 0 {
			want = frames.KindModule
			break
		}
	}
	var parts []string
	for i := len(stack) - 1; i >= 0; i-- {
		if k := f.Frames[stack[i]]; k&want != 0 {
			parts = append(parts, modulePart(t, stack[i], k))
		}
	}
	return strings.Join(parts, "/")
}

func modulePart(t *timeline.Timeline, id traces.FrameID, k frames.Kind) string {
	fn, file, line := t.Trace.FrameText(id)
	if k&frames.KindModule != 0 {
		return strings.TrimPrefix(fn, frames.ModulePrefix)
	}
	stem := path.Base(strings.ReplaceAll(file, "\\", "/"))
	stem = strings.TrimSuffix(stem, path.Ext(stem))
	if k&frames.KindTorch != 0 || line <= 0 {
		return stem
	}
	return stem + ":" + strconv.Itoa(line)
}

// From says where one allocation comes from: its call site and, for an op in a layer, which layer; "" if
// nothing is known.
func From(d *timeline.Device, a timeline.AllocID) string {
	s := d.Origin(a)
	if made := d.Timeline().Made(s); s != traces.NoStack && made != nil {
		return made.Exact
	}
	return Name(d, s)
}
