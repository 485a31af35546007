package autopsy

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Copies that a hook of the state dict makes. nn.Module.state_dict itself allocates nothing: it returns the
// weights. So what is allocated below it comes from a hook, such as one that returns the weights in single
// precision (apex issue 589). The pattern: live blocks with that function on their stacks.
// Look-alikes: shards that are gathered, which have a detector of their own.

// ofStateDict reports whether nn.Module.state_dict is on a stack, and no code that gathers shards.
func ofStateDict(c *evidence, s traces.StackID) bool {
	if s < 0 {
		return false
	}
	found := false
	for _, id := range c.places.Stacks.At(s) {
		fn, file, _ := c.places.FrameText(id)
		if ofSharding(file) {
			return false
		}
		found = found || fn == "state_dict" && c.kinds.Frames[id].Has(frames.KindTorch) &&
			strings.HasSuffix(file, "nn/modules/module.py")
	}
	return found
}

func stateDictFault(c *evidence) (fault, bool) {
	var ids []timeline.AllocID
	for _, id := range c.live {
		if ofStateDict(c, c.d.Origin(id)) {
			ids = append(ids, id)
		}
	}
	if len(ids) < leastCopied {
		return fault{}, false
	}
	bytes, line := c.bytesOf(ids), c.topName(c.sitesOf(ids))
	f := fault{Cause: Cause{Kind: "checkpoint_saving", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s were made at %s for a state dict", c.u.Bytes(bytes), nBlocks(len(ids)), line)}}
	f.said = fmt.Sprintf("The state dict is a second set of weights on the GPU: a hook made %s of it so far "+
		"at %s.", c.u.Bytes(bytes), line)
	f.fix = "Convert on the CPU what is saved: v.cpu().float(), not v.float(); or save the weights as they " +
		"are."
	f.sure(Certain, "nn.Module.state_dict itself allocates nothing")
	f.lever = remedy{name: "copy_to_cpu", command: at("v.cpu().float()", line),
		changes: neverMade(c, func(id timeline.AllocID) bool { return ofStateDict(c, c.d.Origin(id)) })}
	if ofStateDict(c, c.d.Event(c.a.At).Stack) {
		f.lever.request = c.a.Asked.Or(0)
	}
	return f, true
}
