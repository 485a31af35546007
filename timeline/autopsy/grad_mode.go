package autopsy

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// Whether gradients were on where a block was made, and what could have kept it, as far as the program's code
// says. Graphs, hooks and lists leave much the same blocks, so an expert reads the code: what runs under
// torch.no_grad() has no graph, and if no code registers a hook and no module stores what it computes, only
// a graph keeps what layers make. The mode holds for a thread, so it follows from the stack: a with statement
// around a line of it, a decorator, or PyTorch's frame for one.

// gradMode says whether gradients are on.
type gradMode uint8

const (
	gradientsUnknown gradMode = iota
	gradientsOn
	gradientsOff
)

var (
	// withBlock matches the head of a with statement.
	withBlock = regexp.MustCompile(`^\s*(?:async\s+)?with\b`)
	// turnsOff and turnsOn match what sets the mode. Whatever else speaks of gradients leaves it open.
	turnsOff = regexp.MustCompile(`\b(?:no_grad|inference_mode)\((?:True|mode=True)?\)|` +
		`\bset_grad_enabled\((?:mode=)?False\)`)
	turnsOn = regexp.MustCompile(`\benable_grad\(\)|\bset_grad_enabled\((?:mode=)?True\)|` +
		`\binference_mode\((?:mode=)?False\)`)
	aboutMode = regexp.MustCompile(`grad|inference`)
	// setsMode matches a statement that sets the mode for all that follows, on other lines, too.
	setsMode = regexp.MustCompile(`^\s*(?:[\w.]+\.)?set_grad_enabled\(|\.__enter__\(`)
	// usesHooks matches code that registers hooks, or a package that does.
	usesHooks = regexp.MustCompile(`(?i)hook|captum|grad_?cam|nnsight|transformer_lens|baukit|\.watch\(`)
	// freezes matches code that turns gradients of tensors off.
	freezes = regexp.MustCompile(`requires_grad_\(False\)|requires_grad\s*=\s*False|freez|frozen`)
	// storesInSelf matches a statement that stores something in an object or a global name.
	storesInSelf = regexp.MustCompile(`^\s*(?:[\w.\[\]]+\s*[,=]\s*)*self\.[\w.]+(?:\[[^\]]*\])?` +
		`\s*(?:,[\w.\[\], ]*)?[+|]?=[^=]|\bself(?:\.\w+)+(?:\[[^\]]*\])?\.` +
		`(?:append|extend|insert|update|setdefault|add|put|store|push)\(|` +
		`\bsetattr\(|^\s*(?:global|nonlocal)\s`)
	// imports matches the module that a file imports.
	imports = regexp.MustCompile(`^\s*(?:from\s+\.*([\w.]+)\s+import\b|import\s+([\w.]+))`)
)

// saidByCode is what the program's code said, by what it was asked about.
type saidByCode struct {
	modes map[traces.StackID]gradMode
	keep  map[traces.StackID]bool
	files map[string]fileSays
	lines map[string][]codeLine // of each file
}

// nothingSaid is what the code says before any of it is read.
func nothingSaid() saidByCode {
	return saidByCode{map[traces.StackID]gradMode{}, map[traces.StackID]bool{}, map[string]fileSays{},
		map[string][]codeLine{}}
}

// modeByCode returns whether gradients were on where a stack made something, as the code on it says. They
// are on only if every function on it can be read, and none says anything else.
func (c *history) modeByCode(s traces.StackID) gradMode {
	if s < 0 {
		return gradientsUnknown
	}
	m, known := c.says.modes[s]
	if !known {
		m = c.readMode(s)
		if c.anyFile(s, func(says fileSays) bool { return says.switching }) {
			m = gradientsUnknown
		}
		c.says.modes[s] = m
	}
	return m
}

