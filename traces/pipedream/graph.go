package pipedream

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// layer is one node of the profile's graph.
type layer struct {
	name, desc        string
	number            int // of nodeN; orders layers that could run at the same time
	line              int
	forward, backward int64 // nanoseconds
	activation        int64 // bytes of its output
	parameters        int64 // bytes of its weights
	in, out           []int // layers by index
}

// graph is the graph of the file.
type graph struct {
	layers []layer
	byName map[string]int
	edges  map[[2]int]bool
	total  int64
}

const (
	maxLine   = 1 << 20
	maxLayers = 1 << 20
	maxBytes  = 1 << 50
	maxMillis = 1e6     // of one pass through one layer
	maxTotal  = 1 << 58 // bytes of all tensors and weights with their gradients
)

// readGraph reads lines "nodeN -- description -- name=value, ..." and, indented, "nodeA -- nodeB" for an
// edge. The lines may come in any order. After an error the graph holds the lines before it.
func readGraph(ctx context.Context, r io.Reader, progress func(int64)) (*graph, error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	g := &graph{byName: map[string]int{}, edges: map[[2]int]bool{}}
	type edge struct {
		from, to string
		line     int
	}
	var edges []edge
	done, bad := int64(0), error(nil)
	n := 1
	for ; bad == nil && in.Scan(); n++ {
		done += int64(len(in.Bytes())) + 1
		if n%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if progress != nil {
				progress(done)
			}
		}
		line := bytes.TrimSpace(in.Bytes())
		if len(line) == 0 {
			continue
		}
		fields := strings.Split(string(line), " -- ")
		if len(fields) == 2 {
			edges = append(edges, edge{fields[0], fields[1], n})
			continue
		}
		if err := g.addLayer(fields, n); err != nil {
			bad = lineError(n, err)
		}
	}
	switch {
	case bad != nil:
	case errors.Is(in.Err(), bufio.ErrTooLong):
		bad = lineError(n, errors.New("the line is longer than 1 MiB"))
	default:
		bad = in.Err()
	}
	for _, e := range edges {
		if err := g.connect(e.from, e.to); err != nil {
			bad = cmp.Or(bad, lineError(e.line, err))
		}
	}
	return g, bad
}

func lineError(line int, err error) error {
	return &traces.FormatError{Format: formatName, Line: line, Reason: err.Error()}
}

func (g *graph) addLayer(fields []string, line int) error {
	if len(fields) < 3 || !isNode(fields[0]) {
		return errors.New(`the line is neither "node -- layer -- values" nor "node -- node"`)
	}
	if _, twice := g.byName[fields[0]]; twice {
		return fmt.Errorf("%.40s appears twice", fields[0])
	}
	if len(g.layers) == maxLayers {
		return fmt.Errorf("there are more than %d layers", maxLayers)
	}
	l := layer{name: fields[0], desc: strings.Join(fields[1:len(fields)-1], " -- "), line: line}
	values := fields[len(fields)-1]
	if strings.HasPrefix(values, "stage_id=") && len(fields) > 3 {
		values, l.desc = fields[len(fields)-2], strings.Join(fields[1:len(fields)-2], " -- ")
	}
	l.number, _ = strconv.Atoi(strings.TrimPrefix(l.name, "node"))
	seen := 0
	for v := range strings.SplitSeq(values, ", ") {
		key, text, ok := strings.Cut(v, "=")
		if !ok {
			return fmt.Errorf("%.40q is not a value", v)
		}
		known, err := l.set(key, text)
		if err != nil {
			return err
		}
		if known {
			seen++
		}
	}
	if seen < 4 {
		return errors.New("a layer needs forward_compute_time, backward_compute_time, activation_size and " +
			"parameter_size")
	}
	if g.total += 2 * (l.activation + l.parameters); g.total > maxTotal {
		return errors.New("the sizes up to here add up to more than any machine has")
	}
	g.byName[l.name] = len(g.layers)
	g.layers = append(g.layers, l)
	return nil
}

func isNode(s string) bool {
	_, err := strconv.Atoi(strings.TrimPrefix(s, "node"))
	return strings.HasPrefix(s, "node") && err == nil
}

func (l *layer) set(key, text string) (known bool, err error) {
	switch key {
	case "forward_compute_time":
		l.forward, err = millis(text)
	case "backward_compute_time":
		l.backward, err = millis(text)
	case "activation_size":
		l.activation, err = size(text)
	case "parameter_size":
		l.parameters, err = size(text)
	default:
		return false, nil
	}
	return true, err
}

func millis(s string) (int64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0 && f <= maxMillis) {
		return 0, fmt.Errorf("%.40q is not a time in milliseconds", s)
	}
	return int64(math.Round(f * 1e6)), nil
}

// size parses a number of bytes, or the sum of a list "[a; b]" of several outputs.
func size(s string) (int64, error) {
	sum := int64(0)
	for part := range strings.SplitSeq(strings.Trim(s, "[]"), ";") {
		f, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || !(f >= 0 && f <= maxBytes) {
			return 0, fmt.Errorf("%.40q is not a size in bytes", s)
		}
		sum += int64(math.Round(f))
	}
	if sum > maxBytes {
		return 0, fmt.Errorf("%.40q is not a size in bytes", s)
	}
	return sum, nil
}

func (g *graph) connect(from, to string) error {
	a, okA := g.byName[from]
	b, okB := g.byName[to]
	if !okA || !okB {
		return fmt.Errorf("the edge %.40s -- %.40s leads to a node that the file does not describe", from, to)
	}
	if !g.edges[[2]int{a, b}] {
		g.edges[[2]int{a, b}] = true
		g.layers[a].out = append(g.layers[a].out, b)
		g.layers[b].in = append(g.layers[b].in, a)
	}
	return nil
}

// queue holds the layers that could run next, lowest number first.
type queue struct {
	g     *graph
	ready []int
}

func (q *queue) Len() int { return len(q.ready) }
func (q *queue) Less(i, j int) bool {
	a, b := q.ready[i], q.ready[j]
	return cmp.Or(cmp.Compare(q.g.layers[a].number, q.g.layers[b].number), cmp.Compare(a, b)) < 0
}
func (q *queue) Swap(i, j int) { q.ready[i], q.ready[j] = q.ready[j], q.ready[i] }
func (q *queue) Push(x any)    { q.ready = append(q.ready, x.(int)) }
func (q *queue) Pop() any {
	last := q.ready[len(q.ready)-1]
	q.ready = q.ready[:len(q.ready)-1]
	return last
}

// order returns the layers with each one after those that it reads; the lowest number breaks ties.
func (g *graph) order() ([]int, error) {
	waits := make([]int, len(g.layers))
	q := &queue{g: g}
	for i := range g.layers {
		if waits[i] = len(g.layers[i].in); waits[i] == 0 {
			q.ready = append(q.ready, i)
		}
	}
	heap.Init(q)
	var out []int
	for q.Len() > 0 {
		i := heap.Pop(q).(int)
		out = append(out, i)
		for _, o := range g.layers[i].out {
			if waits[o]--; waits[o] == 0 {
				heap.Push(q, o)
			}
		}
	}
	if len(out) < len(g.layers) {
		stuck := slices.IndexFunc(waits, func(w int) bool { return w > 0 })
		return out, lineError(g.layers[stuck].line, errors.New("the layers read each other in a circle"))
	}
	return out, nil
}
