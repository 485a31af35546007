package autopsy

import (
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
)

// What the program's own files say, if they are on this machine. A run that fails in its first call of the
// model looks the same whether it trains or not; its author knows, and the code says so: a function that
// calls the model and runs a backward pass trains, and where no file on the way to the call runs one, nothing
// is trained. Frameworks run the backward in files of their own, which are on the way as well or are started
// by a call that is known by name.

// differentiating are the calls that run a backward pass, or a framework that does.
var differentiating = []string{".backward(", "autograd.grad(", "value_and_grad(", ".fit(", "trainer.train(",
	".train_batch(", ".learn("}

// codeMode returns what the code on the way to a call of the model says that it is for: modeTraining if the
// innermost function of the user's runs a backward pass, modeEvaluation if no file does.
func (c *evidence) codeMode(p *steps.Part) mode {
	path := c.pathOf(p)
	innermost := slices.IndexFunc(path, c.ofUser)
	if innermost < 0 {
		return modeUnknown
	}
	fn, file, line := c.places.FrameText(path[innermost])
	text, ok := c.file(file)
	if !ok {
		return modeUnknown
	}
	if runsBackward(functionText(text, fn, line)) {
		return modeTraining
	}
	for _, id := range path {
		if c.kinds.Frames[id].Has(frames.KindTorch) || !c.kinds.Frames[id].Has(frames.KindPython) {
			continue
		}
		_, file, _ := c.places.FrameText(id)
		if text, ok := c.file(file); ok && runsBackward(text) || !ok && c.ofUser(id) {
			return modeUnknown
		}
	}
	return modeEvaluation
}

// file returns the text of one of the program's files.
func (c *evidence) file(path string) (string, bool) {
	code := c.d.Timeline().Trace.Code
	if code == nil {
		return "", false
	}
	return code.File(path)
}

// runsBackward reports whether Python code runs a backward pass. Comments do not count.
func runsBackward(text string) bool {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if slices.ContainsFunc(differentiating, func(call string) bool { return strings.Contains(line, call) }) {
			return true
		}
	}
	return false
}

// functionText returns the code of the function that a line of a Python file is in, with what is nested in
// it; of a module, what is outside of its functions and classes. It is empty if the file has no such line.
func functionText(text, fn string, line int) string {
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	if fn == moduleLevel {
		return outsideOfFunctions(lines)
	}
	first := line - 1
	for ; first >= 0; first-- {
		words := strings.TrimPrefix(strings.TrimSpace(lines[first]), "async ")
		if strings.HasPrefix(words, "def "+fn+"(") {
			break
		}
	}
	if first < 0 {
		return ""
	}
	end := first + 1
	for end < len(lines) && (end < line || continues(lines[end], indent(lines[first]))) {
		end++
	}
	return strings.Join(lines[first:end], "\n")
}

// moduleLevel is the name of the function that a module's own code runs in.
const moduleLevel = "<module>"

// outsideOfFunctions returns the lines of a module that belong to none of its functions and classes.
func outsideOfFunctions(lines []string) string {
	var out []string
	inside := false
	for _, l := range lines {
		if indent(l) == 0 && strings.TrimSpace(l) != "" && !strings.HasPrefix(l, ")") {
			inside = strings.HasPrefix(l, "def ") || strings.HasPrefix(l, "class ") ||
				strings.HasPrefix(l, "async def ")
		}
		if !inside {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

// continues reports whether a line belongs to a block that an indentation begins.
func continues(line string, outer int) bool {
	return strings.TrimSpace(line) == "" || indent(line) > outer
}

// indent counts the blanks that a line begins with.
func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }
