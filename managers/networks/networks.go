// Package networks makes planning problems from layer shapes: the networks of the papers and two of today's,
// without a recording.
//
// Its duties:
//   - [All] and [ByName]: the networks, each with batch sizes to start from;
//   - [Network.Problem]: one training iteration of dataflow kind, with durations from a hardware description;
//   - [StaticFootprint]: what the network-wide static allocation of vDNN's baseline would take.
package networks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces/near"
)

// Problem: planners should be comparable on the networks that their papers used, at batch sizes that fit no
// device and so cannot be recorded.
//
// Approach: a network is a function that calls layers in order on a tape. A layer writes its forward ops,
// says what its backward pass will read, and leaves a function that writes its backward ops; those run in
// reverse. If several layers read a tensor, its gradients are added up as they arrive, as in PyTorch's
// engine: in place if no other op holds the first one. Lifetimes are not given: a buffer lives from its first
// touch until after its last, so what a layer saves is exactly what its backward ops read.
//
// What each layer saves: convolution and linear their input X; in-place ReLU its output Y; pooling and LRN X
// and Y; batch and layer normalisation X and their statistics; GELU X; dropout a mask of one byte an element;
// softmax Y; attention its operands. The convolution's backward pass is data gradient, then weight gradient,
// both with X alive: cuDNN's two calls in the order in which PyTorch makes them.
//
// As in PyTorch: in-place activations have gradients of their own; weight gradients are allocated in the
// backward pass and live to the end of the iteration, where zero_grad sets them to none (or persist and are
// accumulated into, by option); parameters, optimizer state and running statistics persist; concatenation
// copies, and its gradients are views; a residual addition hands one gradient to both sides; the batch
// normalisation's running statistics are updated by an op of their own, as num_batches_tracked is, which
// keeps the normalisation rerunnable. Dropout counts as rerunnable: its generator takes seed and offset as
// arguments, and a rerun restores them, as torch.utils.checkpoint does.
//
// Categories follow torch.profiler: gradient is a parameter's gradient; those of activations are autograd
// detail; what the forward pass makes and the backward pass does not read is temporary.
//
// Left out: allocations of under a kilobyte that frameworks make besides (step counters, scalars); the
// optimizer's own temporaries; copies to other layouts.
//
// Rejected: recording the real networks once and shipping the files (no algorithm choice, one batch size, one
// version of one framework).
//
// Complexity: O(ops).

// Options change how an iteration is made; the zero value is what each network is usually trained with.
type Options struct {
	// Sequence is the tokens of a sample; 0 for the network's own. Networks of images refuse it.
	Sequence int
	// Optimizer is 0 for the network's usual one.
	Optimizer Optimizer
	// PersistentGradients keeps weight gradients from one iteration to the next, to be zeroed and accumulated
	// into: zero_grad(set_to_none=False). Otherwise they live from the backward pass to the end of the
	// iteration.
	PersistentGradients bool
	// FusedAttention computes attention in one op that keeps only its output and one sum per row
	// (FlashAttention); otherwise scores and probabilities are tensors.
	FusedAttention bool
	// GradientsInPlace has the backward op of an in-place activation write its gradient over the one that it
	// reads, where no other op needs that one. Caffe and Torch did so at the time of vDNN; PyTorch does not.
	GradientsInPlace bool
}

// Optimizer is what updates the parameters.
type Optimizer uint8

// The optimizers.
const (
	// Usual is SGD with momentum for networks of images, Adam for transformers.
	Usual Optimizer = iota
	// SGDMomentum keeps one state tensor a parameter.
	SGDMomentum
	// Adam keeps two.
	Adam
)

// Network is a network whose iterations can be made.
type Network struct {
	// Name is what people call it; Summary says in one sentence which variant it is.
	Name, Summary string
	// Batches are suggested batch sizes, smallest first: those of vDNN's and DELTA's evaluations if they used
	// the network, otherwise usual ones.
	Batches []int
	// Sequence is the tokens of a sample; 0 for networks of images.
	Sequence int

	usual Optimizer
	build func(*layers)
}

