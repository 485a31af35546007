package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A second set of weights. The pattern: blocks made by torch.load, copy.deepcopy or a function that saves, as
// many and as large as those of another place. Before the training starts that is a loaded checkpoint, a
// moving average or a reference model; later a copy to save. Look-alikes: a model that was itself loaded from
// a file, which has no twin; optimizer state that was loaded with the weights and is wanted, which is why
// only blocks with a twin count; two equal models that are both wanted, which is why only these makers are
// named.

func copiesFault(c *evidence) (fault, bool) {
	all := weightSets(c)
	var ids []timeline.AllocID
	var best *weightSet
	for _, x := range all {
		if copier(c, x) == "" {
			continue
		}
		t := twins(c, x, all)
		if copier(c, x) == byHand && (!ofMovedModel(c, x, all) || ofOptimizer(c, x)) {
			continue
		}
		if len(t) >= leastCopied && (best == nil || c.bytesOf(t) > c.bytesOf(ids)) {
			best, ids = x, t
		}
	}
	if best == nil {
		return movedAgainFault(c, all)
	}
	maker := copier(c, best)
	bytes, line := c.bytesOf(ids), sites.Name(c.d, best.stack)
	f := fault{Cause: Cause{Kind: "model_copy", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s from %s (%s) have the sizes of another set of weights on this GPU",
		c.u.Bytes(bytes), nBlocks(len(ids)), line, maker)}}
	f.said = fmt.Sprintf("A second set of the model's weights is on the GPU: %s made by %s at %s.",
		c.u.Bytes(bytes), maker, line)
	f.sure(Likely, "sizes and what made them fit; equal models that are all wanted would look the same")
	f.fix = "Keep the copy on the CPU, in half precision, or not at all."
	var changes []Change
	for _, id := range ids {
		changes = append(changes, life(c.d, id, c.d.Allocs.Rounded[id]))
	}
	switch {
	case maker == byHand:
		f.Text = fmt.Sprintf("%s in %s from %s have the sizes of the model's weights",
			c.u.Bytes(bytes), nBlocks(len(ids)), line)
		f.said = fmt.Sprintf("A second set of tensors as large as the model's weights is on the GPU: %s "+
			"made at %s.", c.u.Bytes(bytes), line)
		f.fix = "Keep it on the CPU, p.detach().cpu().clone(), or in half precision: a running average of " +
			"the weights needs no GPU."
		f.lever = remedy{name: "copy_to_cpu", command: at("p.detach().cpu().clone()", line), changes: changes}
	case maker == "torch.load":
		f.fix = "Load it with torch.load(path, map_location=\"cpu\"), and del the checkpoint after " +
			"load_state_dict."
		f.lever = remedy{name: "map_location_cpu",
			command: at("torch.load(path, map_location=\"cpu\")", line), changes: changes}
	case best.late:
		f.Kind = "checkpoint_saving"
		f.said = fmt.Sprintf("A copy of the weights to save is kept on the GPU: %s made by %s at %s.",
			c.u.Bytes(bytes), maker, line)
		f.fix = "Copy to the CPU: {k: v.cpu() for k, v in model.state_dict().items()}, or save it to a file."
		f.lever = remedy{name: "copy_to_cpu",
			command: at("{k: v.cpu() for k, v in model.state_dict().items()}", line), changes: changes}
	default:
		f.lever = remedy{name: "drop_copy", command: at("copy.deepcopy(model).cpu()", line), changes: changes}
	}
	return f, true
}

// ofMovedModel reports whether a set has the sizes of one that nn.Module.to moved, and as many different
// sizes as a model.
func ofMovedModel(c *evidence, x *weightSet, all []*weightSet) bool {
	return len(x.sizes) >= leastSizes && slices.ContainsFunc(all, func(y *weightSet) bool {
		return y != x && !y.late && c.kinds.Of(y.stack).Has(frames.KindModuleMove) && covers(x.sizes, y.sizes)
	})
}

// movedAgainFault is a second copy of models that are on the GPU, which nn.Module.to moves there while a
// training runs: a pipeline that is loaded for a validation. It may be in progress, so that only a part is
// there. Look-alikes: a second model of the same kind that is wanted, too; and tensors with a model's sizes
// that are not a model, such as the directions of a perturbation, before the model itself is moved.
func movedAgainFault(c *evidence, all []*weightSet) (fault, bool) {
	const ofModule = frames.KindModuleMove | frames.KindModuleInit | frames.KindLoad
	has := map[int64]int{}
	for _, y := range all {
		if !y.late && c.kinds.Of(y.stack).Has(ofModule) {
			for size, n := range y.sizes {
				has[size] += n
			}
		}
	}
	var best *weightSet
	for _, x := range all {
		var own, both int64
		for size, n := range x.sizes {
			own += size * int64(n)
			both += size * int64(min(n, has[size]))
		}
		if x.late && c.kinds.Of(x.stack).Has(frames.KindModuleMove) && len(x.sizes) >= leastSizes &&
			10*both >= 9*own && (best == nil || c.bytesOf(x.ids) > c.bytesOf(best.ids)) {
			best = x
		}
	}
	if best == nil {
		return fault{}, false
	}
	bytes, line := c.bytesOf(best.ids), sites.Name(c.d, best.stack)
	f := fault{Cause: Cause{Kind: "model_copy", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s, moved to the GPU at %s once the training had begun, have the sizes of weights "+
			"that are there", c.u.Bytes(bytes), nBlocks(len(best.ids)), line)}}
	f.said = fmt.Sprintf("While the training ran, a second copy of models that are already on the GPU was "+
		"moved there: %s so far, at %s.", c.u.Bytes(bytes), line)
	f.sure(Likely, "sizes fit; another model of the same kind that is wanted would look the same")
	f.fix = "Use the models that are there, for example by passing them to the pipeline, or run it on " +
		"the CPU."
	f.lever = remedy{name: "drop_copy", command: at("Pipeline.from_pretrained(path, unet=unet)", line)}
	for _, id := range best.ids {
		f.lever.changes = append(f.lever.changes, life(c.d, id, c.d.Allocs.Rounded[id]))
	}
	if s := c.d.Event(c.a.At).Stack; s >= 0 && sites.Name(c.d, s) == line {
		f.lever.request = c.a.Asked.Or(0)
	}
	return f, true
}
