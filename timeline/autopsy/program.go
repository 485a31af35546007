package autopsy

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// What the program's own files say, if they are on this machine. A run that fails in its first call of the
// model would look the same whether it trains or not. Its author knows, and the code says so: a function that
// calls the model and runs a backward pass trains, and if no file in the call's stack has to do with
// training, nothing is trained. Frameworks run the backward in files of their own, which are in the stack,
// too, or are started by a call such as fit. Other libraries have a fit as well (scikit-learn). So such a
// call, a file that mentions an optimizer, or one that cannot be read leaves the question open.

// differentiates matches a call that runs a backward pass.
var differentiates = regexp.MustCompile(`\.\w*backward\(|\b(?:value_and_grad|vjp|jacobian|hessian)\(|` +
	`\bautograd\.grad\(|(?:^|[^.\w])grad\(`)

// callsBackward matches a call that adds to the gradients of weights.
var callsBackward = regexp.MustCompile(`\.\w*backward\(`)

// mayTrain matches anything related to training: a framework's call, or an optimizer.
var mayTrain = regexp.MustCompile(`(?i)optim|\.(?:fit\w*|learn|train_batch)\(|trainer\w*\.train\(`)

// launchers are the files that run a script as a whole, such as for a profiler: what is further out is not
// the script's.
var launchers = []string{"runpy.py", "<frozen runpy>"}

// codeMode tells from the code on the way to a call of the model what the call is for: modeTraining if the
// user's innermost function runs a backward pass, modeEvaluation if no file has to do with training.
func (c *history) codeMode(p *steps.Part) mode {
	way := c.pathOf(p)
	innermost := slices.IndexFunc(way, c.ofUser)
	if innermost < 0 {
		return modeUnknown
	}
	fn, file, line := c.places.FrameText(way[innermost])
	text, ok := c.file(file)
	if !ok {
		return modeUnknown
	}
	function := functionOf(text, fn, line)
	if function == nil { // not the file that was recorded
		return modeUnknown
	}
	if slices.ContainsFunc(function, codeLine.runsBackward) {
		return modeTraining
	}
	for _, id := range way {
		if c.kinds.Frames[id].Has(frames.KindTorch) || !c.kinds.Frames[id].Has(frames.KindPython) {
			continue
		}
		_, file, _ := c.places.FrameText(id)
		if slices.Contains(launchers, path.Base(file)) {
			break
		}
		text, ok := c.file(file)
		if !ok || slices.ContainsFunc(linesOf(text), codeLine.mayTrain) {
			return modeUnknown
		}
	}
	return modeEvaluation
}

// file returns the text of one of the program's files.
func (c *history) file(path string) (string, bool) {
	code := c.d.Timeline().Trace.Code
	if code == nil {
		return "", false
	}
	return code.File(path)
}

// linesAt returns the lines of the file that a frame is in, and the index of the frame's own; nil if the file
// cannot be read or is shorter. Each file is split once: stacks have the same frames over and over.
func (c *history) linesAt(id traces.FrameID) (lines []codeLine, own int) {
	_, path, line := c.places.FrameText(id)
	lines, known := c.says.lines[path]
	if !known {
		if text, ok := c.file(path); ok {
			lines = linesOf(text)
		}
		c.says.lines[path] = lines
	}
	if line < 1 || line > len(lines) {
		return nil, 0
	}
	return lines, line - 1
}

// codeLine is a line of Python without its comment.
type codeLine struct {
	number int // from 1
	text   string
}

// docstring matches a string in three quotes.
var docstring = regexp.MustCompile(`(?s)""".*?"""|'''.*?'''`)

// linesOf returns the lines of a file without what is in strings of three quotes. A # in a string counts as a
// comment: what follows is of no use here.
func linesOf(text string) (out []codeLine) {
	text = docstring.ReplaceAllStringFunc(text, func(s string) string {
		return strings.Repeat("\n", strings.Count(s, "\n"))
	})
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		out = append(out, codeLine{i + 1, line})
	}
	return out
}

// blank reports whether a line has no code.
func (l codeLine) blank() bool { return strings.TrimSpace(l.text) == "" }

// indent counts the blanks that a line begins with.
func (l codeLine) indent() int { return len(l.text) - len(strings.TrimLeft(l.text, " \t")) }

// closes reports whether a line ends a list that lines before it began, such as the parameters of a function.
func (l codeLine) closes() bool { return strings.HasPrefix(strings.TrimSpace(l.text), ")") }

// runsBackward reports whether a line runs a backward pass.
func (l codeLine) runsBackward() bool { return differentiates.MatchString(l.text) }

// mayTrain reports whether a line runs a backward pass or is related to training.
func (l codeLine) mayTrain() bool { return l.runsBackward() || mayTrain.MatchString(l.text) }

// moduleLevel is the name of the function that a module's own code runs in.
const moduleLevel = "<module>"

// functionOf returns the lines of the function that a line of a Python file is in, with what is nested in it;
// of a module, those outside of its functions and classes. It is nil if the file has no such line.
func functionOf(text, fn string, line int) []codeLine {
	lines := linesOf(text)
	if line < 1 || line > len(lines) {
		return nil
	}
	if fn == moduleLevel {
		return outsideOfFunctions(lines)
	}
	first := line - 1
	for ; first >= 0; first-- {
		words := strings.TrimPrefix(strings.TrimSpace(lines[first].text), "async ")
		if strings.HasPrefix(words, "def "+fn+"(") {
			break
		}
	}
	if first < 0 {
		return nil
	}
	end := first + 1
	outer := lines[first].indent()
	for end < len(lines) && (end < line || lines[end].blank() || lines[end].indent() > outer) {
		end++
	}
	return lines[first:end]
}

// classAt returns the name of the class that a frame's line is in, "" outside of classes or if the file
// cannot be read.
func (c *history) classAt(id traces.FrameID) string {
	lines, own := c.linesAt(id)
	if lines == nil {
		return ""
	}
	outer := lines[own].indent()
	for i := own - 1; i >= 0; i-- {
		l := lines[i]
		if l.blank() || l.closes() || l.indent() >= outer {
			continue
		}
		outer = l.indent()
		if name, ok := strings.CutPrefix(strings.TrimSpace(l.text), "class "); ok {
			name, _, _ = strings.Cut(name, ":")
			name, _, _ = strings.Cut(name, "(")
			return strings.TrimSpace(name)
		}
	}
	return ""
}

// outsideOfFunctions returns the lines of a module that belong to none of its functions and classes.
func outsideOfFunctions(lines []codeLine) (out []codeLine) {
	inside := false
	for _, l := range lines {
		if l.indent() == 0 && !l.blank() && !l.closes() {
			inside = strings.HasPrefix(l.text, "def ") || strings.HasPrefix(l.text, "class ") ||
				strings.HasPrefix(l.text, "async def ")
		}
		if !inside {
			out = append(out, l)
		}
	}
	return out
}
