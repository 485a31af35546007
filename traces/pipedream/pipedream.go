// Package pipedream reads the layer profiles of PipeDream (msr-fiddle/pipedream, graph.txt): a graph of
// layers with the milliseconds of their forward and backward pass, the bytes of their output and the bytes of
// their weights. It becomes a trace of one training iteration with full dataflow.
//
// The file says less than a trace needs. The reader assumes the rest:
//   - Layers run one after the other on one stream, forward in topological order (lowest node number first),
//     backward in reverse.
//   - A first node called Input is the data loader: its time includes one-off setup work and is dropped, so
//     it is not an op. Its bytes are a buffer of category input that exists from the start.
//   - Weights exist from the start and stay. Their gradients are allocated by the layer's backward op and
//     freed at the end.
//   - An in-place layer (its description says inplace) changes the first of its inputs whose other readers
//     have all run and which the backward pass does not need unchanged. View and Flatten alias their input.
//     None of these has its own output or gradient. Size yields a number on the host, not a buffer. If later
//     layers still need every input of an in-place layer, it gets a buffer of its own.
//   - Convolution, Linear, BatchNorm and pooling need their input again in the backward pass, ReLU its
//     output. Add, View and Dropout need neither (the mask of a Dropout has no size in the file and is
//     counted as a loss). A layer that this version does not know needs both.
//   - The gradient of an output is as large as the output. It is allocated by the first backward op that
//     writes to it, added to by others, and freed when the op that made the output has run backward.
//   - The loss is not in the file. An op without duration represents it, reads the outputs that no layer
//     reads, and writes their gradients. The optimizer is neither in the file nor in the trace.
//   - Forward ops are rerunnable, except Dropout.
//
// Addresses are made up. Times are exact: the file's milliseconds have three decimals.
package pipedream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

const formatName = traces.FormatPipeDream

// Sniff reports whether head begins with a line of a layer profile: a node, or an edge of two nodes.
func Sniff(head []byte) bool {
	line, _, _ := bytes.Cut(bytes.TrimLeft(head, " \r\n\t"), []byte("\n"))
	if len(line) > 64<<10 {
		return false
	}
	fields := strings.Split(strings.TrimSpace(string(line)), " -- ")
	switch {
	case len(fields) < 2 || !isNode(fields[0]):
		return false
	case len(fields) == 2:
		return isNode(fields[1])
	}
	return strings.Contains(fields[len(fields)-1], "compute_time=") ||
		strings.HasPrefix(fields[len(fields)-1], "stage_id=")
}

// Read reads a layer profile. progress, if not nil, is called with the number of bytes read so far. Errors
// name the line; the lines before a damaged one make the trace that comes with the error.
func Read(ctx context.Context, r io.Reader, progress func(done int64)) (*traces.Trace, error) {
	g, err := readGraph(ctx, r, progress)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(g.layers) == 0 {
		if err == nil {
			err = lineError(1, fmt.Errorf("the profile has no layers"))
		}
		return nil, err
	}
	order, circle := g.order()
	if circle != nil {
		return nil, circle
	}
	m := newModel(g, order)
	if err != nil {
		m.b.Lose("torn_tail", traces.DataLoss, 1,
			"the file is cut or damaged; everything after that place is missing")
	}
	m.iteration()
	return m.b.Finish(), err
}
