package autopsy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Workspaces of libraries. cuBLAS: PyTorch makes one workspace per stream and handle, and each thread has its
// own handle; it never frees a workspace (notes/cuda, "cuBLAS workspaces"; pytorch issue 99196,
// where every graph is captured on a stream of its own). The pattern: several blocks of the size that PyTorch
// chooses, nearly each on a stream of its own, none of which ended. Look-alike: activations of 32 MiB, which
// is a common size, but one stream holds several of them.
//
// cuDNN: a convolution requests a workspace while it runs. The pattern: the failed request is the
// convolution's own, right after its output, and no existing block is as large. Look-alikes: a copy in
// another memory format, which is as large as the input, the weight or the output; the gradients of the two
// in a backward, whose stacks do not end in the convolution. PyTorch tries other algorithms after such a
// failure, so it is the last one only if none is left.

// blasWorkspaces are the sizes that PyTorch chooses: ":4096:2:16:8", and that of Hopper, ":4096:8".
var blasWorkspaces = []int64{4096<<10*2 + 16<<10*8, 4096 << 10 * 8}

// leastBlasWorkspace is the size of one with CUBLAS_WORKSPACE_CONFIG=:16:8.
const leastBlasWorkspace = 16 << 10 * 8

// leastWorkspaces is how many workspaces of one size there must be: one for a forward and one for a backward
// are usual.
const leastWorkspaces = 4

func blasWorkspacesFault(c *evidence) (fault, bool) {
	a := &c.d.Allocs
	bySize := map[int64][]timeline.AllocID{}
	streams := map[int64]map[traces.StreamID]bool{}
	for _, id := range c.live {
		n := a.Size[id]
		if !slices.Contains(blasWorkspaces, n) {
			continue
		}
		if streams[n] == nil {
			streams[n] = map[traces.StreamID]bool{}
		}
		bySize[n] = append(bySize[n], id)
		streams[n][a.Stream[id]] = true
	}
	var ids []timeline.AllocID
	on := 0
	for _, n := range slices.Sorted(maps.Keys(bySize)) {
		// A forward's thread and a backward's each have a handle.
		if len(bySize[n]) >= leastWorkspaces && len(bySize[n]) <= 2*len(streams[n]) {
			ids, on = append(ids, bySize[n]...), on+len(streams[n])
		}
	}
	if len(ids) == 0 {
		return fault{}, false
	}
	bytes, line := c.bytesOf(ids), c.topName(c.sitesOf(ids))
	f := fault{Cause: Cause{Kind: "cublas_workspaces", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of %s, the size of a cuBLAS workspace, are there on %s", nBlocks(len(ids)),
		c.u.Bytes(a.Size[ids[0]]), timeline.Counted(on, "stream"))}}
	f.said = fmt.Sprintf("cuBLAS keeps a workspace for every thread and stream that multiplies matrices: %s "+
		"in %s on %s, most from %s.", c.u.Bytes(bytes), nBlocks(len(ids)), timeline.Counted(on, "stream"),
		line)
	f.fix = fmt.Sprintf("Use the same few streams again, also to capture CUDA graphs, or set "+
		"CUBLAS_WORKSPACE_CONFIG=:16:8, which makes each %s; "+
		"torch._C._cuda_clearCublasWorkspaces() frees them.",
		c.u.Bytes(leastBlasWorkspace))
	f.sure(Likely, "their size and streams are those of workspaces; equal tensors, one a stream, would "+
		"look the same")
	f.lever = remedy{name: "smaller_workspaces", command: "export CUBLAS_WORKSPACE_CONFIG=:16:8"}
	for _, id := range ids {
		f.lever.changes = append(f.lever.changes, life(c.d, id, a.Rounded[id]-leastBlasWorkspace))
	}
	return f, true
}

// convolves reports whether a stack ends in a convolution that is running, not being built.
func convolves(c *evidence, s traces.StackID) bool {
	k := c.kinds.Of(s)
	if s < 0 || !k.Has(frames.KindModel) || k.Has(frames.KindBackwardPass|frames.KindModuleInit) {
		return false
	}
	for _, id := range c.d.Timeline().Places().Stacks.At(s) {
		if !c.kinds.Frames[id].Has(frames.KindPython) {
			continue
		}
		_, file, _ := c.d.Timeline().Places().FrameText(id)
		return strings.HasSuffix(file, "torch/nn/modules/conv.py")
	}
	return false
}

func convolutionFault(c *evidence) (fault, bool) {
	e, output := c.d.Event(c.a.At), c.d.Begun(c.a.At)-1
	if !convolves(c, e.Stack) || output < 0 || c.d.Allocs.Stack[output] != e.Stack ||
		c.d.Allocs.Requested[output] <= c.a.At {
		return fault{}, false
	}
	for _, id := range c.live { // of another width, too: a copy may be a cast
		if logitsSized(c.a.Asked.Or(0), c.d.Allocs.Size[id]) {
			return fault{}, false
		}
	}
	line, made := sites.Name(c.d, e.Stack), c.d.Allocs.Size[output]
	f := fault{Cause: Cause{Kind: "cudnn_workspace", Bytes: c.a.Asked, Text: fmt.Sprintf(
		"the convolution at %s had its output of %s and asked for %s more, a size that nothing "+
			"else has", line,
		c.u.Bytes(made), c.u.Bytes(c.a.Asked.Or(0)))}}
	f.said = fmt.Sprintf("The convolution at %s asked for a workspace of %s; its output takes only %s.", line,
		c.u.Bytes(c.a.Asked.Or(0)), c.u.Bytes(made))
	f.fix = "Let cuDNN take an algorithm that needs less: torch.backends.cudnn.benchmark = False, or " +
		"a limit in CUDNN_CONV_WSCAP_DBG."
	f.sure(Likely, "it follows the output and no tensor has its size; PyTorch tries other algorithms "+
		"after it")
	f.lever = remedy{name: "smaller_workspaces", request: c.a.Asked.Or(0),
		command: at("torch.backends.cudnn.benchmark = False", line)}
	return f, true
}
