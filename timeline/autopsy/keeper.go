package autopsy

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// Which line of the program keeps tensors. A recording names the lines that made the blocks, often inside the
// model, but the line to change is elsewhere: where the loop appends to a list, adds to a sum or joins
// tensors. If the program's files are there, we search the functions around the call for such a line, the
// innermost function first. The code does not prove that it is the right one, and the sentence says "may".

// keeping are the faults in which something of the program's own keeps tensors.
var keeping = []string{"kept_graph", "leak", "collected_outputs"}

// nearFunctions is how many functions around the call are searched for the line: functions further out call
// all kinds of things.
const nearFunctions = 3

var (
	// putsAway matches a call that stores its argument.
	putsAway = regexp.MustCompile(`(?:^|[^\w.])([\w.\[\]]+)\.(?:append|extend|put|push|insert|store)\((.*)`)
	// addsTo matches a sum or a list that a value is added to.
	addsTo = regexp.MustCompile(`([\w.\[\]]+)\s*\+=\s*\[?\s*([A-Za-z_(].*)`)
	// assigns matches an assignment of an expression to a name.
	assigns = regexp.MustCompile(`^\s*([A-Za-z_][\w.]*)\s*=\s*([^=].*)`)
	// joins matches an expression that joins tensors, or adds to one.
	joins = regexp.MustCompile(`^torch\.(?:cat|[vh]?stack|concat)\(|^[\w.]+\s*\+`)
	// number matches what makes a number of a tensor, moves it off the GPU, or was a number before.
	number = regexp.MustCompile(`\.(?:item|detach|cpu|numpy|tolist|size|numel|time)\(|\.shape\b|` +
		`\b(?:float|int|len|str|print|range|time)\(|^[\d"'.-]`)
	// counts matches a loop over numbers.
	counts = regexp.MustCompile(`^\s*for\s+\(?\s*(\w+).*\bin\s+(?:range|enumerate|trange|count)\(`)
	// begins matches the first line of a function or a class.
	begins = regexp.MustCompile(`^\s*(?:async\s+def|def|class)\b`)
	word   = regexp.MustCompile(`[A-Za-z_][\w.]*`)
)

// nameKeeper adds to a fault the line that may keep its blocks, if the program's code shows one.
func nameKeeper(c *evidence, f *fault) {
	if !slices.Contains(keeping, f.Kind) || len(f.lever.changes) == 0 {
		return
	}
	if where, _ := keeperOf(c, f.lever.changes[len(f.lever.changes)-1].Alloc); where != "" {
		f.lookAt(where)
		command, _, _ := strings.Cut(f.lever.command, "  # ")
		f.lever.command = at(command, where) // the line to change, not the one that made the blocks
	}
}

// keeperOf returns the place and the text of the line that may keep a block, "" if no code shows one.
func keeperOf(c *evidence, block timeline.AllocID) (where, text string) {
	near := nearFunctions
	for _, id := range around(c, block) {
		if !c.ofUser(id) {
			continue
		}
		if near--; near < 0 {
			break
		}
		fn, file, line := c.places.FrameText(id)
		code, ok := c.file(file)
		if !ok {
			continue
		}
		if n := keepingLine(functionOf(code, fn, line), line, fn == moduleLevel); n > 0 {
			return place(fn, file, n), linesOf(code)[n-1].text
		}
	}
	return "", ""
}

// detaches matches a call of a function of the program's that detaches, such as recursive_detach(output).
var detaches = regexp.MustCompile(`\b\w*detach\w*\(`)

// keptDetached reports whether the line that may keep blocks calls something named after detaching: then no
// graph stays with them.
func keptDetached(c *evidence, ids []timeline.AllocID) bool {
	_, text := keeperOf(c, ids[len(ids)-1])
	return detaches.MatchString(text)
}

// lookAt names the line that may keep tensors: in place of the advice to look for it, if that is given.
func (f *fault) lookAt(line string) {
	if f.seek != "" {
		f.seek = "Look at " + line + ", which may keep them"
		return
	}
	f.fix += " Look at " + line + ", which may keep it."
}

// around returns the frames outside of the model in which a block was made, the innermost first.
func around(c *evidence, id timeline.AllocID) []traces.FrameID {
	s := c.d.Origin(id)
	if s == traces.NoStack {
		return nil
	}
	at := c.places.Stacks.At(s)
	if i := steps.PartAt(c.parts, c.d.Allocs.Start[id]); c.inModel(s) && i >= 0 {
		at = at[max(slices.Index(at, c.parts[i].Caller), 0):]
	}
	return at
}

// keepingLine returns the number of the line of a function that keeps a tensor, the first from the given one
// on, or the first before it; 0 for none. Nested functions do not count. In a module's own code, lines before
// the given one do not count either: they are mostly imports and settings.
func keepingLine(lines []codeLine, from int, ofModule bool) (n int) {
	nested := -1 // the indentation of a nested function
	numbers := map[string]bool{}
	for i, l := range lines {
		switch {
		case l.blank():
			continue
		case nested >= 0 && (l.indent() > nested || l.indent() == nested && l.closes()):
			continue
		case i > 0 && begins.MatchString(l.text):
			nested = l.indent()
			continue
		}
		nested = -1
		if m := counts.FindStringSubmatch(l.text); m != nil {
			numbers[m[1]] = true
		}
		if m := assigns.FindStringSubmatch(l.text); m != nil {
			numbers[m[1]] = number.MatchString(m[2])
		}
		switch {
		case !l.keeps(numbers):
		case l.number >= from:
			return l.number
		case n == 0 && !ofModule:
			n = l.number
		}
	}
	return n
}

// keeps reports whether a line may keep a tensor, in a function that has given some names to numbers.
func (l codeLine) keeps(numbers map[string]bool) bool {
	value := func(text string) bool { return !number.MatchString(text) && !numbers[word.FindString(text)] }
	if m := putsAway.FindStringSubmatch(l.text); m != nil {
		return m[1] != "sys.path" && value(m[2])
	}
	if m := addsTo.FindStringSubmatch(l.text); m != nil {
		return value(m[2])
	}
	m := assigns.FindStringSubmatch(l.text)
	if m == nil || !joins.MatchString(m[2]) || number.MatchString(m[2]) {
		return false
	}
	used := word.FindAllString(m[2], -1) // it stays if it becomes part of itself
	return slices.Contains(used, m[1]) && !numbers[m[1]]
}