func (c *history) readMode(s traces.StackID) gradMode {
	at, on := c.places.Stacks.At(s), gradientsOn
	for i, id := range at {
		k := c.kinds.Frames[id]
		fn, file, line := c.places.FrameText(id)
		switch {
		case !k.Has(frames.KindPython):
			continue
		case slices.Contains(launchers, path.Base(file)):
			return on
		case fn == "decorate_context" && strings.HasSuffix(file, "torch/utils/_contextlib.py"):
			return c.decorated(at[:i])
		case strings.HasSuffix(file, "torch/autograd/function.py"), k.Has(frames.KindCheckpoint):
			return gradientsUnknown // runs with gradients off, and keeps what the function asks it to
		case k.Has(frames.KindTorch):
			continue
		}
		text, ok := c.file(file)
		if !ok {
			on = gradientsUnknown // a caller may still turn them off for certain
			continue
		}
		switch m, says := modeOfLine(text, fn, line); {
		case says:
			return m
		case !c.ofUser(id): // a package may set the mode in ways of its own
			on = gradientsUnknown
		}
	}
	return on
}

// decorated returns the mode of a function that one of PyTorch's decorators wraps, given the frames below
// the wrapper. It is off unless its code says something else: few decorators of this kind turn it on.
func (c *history) decorated(below []traces.FrameID) gradMode {
	if len(below) > 0 {
		fn, file, line := c.places.FrameText(below[len(below)-1])
		if text, ok := c.file(file); ok {
			if m, says := modeOfLine(text, fn, line); says {
				return m
			}
		}
	}
	return gradientsOff
}

// modeOfLine returns what the with statements around a line of a function and the function's decorators say,
// and whether they say anything.
func modeOfLine(text, fn string, line int) (m gradMode, says bool) {
	function := functionOf(text, fn, line)
	at := slices.IndexFunc(function, func(l codeLine) bool { return l.number == line })
	if at < 0 {
		return gradientsUnknown, true
	}
	indent := function[at].indent()
	for i := at; i >= 0; i-- {
		l := function[i]
		if i < at && (l.blank() || l.indent() >= indent) {
			continue
		}
		indent = l.indent()
		if withBlock.MatchString(l.text) && i < at {
			if m, says := modeOfWords(l.text); says {
				return m, true
			}
		}
	}
	if fn == moduleLevel {
		return gradientsUnknown, false
	}
	lines := linesOf(text)
	for i := function[0].number - 2; i >= 0 && strings.HasPrefix(strings.TrimSpace(lines[i].text), "@"); i-- {
		if m, says := modeOfWords(lines[i].text); says {
			return m, true
		}
	}
	return gradientsUnknown, false
}

// modeOfWords returns what a with statement or a decorator says about the mode, and whether it does.
func modeOfWords(text string) (m gradMode, says bool) {
	off, on := turnsOff.MatchString(text), turnsOn.MatchString(text)
	switch {
	case strings.Contains(text, " if "), off && on:
		return gradientsUnknown, aboutMode.MatchString(text)
	case off:
		return gradientsOff, true
	case on:
		return gradientsOn, true
	}
	return gradientsUnknown, aboutMode.MatchString(text)
}

// mostly returns the mode in which most bytes of some blocks were made, if the code says it.
func (c *history) mostly(ids []timeline.AllocID) gradMode {
	bytes, all := map[gradMode]int64{}, int64(0)
	for _, id := range ids {
		n := c.d.Allocs.Rounded[id]
		bytes[c.modeByCode(c.d.Origin(id))] += n
		all += n
	}
	for _, m := range []gradMode{gradientsOff, gradientsOn} {
		if all > 0 && float64(bytes[m]) >= mostlyShare*float64(all) {
			return m
		}
	}
	return gradientsUnknown
}

// mostlyShare is the share of bytes from which a mode is that of all.
const mostlyShare = 0.9

// onlyGraphs reports whether only a graph can keep what the model made in some blocks, as far as the code
// says: gradients are on there, nothing is frozen, none of the program's files has to do with hooks, and none
// of the functions on the way stores what it computes. It is false if a file cannot be read.
func (c *history) onlyGraphs(ids []timeline.AllocID) bool {
	return c.mostly(ids) == gradientsOn && c.keepsNothing(ids) &&
		!slices.ContainsFunc(ids, func(id timeline.AllocID) bool {
			return c.anyFile(c.d.Origin(id), func(says fileSays) bool { return says.freezing })
		})
}

