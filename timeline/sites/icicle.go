package sites

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
)

// Icicle returns the allocations at m as a tree below one root: by stack, outermost frame first and without
// noise, or, with ByModule, by module path. Each node counts everything below it; a node's own bytes are the
// difference to the sum of its children.
func Icicle(d *timeline.Device, m timeline.Moment, by By) *Node { return grow(d, m, by, false) }

// CategoryIcicle is Icicle by stack, with the categories between the root and the stacks. A stack ends with
// its innermost Python frame if it has one.
func CategoryIcicle(d *timeline.Device, m timeline.Moment) *Node { return grow(d, m, ByStack, true) }

// leaf is the key of allocations that end in the same node: their stack, and their category if the tree has
// categories.
type leaf struct {
	stack    int64
	category timeline.Category
}

func grow(d *timeline.Device, m timeline.Moment, by By, categories bool) *Node {
	a := &d.Allocs
	root := &Node{Largest: timeline.NoAlloc}
	byStack := make(map[leaf]*Node)
	var order []leaf
	for _, id := range d.LiveAt(m, nil) {
		key := leaf{stack: stackKey(d, id)}
		if categories {
			key.category = a.Category[id]
		}
		n := byStack[key]
		if n == nil {
			n = &Node{Largest: id}
			byStack[key] = n
			order = append(order, key)
		}
		n.Bytes += a.Rounded[id]
		n.Blocks += a.Blocks(id)
		if larger(a, id, n.Largest) {
			n.Largest = id
		}
	}
	t := tree{d: d, children: make(map[child]*Node)}
	for _, s := range order {
		names := icicleNames(d, s.stack, by, categories)
		if categories {
			names = append([]string{s.category.String()}, names...)
		}
		t.add(root, names, byStack[s])
	}
	if u := d.Totals.Unattributed; u > 0 {
		t.add(root, []string{unattributedName}, &Node{Bytes: u, Largest: timeline.NoAlloc})
	}
	root.sort()
	return root
}

// tree adds paths of names below a root.
type tree struct {
	d        *timeline.Device
	children map[child]*Node
}

// child is the key of a node below another.
type child struct {
	parent *Node
	name   string
}

// add counts leaf into every node along names.
func (t *tree) add(root *Node, names []string, leaf *Node) {
	n := root
	for i := 0; ; i++ {
		n.Bytes += leaf.Bytes
		n.Blocks += leaf.Blocks
		if n.Largest == timeline.NoAlloc || leaf.Largest != timeline.NoAlloc &&
			larger(&t.d.Allocs, leaf.Largest, n.Largest) {
			n.Largest = leaf.Largest
		}
		if i == len(names) {
			return
		}
		key := child{n, names[i]}
		next := t.children[key]
		if next == nil {
			next = &Node{Name: names[i], Largest: timeline.NoAlloc}
			t.children[key] = next
			n.Children = append(n.Children, next)
		}
		n = next
	}
}

func (n *Node) sort() {
	slices.SortStableFunc(n.Children, func(x, y *Node) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), strings.Compare(x.Name, y.Name))
	})
	for _, c := range n.Children {
		c.sort()
	}
}

// icicleNames returns the names along a stack, outermost first. python leaves native frames out of a stack
// that has frames in Python.
func icicleNames(d *timeline.Device, key int64, by By, python bool) []string {
	s := traces.StackID(key)
	if by == ByModule {
		if m := Module(d, s); m != "" {
			return strings.Split(m, "/")
		}
		return []string{"outside of modules"}
	}
	stack, f := d.Timeline().Places().Stacks.At(s), d.Timeline().Kinds()
	names := make([]string, 0, len(stack))
	within := "" // the enclosing module, whose path is a prefix of this one's
	const left = frames.KindNoise | frames.KindPlumbing | frames.KindWrapper | frames.KindModuleCall
	outermost := slices.IndexFunc(stack, func(id traces.FrameID) bool {
		return f.Frames[id].Has(frames.KindPython)
	})
	for i := len(stack) - 1; i >= 0; i-- {
		skip := outermost >= 0 && (python || i > outermost) && native(d.Timeline(), f, stack[i])
		if f.Frames[stack[i]]&left == 0 && !skip {
			label := frameLabel(d.Timeline(), stack[i])
			if path, ok := strings.CutPrefix(label, frames.ModulePrefix); ok {
				label, within = strings.TrimPrefix(path, within), path+"."
			}
			names = append(names, label)
		}
	}
	if len(names) == 0 {
		return []string{stackName(d, key)}
	}
	return names
}

// native reports whether a frame is C or C++ code and no operator. Where it calls Python, it belongs to the
// interpreter or to a launcher such as Ray. Frames without a file are ranges that a profiler names.
func native(t *timeline.Timeline, f *frames.Kinds, id traces.FrameID) bool {
	const named = frames.KindPython | frames.KindOp | frames.KindBackwardNode
	_, file, _ := t.Places().FrameText(id)
	return file != "" && !f.Frames[id].Has(named)
}

// Node is a node of an icicle: bytes allocated below a prefix of stacks (outermost frame first) or of module
// paths.
type Node struct {
	Name     string
	Bytes    int64
	Blocks   int
	Largest  timeline.AllocID
	Children []*Node // descending bytes
}
