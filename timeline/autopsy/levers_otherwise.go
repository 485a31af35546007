package autopsy

import "strings"

// Other ways to let go of what a fault keeps. A recording shows which blocks stay and which line made them.
// It does not show what the program still wants them for, and that decides between detaching a value, moving
// it to the CPU and not keeping it. Whoever answers such a question names all of these and says when each is
// right. So the main fault's lever is followed by others, of which each ends the same blocks at the same
// moments, so that what it saves is the same. Faults that have only one way out are not listed.

// way is another lever of a fault.
type way struct {
	name, command string
	when          string // a clause that says when it is right, and what to do
}

var (
	withoutGraph = way{"no_grad", "with torch.no_grad():",
		"if nothing of it is ever differentiated, compute it under torch.no_grad()"}
	detached = way{"detach_metric", "value = value.detach()",
		"if only its numbers are used later, detach it before it is kept"}
	onHost = way{"move_outputs_to_cpu", "kept.append(value.detach().cpu())",
		"if it is needed later, keep it on the CPU without its graph"}
	notKept = way{"drop_references", "del value",
		"if nothing reads it later, do not keep it, or drop it as soon as it was read"}
	eachBatch = way{"load_each_batch", "batch = batch.to(device, non_blocking=True)",
		"if it is data, keep it on the CPU and move each batch in the loop"}
	loadedOnHost = way{"map_location_cpu", "torch.load(path, map_location=\"cpu\")",
		"if it was loaded from a file, load it to the CPU"}
	copiedToHost = way{"copy_to_cpu", "{k: v.cpu() for k, v in model.state_dict().items()}",
		"if it is needed later, keep the copy on the CPU"}
	copyDropped = way{"drop_copy", "del model", "if it is not needed any more, drop it"}
)

// otherWays lists the other ways out of a fault by its kind, the more common first.
var otherWays = map[string][]way{
	"kept_graph":            {withoutGraph, onHost},
	"leak":                  {onHost, eachBatch},
	"collected_outputs":     {notKept},
	"hook_keeps":            {onHost, notKept},
	"context_keeps":         {notKept},
	"one_backward_for_many": {withoutGraph, detached},
	"retained_graph":        {detached},
	"double_backward":       {detached},
	"prefetch":              {notKept},
	"model_copy":            {copyDropped, loadedOnHost, copiedToHost},
	"checkpoint_saving":     {copyDropped, loadedOnHost},
}

// otherwise returns the other ways out of a fault. A fault whose lever cannot be tried has none.
func (f *fault) otherwise() (out []remedy, texts []string) {
	if len(f.lever.changes) == 0 {
		return nil, nil
	}
	_, line, _ := strings.Cut(f.lever.command, placeMark)
	for _, w := range otherWays[f.Kind] {
		r := f.lever
		r.name, r.command = w.name, at(w.command, line)
		out, texts = append(out, r), append(texts, w.when)
	}
	return out, texts
}
