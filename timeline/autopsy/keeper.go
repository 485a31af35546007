package autopsy

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// Which line of the program keeps what stays. A recording names the lines that made the blocks, often inside
// of the model, and what a reader has to change is elsewhere: where the loop appends to a list, adds to a sum
// or joins tensors. With the program's files at hand these lines are looked for in the functions around the
// call, the innermost first. Which of several it is, or whether it is one of them at all, the code does not
// prove, and the sentence says so.

// keeping are the faults in which something of the program's own keeps tensors.
var keeping = []string{"kept_graph", "leak", "collected_outputs"}

// nearFunctions is in how many functions around the call the line is looked for: what is further out calls
// all kinds of things.
const nearFunctions = 3

var (
	// keepsTensor matches what puts a value where it stays.
	keepsTensor = regexp.MustCompile(`\.(?:append|extend|put|push|insert|store)\(|` +
		`[\w\])]\s*\+=\s*[A-Za-z_(]|=\s*torch\.(?:cat|[vh]?stack|concat)\(`)
	// keepsNumber matches what makes a number of a tensor, or moves it off the GPU, before that.
	keepsNumber = regexp.MustCompile(`\.(?:item|detach|cpu|numpy|tolist)\(|` +
		`\b(?:float|int|len|str|print)\(`)
)

// nameKeeper adds to a fault the line that may keep its blocks, as far as the program's code shows one.
func (c *evidence) nameKeeper(f *fault) {
	if !slices.Contains(keeping, f.Kind) || len(f.lever.changes) == 0 {
		return
	}
	near := nearFunctions
	for _, id := range c.around(f.lever.changes[len(f.lever.changes)-1].Alloc) {
		if !c.ofUser(id) {
			continue
		}
		if near--; near < 0 {
			return
		}
		fn, file, line := c.places.FrameText(id)
		text, ok := c.file(file)
		if !ok {
			continue
		}
		if n := keepingLine(functionOf(text, fn, line), line); n > 0 {
			where := place(fn, file, n)
			f.fix += " Look at " + where + ", which may keep it."
			return
		}
	}
}

// around returns the frames outside of the model in which a block was made, the innermost first.
func (c *evidence) around(id timeline.AllocID) []traces.FrameID {
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

// keepingLine returns the number of the line of a function that keeps a tensor, the first from the one that
// is given on, or the first before it; 0 for none. Functions that are nested in it do not count.
func keepingLine(lines []codeLine, from int) (n int) {
	nested := -1 // the indentation of a nested function
	for i, l := range lines {
		switch {
		case l.blank():
			continue
		case nested >= 0 && l.indent() > nested:
			continue
		case i > 0 && strings.HasPrefix(strings.TrimSpace(l.text), "def "):
			nested = l.indent()
			continue
		}
		nested = -1
		if !keepsTensor.MatchString(l.text) || keepsNumber.MatchString(l.text) {
			continue
		}
		if l.number >= from {
			return l.number
		}
		if n == 0 {
			n = l.number
		}
	}
	return n
}
