package autopsy

import "strings"

// Other ways to free what a fault keeps. A recording shows which blocks stay and which line made them. It
// does not show what the program still needs them for, which decides between detaching a value, moving it to
// the CPU and not keeping it. An expert would name all three and say when each is right, and so does gmemtop:
// after the main fault's lever come others that end the same blocks at the same moments, so they save as
// much. Faults with a single way out are not listed.

// way is another lever of a fault.
type way struct {
	name, command string
	when          string // a clause that says when it is right, and what to do
	graphless     bool   // no backward pass follows, so there are no gradients
}

var (
	withoutGraph = way{name: "no_grad", command: "with torch.no_grad():", graphless: true,
		when: "if it is never differentiated, compute it under torch.no_grad()"}
	detached = way{name: "detach_metric", command: "value = value.detach()", graphless: true,
		when: "if only its numbers are used later, detach it before it is kept"}
	onHost = way{name: "move_outputs_to_cpu", command: "kept.append(value.detach().cpu())",
		when: "if it is needed later, keep it on the CPU without its graph"}
	notKept = way{name: "drop_references", command: "del value",
		when: "if nothing reads it later, do not keep it, or drop it as soon as it has been read"}
	eachBatch = way{name: "load_each_batch", command: "batch = batch.to(device, non_blocking=True)",
		when: "if it is data, keep it on the CPU and move each batch in the loop"}
	loadedOnHost = way{name: "map_location_cpu", command: "torch.load(path, map_location=\"cpu\")",
		when: "if it was loaded from a file, load it to the CPU"}
	copiedToHost = way{name: "copy_to_cpu",
		command: "{k: v.cpu() for k, v in model.state_dict().items()}",
		when:    "if it is needed later, keep the copy on the CPU"}
	copyDropped = way{name: "drop_copy", command: "del copy",
		when: "if the copy is no longer needed, delete it"}
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
	"checkpoint_saving":     {copyDropped},
}

// alternative is another way out of a fault, and when it is right.
type alternative struct {
	remedy
	when string
}

// otherwise returns the other ways out of a fault. A fault whose lever cannot be tried has none.
func (f *fault) otherwise() (out []alternative) {
	if len(f.lever.changes) == 0 {
		return nil
	}
	_, line, _ := strings.Cut(f.lever.command, placeMark)
	for _, w := range otherWays[f.Kind] {
		r := f.lever
		r.name, r.command = w.name, at(w.command, line)
		if w.graphless {
			r.beside = 0
		}
		out = append(out, alternative{r, w.when})
	}
	return out
}
