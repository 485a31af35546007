package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Weights that do not fit by themselves. The pattern: the request that failed is that of a module that is
// built, loaded or moved, the model has never run, and nearly all that is there was made in that way. What
// looks like it: weights that are on the GPU twice, which are told as model_copy; a second model that is made
// after the first has run; weights beside data that came first, which then hold less than nearly all.
// Transformers and others load in float32 unless told otherwise (transformers issue 21681). Sources:
// transformers' docs, from_pretrained, torch_dtype and device_map; torch.nn.Module.to.

// weightsShare is the share of what is allocated that weights must hold.
const weightsShare = 0.9

func weightsFault(c *evidence) (fault, bool) {
	const makes = frames.KindModuleMove | frames.KindModuleInit | frames.KindUserInit | frames.KindLoad
	s := c.d.Event(c.a.At).Stack
	if len(c.parts) > 0 || !c.kinds.Of(s).Has(makes) {
		return fault{}, false
	}
	var ids []timeline.AllocID
	for _, id := range c.live {
		if c.kinds.Of(c.d.Origin(id)).Has(makes) {
			ids = append(ids, id)
		}
	}
	bytes := c.bytesOf(ids)
	if len(ids) < leastCopied || float64(bytes) < weightsShare*float64(c.total) {
		return fault{}, false
	}
	line := c.userLine(s)
	f := fault{Cause: Cause{Kind: "weights_too_large", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of weights in %d blocks were there when %s asked for the next, before the model ever ran",
		c.u.Bytes(bytes), len(ids), line)}}
	f.said = fmt.Sprintf("The weights alone do not fit: %s of them were there when %s asked for the next %s.",
		c.u.Bytes(bytes), line, c.u.Bytes(c.a.Asked.Or(0)))
	f.fix = "Load them in the type that they were saved in (torch_dtype=\"auto\", model.to(torch.bfloat16) " +
		"before it is moved) or quantised; or divide them over several GPUs (device_map=\"auto\")."
	f.sure(Certain, "modules that are built or moved made nearly all that is there, and no model has run")
	f.lever = remedy{name: "smaller_weights", command: at("model.to(torch.bfloat16).to(\"cuda\")", line)}
	return f, true
}
