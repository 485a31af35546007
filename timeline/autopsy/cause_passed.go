package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// State that each call of the model passes to the next, kept with the results: the keys and values of a
// generation, in an output that a program stores for each answer (generative-computing/mellea pull request
// 544). The pattern: calls without a graph left blocks, and in the call before, the same lines made as many
// blocks that were a little smaller and ended. So the last call of each generation left what it would have
// passed on. Look-alike: a hook or an attribute that collects, which leaves something from every call.

// passedShare is the minimum size of a block relative to the one that replaces it.
const passedShare = 0.5

// passedOn reports whether most of what the calls left replaced something that the call before had made.
func passedOn(c *evidence, calls []steps.Part, ids []timeline.AllocID) bool {
	type of struct {
		call  int
		stack traces.StackID
	}
	left := map[of][]timeline.AllocID{}
	for _, id := range ids {
		for i := range calls[:len(calls)-1] {
			if p := &calls[i]; c.d.Allocs.Start[id] >= p.First && c.d.Allocs.Start[id] < calls[i+1].First {
				k := of{i, c.d.Origin(id)}
				left[k] = append(left[k], id)
				break
			}
		}
	}
	var bytes int64
	for k, kept := range left {
		if k.call == 0 || calls[k.call-1].Caller != calls[k.call].Caller {
			continue
		}
		size, before, ended := c.d.Allocs.Size[kept[0]], 0, true
		first, end := c.d.AllocsIn(calls[k.call-1].First, calls[k.call].First)
		for id := first; id < end; id++ {
			n := c.d.Allocs.Size[id]
			if c.d.Origin(id) != k.stack || n >= size || float64(n) < passedShare*float64(size) {
				continue
			}
			before++
			ended = ended && c.d.Allocs.Requested[id] <= c.a.At
		}
		if before == len(kept) && ended {
			bytes += c.bytesOf(kept)
		}
	}
	return 2*bytes > c.bytesOf(ids)
}

// passed is the fault of calls that left behind what they would have handed on.
func (o *openCalls) passed() fault {
	f := o.begun("collected_outputs")
	f.said = fmt.Sprintf("The results of %s of the model at %s still hold the state that one call passes to "+
		"the next, such as keys and values: %s.", nCalls(o.count), o.line(), o.bytes())
	f.sure(Likely, "blocks took the place of smaller ones of the call before, and the last ones stay; other "+
		"states that grow would look the same")
	f.fix = "Keep the tokens or the text of each result, and drop the rest: output.past_key_values = None."
	f.lever = remedy{name: "drop_references", command: at("output.past_key_values = None", o.line()),
		changes: nextCall(o.evidence, o.all())}
	f.instead, f.elseFix = f.lever, onHost.when
	f.instead.name, f.instead.command = onHost.name, at(onHost.command, o.line())
	return f
}
