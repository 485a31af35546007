package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline/sites"
)

// One request that is too large by itself. The pattern: it is more than all that the process could have, and
// several times any block that there is. What looks like it: a batch that is too large throughout, of which
// blocks of that size are there already; a GPU of which another process has nearly all. The line that asked
// is the place to look at: a broadcast makes every pair of its inputs, x[:, None] - x[None] all differences
// at once.

// requestTimes is how many times the largest block there is one request must ask for.
const requestTimes = 4

func requestFault(c *faultCase) (fault, bool) {
	if c.a.Asked < 0 || c.a.Free < 0 || c.a.State == nil {
		return fault{}, false
	}
	could := c.d.Reserved.At(c.a.At) + c.a.Free
	line := sites.Name(c.d, c.d.Event(c.a.At).Stack)
	var largest int64
	for _, id := range c.live {
		largest = max(largest, c.d.Allocs.Size[id])
	}
	if could < smallestGPU || c.a.Asked <= could || c.a.Asked < requestTimes*largest || line == "" {
		return fault{}, false
	}
	f := fault{Cause: Cause{Kind: "too_large", Bytes: c.a.Asked, Text: fmt.Sprintf(
		"%s asked for %s in one block, and the process could have %s in all", line, c.u.Bytes(c.a.Asked),
		c.u.Bytes(could))}}
	f.said = fmt.Sprintf("%s asked for a single tensor of %s, and all that this process could have is %s.",
		line, c.u.Bytes(c.a.Asked), c.u.Bytes(could))
	f.fix = "Look at the shapes at that line: a broadcast such as x[:, None] - x[None] makes all pairs at " +
		"once; compute it in chunks, or with a function that does not, such as torch.cdist."
	f.sure(Certain, ownFigures)
	f.lever = remedy{name: "smaller_input", command: at("for part in x.split(n):", line), request: c.a.Asked}
	return f, true
}
