package pipedream

import (
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// From the graph to one iteration. First every layer gets its tensor: a new one, or that of the input which
// it changes in place or views. A tensor is one buffer and, in the backward pass, one gradient, however many
// layers share it. Then a walk over all ops, forward and backward, notes the last one that touches each
// tensor; a second walk emits the events and frees each tensor after its last op. Everything is linear in
// layers and edges.

// tensor is a layer's output, shared by the layers that change or view it.
type tensor struct {
	buffer, grad buffer
	maker        int  // the layer that allocates it, -1 for the input data
	hasGrad      bool // the input data has none
	unread       bool // no layer reads it as one of its layers left it, so the loss does
	last         int  // index of the last op that touches it

	pending int  // while assigning: readers that have not run
	saved   bool // while assigning: the backward pass needs it as it is
}

// buffer is a piece of memory that ops touch.
type buffer struct {
	name, category string
	size           int64
	addr           uint64
	live           bool
}

// step is one op of the iteration: a layer's forward or backward pass, or the loss.
type step struct {
	layer    int // -1 for the loss
	backward bool
}

// model builds the trace.
type model struct {
	b       *traces.Builder
	g       *graph
	order   []int
	tensors []tensor
	of      []int // tensor of each layer, -1 for a layer without one
	aliased []bool
	weights []buffer // of each layer
	wgrads  []buffer
	seen    []int // for inputs: the last layer that a tensor was listed for, plus one
	list    []int
}

func newModel(g *graph, order []int) *model {
	n := len(g.layers)
	m := &model{b: traces.NewBuilder(), g: g, order: order, of: make([]int, n), aliased: make([]bool, n),
		weights: make([]buffer, n), wgrads: make([]buffer, n)}
	m.assign()
	m.seen = make([]int, len(m.tensors))
	return m
}

// kind is the part of a layer's description before its arguments.
func (l *layer) kind() string {
	k, _, _ := strings.Cut(l.desc, "(")
	return strings.TrimSpace(k)
}

func (l *layer) isInput() bool   { return len(l.in) == 0 && strings.HasPrefix(l.kind(), "Input") }
func (l *layer) isHost() bool    { return l.kind() == "Size" }
func (l *layer) inPlace() bool   { return strings.Contains(l.desc, "inplace") }
func (l *layer) isView() bool    { return l.kind() == "View" || l.kind() == "Flatten" }
func (l *layer) isDropout() bool { return strings.HasPrefix(l.kind(), "Dropout") }

// saved says whether the backward pass needs a layer's input and output again.
func (l *layer) saved() (input, output bool) {
	switch k := l.kind(); {
	case l.isView(), l.isDropout(), l.isHost(), l.isInput(), k == "Add", k == "Concat":
		return false, false
	case strings.HasPrefix(k, "ReLU"):
		return false, true
	case strings.HasPrefix(k, "Conv"), k == "Linear", strings.HasPrefix(k, "BatchNorm"),
		strings.Contains(k, "Pool"):
		return true, false
	}
	return !l.inPlace(), true
}

// assign gives every layer its tensor and weights.
func (m *model) assign() {
	for _, i := range m.order {
		l := &m.g.layers[i]
		title := l.name + " " + l.kind()
		m.weights[i] = buffer{name: title + " weight", category: "parameter", size: l.parameters}
		m.wgrads[i] = buffer{name: title + " weight gradient", category: "gradient", size: l.parameters}
		switch {
		case l.isHost():
			m.of[i] = -1
			m.b.Lose("host_values", traces.Info, 1, "layers that yield a number on the host have no buffer")
		case l.isView() || l.inPlace():
			m.of[i] = m.shared(l)
			m.aliased[i] = m.of[i] >= 0
		default:
			m.of[i] = -1
		}
		if m.of[i] < 0 && !l.isHost() {
			m.of[i] = m.newTensor(i, l, title)
		}
		m.ran(i, l)
	}
	for i := range m.g.layers {
		reads := func(o int) bool { return m.of[o] >= 0 }
		if t := m.of[i]; t >= 0 && !slices.ContainsFunc(m.g.layers[i].out, reads) {
			m.tensors[t].unread = true
		}
	}
}

func (m *model) newTensor(i int, l *layer, title string) int {
	if l.isDropout() {
		m.b.Lose("dropout_masks", traces.Info, 1,
			"the file does not say how large the masks of Dropout layers are")
	}
	t := tensor{maker: i, hasGrad: true, last: -1}
	t.buffer = buffer{name: title, category: "activation", size: l.activation}
	t.grad = buffer{name: title + " gradient", category: "gradient", size: l.activation}
	if l.isInput() {
		t.buffer.category, t.maker, t.hasGrad = "input", -1, false
	}
	m.tensors = append(m.tensors, t)
	return len(m.tensors) - 1
}

// shared returns the tensor that a view or an in-place layer takes over, -1 for none. A view can take over
// any; a layer that changes its input only one that no later layer reads and whose value the backward pass
// does not need.
func (m *model) shared(l *layer) int {
	for _, in := range l.in {
		t := m.of[in]
		if t < 0 {
			continue
		}
		if l.isView() {
			return t
		}
		own := 0
		for _, other := range l.in {
			if m.of[other] == t {
				own++
			}
		}
		if x := &m.tensors[t]; x.hasGrad && !x.saved && x.pending == own {
			return t
		}
	}
	return -1
}

// ran notes the effect of layer i, the next in order, on the tensors that it reads and makes.
func (m *model) ran(i int, l *layer) {
	input, output := l.saved()
	for _, in := range l.in {
		if t := m.of[in]; t >= 0 {
			x := &m.tensors[t]
			x.pending--
			x.saved = x.saved || input
		}
	}
	if t := m.of[i]; t >= 0 {
		x := &m.tensors[t]
		x.pending += len(l.out)
		x.saved = x.saved || output
	}
}

// inputs returns the tensors that layer i reads, each once. The next call reuses the slice.
func (m *model) inputs(i int) []int {
	m.list = m.list[:0]
	for _, in := range m.g.layers[i].in {
		if t := m.of[in]; t >= 0 && m.seen[t] != i+1 {
			m.seen[t] = i + 1
			m.list = append(m.list, t)
		}
	}
	for _, t := range m.list {
		m.seen[t] = 0
	}
	return m.list
}

// steps lists the iteration's ops.
func (m *model) steps() []step {
	var forward, all []step
	for _, i := range m.order {
		if l := &m.g.layers[i]; !l.isInput() && !l.isHost() {
			forward = append(forward, step{layer: i})
		}
	}
	all = append(all, forward...)
	all = append(all, step{layer: -1, backward: true})
	for i := len(forward) - 1; i >= 0; i-- {
		all = append(all, step{layer: forward[i].layer, backward: true})
	}
	return all
}

// touched calls f for each tensor whose buffer the op touches.
func (m *model) touched(s step, f func(t int)) {
	switch {
	case s.layer < 0:
		for t := range m.tensors {
			if m.tensors[t].unread && m.tensors[t].hasGrad {
				f(t)
			}
		}
	case !s.backward:
		for _, t := range m.inputs(s.layer) {
			f(t)
		}
		f(m.of[s.layer])
	default:
		input, output := m.g.layers[s.layer].saved()
		if input {
			for _, t := range m.inputs(s.layer) {
				f(t)
			}
		}
		if output {
			f(m.of[s.layer])
		}
	}
}