// Limits on sizes, far beyond any device: larger ones are typing errors.
const (
	maxBatch    = 1 << 20
	maxSequence = 1 << 17
)

// ErrUnknown is wrapped by the error of [ByName] for a name that no network has.
var ErrUnknown = errors.New("unknown network")

// ByName returns the network that a name means, in any case, with or without hyphens: "vgg16", "ResNet-50",
// "gpt2", "bert". A name that means none, or several, is an error that lists them.
func ByName(name string) (Network, error) {
	key := normal(name)
	var starts []Network
	names := make([]string, 0, 16)
	for _, n := range All() {
		if normal(n.Name) == key {
			return n, nil
		}
		if key != "" && strings.HasPrefix(normal(n.Name), key) {
			starts = append(starts, n)
		}
		names = append(names, n.Name)
	}
	switch {
	case len(starts) == 1:
		return starts[0], nil
	case len(starts) > 1:
		names = names[:0]
		for _, n := range starts {
			names = append(names, n.Name)
		}
		return Network{}, fmt.Errorf("%w: %q could be %s; say which", ErrUnknown, name,
			strings.Join(names, ", "))
	}
	keys := make([]string, len(names))
	for i, n := range names {
		keys[i] = normal(n)
	}
	if i := slices.Index(keys, near.Word(key, keys)); i >= 0 {
		return Network{}, fmt.Errorf("%w %q: did you mean %s?", ErrUnknown, name, names[i])
	}
	return Network{}, fmt.Errorf("%w %q; take one of %s", ErrUnknown, name, strings.Join(names, ", "))
}

func normal(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)
}

// Problem makes one training iteration of the network at a batch size, in samples, with 4-byte elements and
// durations from the hardware's sustained rates; the hardware must know its arithmetic and its memory's
// bandwidth. The problem is of dataflow kind, on one stream, finished.
func (n Network) Problem(batch int, hw plan.Hardware, o Options) (*plan.Problem, error) {
	if hw.FlopsPerSecond <= 0 || hw.BytesPerSecond <= 0 {
		return nil, fmt.Errorf("make %s: the hardware %q knows no sustained arithmetic or bandwidth; "+
			"take a device preset, "+
			"or set flops_per_s and bytes_per_s", n.Name, hw.Name)
	}
	t, err := n.run(batch, hw, o)
	if err != nil {
		return nil, err
	}
	return t.finish()
}

// run plays the network on a tape.
func (n Network) run(batch int, hw plan.Hardware, o Options) (*tape, error) {
	switch {
	case n.build == nil:
		return nil, errors.New("make a network: the zero Network has no layers; take one of All or ByName")
	case batch < 1 || batch > maxBatch:
		return nil, fmt.Errorf("make %s: batch %d is not between 1 and %d", n.Name, batch, maxBatch)
	case n.Sequence == 0 && o.Sequence != 0:
		return nil, fmt.Errorf("make %s: it takes images, which have no sequence length; leave Sequence 0",
			n.Name)
	case o.Sequence < 0 || o.Sequence > maxSequence:
		return nil, fmt.Errorf("make %s: sequence length %d is not between 1 and %d",
			n.Name, o.Sequence, maxSequence)
	case o.Optimizer > Adam:
		return nil, fmt.Errorf("make %s: unknown optimizer %d", n.Name, o.Optimizer)
	}
	if o.Sequence == 0 {
		o.Sequence = n.Sequence
	}
	if o.Optimizer == Usual {
		o.Optimizer = n.usual
	}
	t := newTape(batch, hw, o)
	t.p.Name = fmt.Sprintf("%s (%d)", n.Name, batch)
	if o.Sequence > 0 {
		t.p.Name = fmt.Sprintf("%s (%d x %d)", n.Name, batch, o.Sequence)
	}
	n.build(&layers{tape: t})
	if t.err != nil {
		return nil, fmt.Errorf("make %s: %w", n.Name, t.err)
	}
	return t, nil
}
