package autopsy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A retry in an except block. While a handler runs, Python keeps the exception, the exception keeps the
// frames that it passed through, and these keep their tensors (pytorch issue 18853). The pattern: the request
// that failed comes from a line in an except block, and the last call of the model from its try block left
// activations that no backward freed. The program's own files tell which lines are in such a block. A call
// that ran out of memory itself is found without them: see restartFault.
//
// Look-alikes: a result that the try block stored, with its graph.

// handler is a try statement of the program: the lines of its try block, from 1, are from body until except.
type handler struct{ body, except int }

// handlerAt returns the innermost try statement that has a line in one of its except blocks.
func handlerAt(text string, line int) (h handler, ok bool) {
	lines := linesOf(text)
	if line < 1 || line > len(lines) {
		return h, false
	}
	starts := func(i int, word string) bool {
		return strings.HasPrefix(strings.TrimSpace(lines[i].text), word)
	}
	within := lines[line-1].indent()
	for i := line - 2; i >= 0; i-- {
		if lines[i].blank() || lines[i].indent() >= within {
			continue
		}
		within = lines[i].indent()
		if starts(i, "def ") || starts(i, "class ") || starts(i, "async def ") {
			return h, false // what a function does that a handler defines is not the handler's
		}
		if !starts(i, "except") {
			continue
		}
		h.except = i + 1
		for k := i - 1; k >= 0; k-- {
			if lines[k].indent() != within || lines[k].blank() {
				continue
			}
			if !starts(k, "except") {
				h.body = k + 2
				return h, starts(k, "try:")
			}
			h.except = k + 1
		}
		return h, false
	}
	return h, false
}

// tryBlock returns a test of whether a stack passes through a try block, the one whose handler made the
// request that failed; nil if no handler did.
func tryBlock(c *evidence) func(traces.StackID) bool {
	failed := c.d.Event(c.a.At).Stack
	if failed < 0 {
		return nil
	}
	for _, id := range c.places.Stacks.At(failed) {
		fn, file, line := c.places.FrameText(id)
		if !c.ofUser(id) {
			continue
		}
		text, ok := c.file(file)
		if !ok {
			continue
		}
		h, ok := handlerAt(text, line)
		if !ok {
			continue
		}
		return func(s traces.StackID) bool {
			if s < 0 {
				return false
			}
			for _, id := range c.places.Stacks.At(s) {
				name, path, at := c.places.FrameText(id)
				if name == fn && path == file && at >= h.body && at < h.except {
					return true
				}
			}
			return false
		}
	}
	return nil
}

func handlerFault(c *evidence) (fault, bool) {
	tried := tryBlock(c)
	if tried == nil {
		return fault{}, false
	}
	last := timeline.NoAlloc
	for _, id := range c.live {
		if s := c.d.Origin(id); c.kinds.Of(s).Has(frames.KindModel) && tried(s) {
			last = max(last, id)
		}
	}
	if last == timeline.NoAlloc {
		return fault{}, false
	}
	i := steps.PartAt(c.parts, c.d.Allocs.Start[last])
	if i < 0 || i < len(c.parts)-2 || c.parts[len(c.parts)-1].Phase != traces.PhaseForward {
		return fault{}, false
	}
	m := c.d.Allocs.Start[last] + 1
	ids, _ := c.forwardBlocks(c.parts[i].First, m, c.a.At+1)
	ids = slices.DeleteFunc(ids, func(id timeline.AllocID) bool { return !tried(c.d.Origin(id)) })
	if len(ids) < graphBlocks {
		return fault{}, false
	}
	bytes, line := c.bytesOf(ids), sites.Name(c.d, c.d.Origin(last))
	f := fault{Cause: Cause{Kind: "exception_keeps", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s of a call that raised an exception are still there while its handler calls the model "+
			"again, the last of them from %s", c.u.Bytes(bytes), nBlocks(len(ids)), line)}}
	f.said = fmt.Sprintf("The except block calls the model while the exception still holds the tensors of "+
		"the call that failed: %s.", c.u.Bytes(bytes))
	f.sure(Likely, "the call came from the try block and no backward followed it; a result that is kept, "+
		"with its graph, would look the same")
	f.retryOutside(c, ids, m, line)
	return f, true
}
