package timeline

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// Icicle returns what is allocated at m as a tree below one root: by stack, outermost frame first and noise
// left out, or, with ByModule, by module path. Each node counts what is below it; bytes that a node has
// itself and no child shows are the difference.
func (d *Device) Icicle(m Moment, by By) *Node {
	a := &d.Allocs
	root := &Node{Largest: NoAlloc}
	byStack := make(map[int64]*Node)
	var order []int64
	for _, id := range d.LiveAt(m, nil) {
		key := d.stackKey(id)
		n := byStack[key]
		if n == nil {
			n = &Node{Largest: id}
			byStack[key] = n
			order = append(order, key)
		}
		n.Bytes += a.Rounded[id]
		n.Blocks += a.Blocks(id)
		if a.larger(id, n.Largest) {
			n.Largest = id
		}
	}
	t := tree{d: d, children: make(map[child]*Node)}
	for _, s := range order {
		t.add(root, d.icicleNames(s, by), byStack[s])
	}
	if u := d.Totals.Unattributed; u > 0 {
		t.add(root, []string{unattributedName}, &Node{Bytes: u, Largest: NoAlloc})
	}
	root.sort()
	return root
}

// tree adds paths of names below a root.
type tree struct {
	d        *Device
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
		if n.Largest == NoAlloc || leaf.Largest != NoAlloc && t.d.Allocs.larger(leaf.Largest, n.Largest) {
			n.Largest = leaf.Largest
		}
		if i == len(names) {
			return
		}
		key := child{n, names[i]}
		next := t.children[key]
		if next == nil {
			next = &Node{Name: names[i], Largest: NoAlloc}
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

// icicleNames returns the names along a stack, outermost first.
func (d *Device) icicleNames(key int64, by By) []string {
	s := traces.StackID(key)
	if by == ByModule {
		if m := d.Module(s); m != "" {
			return strings.Split(m, "/")
		}
		return []string{"outside of modules"}
	}
	frames, f := d.tl.places.Stacks.At(s), kinds.Of(d.tl)
	names := make([]string, 0, len(frames))
	within := "" // the module above, whose path begins those of its own
	for i := len(frames) - 1; i >= 0; i-- {
		if f.frames[frames[i]]&(frameNoise|framePlumbing|frameWrapper|frameModuleCall) == 0 {
			label := d.tl.frameLabel(frames[i])
			if path, ok := strings.CutPrefix(label, modulePrefix); ok {
				label, within = strings.TrimPrefix(path, within), path+"."
			}
			names = append(names, label)
		}
	}
	if len(names) == 0 {
		return []string{d.stackName(key)}
	}
	return names
}