// onlyGraphsWhy is the reason for what follows from onlyGraphs.
const onlyGraphsWhy = "gradients are on, and the program's code has neither a hook nor an attribute that " +
	"could keep what a module makes"

// keepsNothing reports whether neither hooks nor the modules themselves can keep some blocks, as far as the
// code says.
func (c *history) keepsNothing(ids []timeline.AllocID) bool {
	return len(ids) > 0 && !slices.ContainsFunc(ids, func(id timeline.AllocID) bool {
		caller := traces.FrameID(-1)
		if i := steps.PartAt(c.parts, c.d.Allocs.Start[id]); i >= 0 && c.inModel(c.d.Origin(id)) {
			caller = c.parts[i].Caller
		}
		return c.mayKeep(c.d.Origin(id), caller)
	})
}

// mayKeep reports whether a hook, or a module that a stack runs through up to the line that calls the model,
// may keep what was made there. It is true if the code does not show it.
func (c *history) mayKeep(s traces.StackID, caller traces.FrameID) bool {
	if s < 0 {
		return true
	}
	may, known := c.says.keep[s]
	if !known {
		may = c.readKeepers(s, caller)
		c.says.keep[s] = may
	}
	return may
}

func (c *history) readKeepers(s traces.StackID, caller traces.FrameID) bool {
	within, read := caller >= 0, false
	for _, id := range c.places.Stacks.At(s) {
		within = within && id != caller
		k := c.kinds.Frames[id]
		if !k.Has(frames.KindPython) || k.Has(frames.KindTorch) {
			continue
		}
		fn, file, line := c.places.FrameText(id)
		if slices.Contains(launchers, path.Base(file)) {
			break
		}
		if c.ofUser(id) {
			read = true
		}
		if within {
			text, ok := c.file(file)
			if !ok || slices.ContainsFunc(functionOf(text, fn, line), codeLine.storesInSelf) {
				return true
			}
		}
	}
	return !read || c.anyFile(s, func(says fileSays) bool { return says.hooks })
}

// fileSays is what a file of the program, or one beside it that it imports, has to do with.
type fileSays struct{ hooks, freezing, switching bool }

// saidBy returns what a file has to do with: anything, if one of them cannot be read.
func (c *history) saidBy(file string) fileSays {
	if says, known := c.says.files[file]; known {
		return says
	}
	c.says.files[file] = fileSays{} // files may import each other
	text, ok := c.file(file)
	says := fileSays{!ok, !ok, false}
	for _, l := range linesOf(text) {
		says.hooks = says.hooks || usesHooks.MatchString(l.text)
		says.freezing = says.freezing || freezes.MatchString(l.text)
		says.switching = says.switching || setsMode.MatchString(l.text)
		if m := imports.FindStringSubmatch(l.text); m != nil {
			beside := path.Join(path.Dir(file), strings.ReplaceAll(m[1]+m[2], ".", "/")+".py")
			if _, ok := c.file(beside); ok {
				also := c.saidBy(beside)
				says = fileSays{says.hooks || also.hooks, says.freezing || also.freezing,
					says.switching || also.switching}
			}
		}
	}
	c.says.files[file] = says
	return says
}

// anyFile reports whether something holds for one of the program's files that a stack runs through.
func (c *history) anyFile(s traces.StackID, holds func(fileSays) bool) bool {
	if s < 0 {
		return true
	}
	for _, id := range c.places.Stacks.At(s) {
		_, file, _ := c.places.FrameText(id)
		if slices.Contains(launchers, path.Base(file)) {
			break
		}
		if c.ofUser(id) && holds(c.saidBy(file)) {
			return true
		}
	}
	return false
}

// storesInSelf reports whether a line stores something in its object, or in a global name.
func (l codeLine) storesInSelf() bool { return storesInSelf.MatchString(l.text) }
