package autopsy

import (
	"cmp"
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// One function of the user's that holds much of the memory in a few blocks, if no fault is found and nothing
// shows that it is out of proportion (see cause_function.go): processing its input in parts is then one lever
// among others. Look-alike: the function that is the whole model, whose input is the batch.

const (
	// leverShare is the share of all memory that the function must hold or ask for.
	leverShare = 0.3
	// mostLarge is how many blocks the function may hold: with more it belongs to a layer, which the model
	// repeats. A helper whose blocks are outsized times larger than all others may run again, and hold
	// mostCalled.
	mostLarge  = 16
	outsized   = 4
	mostCalled = 64
)

// functionHeld is what one function holds.
type functionHeld struct {
	userFunction
	ids   []timeline.AllocID
	bytes int64 // with the request that failed, if the function made that
	asked int64
	most  int64          // its largest block
	whole bool           // it is called by the module that the training calls, which may have no others
	stack traces.StackID // of its largest block, or of the request
}

// largestFunction returns the user's function with few blocks, other than the whole model, that holds most;
// ok is false if none holds enough.
func largestFunction(c *evidence) (best functionHeld, ok bool) {
	if len(c.parts) == 0 { // what is there may be weights
		return best, false
	}
	found, asked := map[userFunction]*functionHeld{}, c.a.Asked.Or(0)
	all := float64(c.total + asked)
	add := func(s traces.StackID, bytes int64) *functionHeld {
		const others = frames.KindStep | frames.KindOptimizer | frames.KindModuleInit |
			frames.KindModuleMove | frames.KindUserInit | frames.KindLoad
		if s < 0 || c.kinds.Of(s).Has(others) {
			return nil
		}
		name, file := c.userFunction(s)
		f := userFunction{name, file}
		whole := c.inModel(s) && c.ofOutermost(s)
		if whole && name == "forward" {
			return nil // the code of the module that the training calls is the whole model
		}
		if name == "" || runsModel(c, name, file) { // on a batch, or on all that there is
			return nil
		}
		if found[f] == nil {
			found[f] = &functionHeld{userFunction: f, stack: s}
		}
		found[f].bytes += bytes
		found[f].most, found[f].whole = max(found[f].most, bytes), found[f].whole || whole
		return found[f]
	}
	for _, id := range c.live {
		if isKept(c.d.Allocs.Category[id]) || c.d.Allocs.Start[id] < c.parts[0].First {
			continue // weights, or data
		}
		if x := add(c.d.Origin(id), c.d.Allocs.Rounded[id]); x != nil {
			x.ids = append(x.ids, id)
		}
	}
	s := c.d.Event(c.a.At).Stack
	if x := add(s, asked); x != nil {
		x.asked, x.stack = asked, s
	}
	for f, x := range found {
		if float64(x.bytes) < leverShare*all {
			continue
		}
		few := len(x.ids) > 0 && len(x.ids) <= mostLarge && !x.whole
		if !few && len(x.ids) > 0 && len(x.ids) <= mostCalled && x.name != "forward" {
			few = x.most >= outsized*largestOfOthers(c, f)
		}
		if few && (!ok || cmp.Or(cmp.Compare(x.bytes, best.bytes),
			cmp.Compare(best.name+best.file, x.name+x.file)) > 0) {
			best, ok = *x, true
		}
	}
	return best, ok
}

// largestOfOthers returns the size of the largest live block that another function than f made.
func largestOfOthers(c *evidence, f userFunction) (most int64) {
	for _, id := range c.live {
		if name, file := c.userFunction(c.d.Origin(id)); name != f.name || file != f.file {
			most = max(most, c.d.Allocs.Size[id])
		}
	}
	return most
}

func functionLever(c *leverCase, of *evidence) (Lever, bool) {
	x, ok := largestFunction(of)
	if !ok {
		return Lever{}, false
	}
	var cuts []Change
	for _, id := range x.ids {
		n := c.d.Allocs.Rounded[id]
		cuts = append(cuts, life(c.d, id, n-partOf(of, n, false)))
	}
	n, _ := c.saves(cuts)
	request := x.asked - partOf(of, x.asked, false)
	line := of.userLine(x.stack)
	l := Lever{
		Name: "smaller_input", Saves: maybe.Known(n + request), Exactness: timeline.Inferred, Unsure: true,
		Fits: c.serves(c.f.asked-request, n), Command: at("for part in x.split(n):", line),
		Text: fmt.Sprintf("let %s work on a part of its input at a time, and checkpoint each part where it "+
			"is trained: with the request, it holds %s", place(x.name, x.file, 0), of.u.Bytes(x.bytes)),
	}
	l.Effect = Effect{Changes: cuts, Less: request}
	return l, n+request > 0
}
