package report

import (
	"slices"
	"strconv"

	"github.com/gmemtop/gmemtop/traces"
)

// StackText returns the frames of a stack, outermost first, each as "function file:line"; an empty list for
// NoStack.
func StackText(tr *traces.Trace, id traces.StackID) []string {
	frames := tr.Stacks.At(id)
	out := make([]string, 0, len(frames))
	for _, f := range slices.Backward(frames) {
		out = append(out, frameText(tr, f))
	}
	return out
}

// frameText returns a frame as "function file:line", without the parts that the trace lacks.
func frameText(tr *traces.Trace, id traces.FrameID) string {
	fn, file, line := tr.FrameText(id)
	if file == "" || file == "??" {
		return fn
	}
	if line > 0 {
		file += ":" + strconv.Itoa(line)
	}
	if fn == "" {
		return file
	}
	return fn + " " + file
}
