// Package emit writes plans as Python files that carry them out in programs of their own, without gmemtop.
package emit

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
)

// Refused is the error of a plan that no program can carry out by itself.
type Refused struct{ err error }

func (r *Refused) Error() string { return r.err.Error() }

// Unwrap returns the reason.
func (r *Refused) Unwrap() error { return r.err }

func refuse(format string, args ...any) error { return &Refused{fmt.Errorf(format, args...)} }

// Python returns a plan as a Python file that carries it out in a program of its own, as the agent does in a
// running training. Sizes in its text are in units u.
func Python(p *plan.Problem, r *replay.Result, u timeline.Units) (string, error) {
	switch {
	case r.Plan.Policy != nil:
		return allocatorFile(r)
	case r.Plan.Parks:
		return "", refuse("the plan also has optimizer state wait on the host, which only gmemtop does: ask "+
			"for a larger budget, or train with gmemtop run --manager %s", r.Info.Name)
	case r.Plan.Executor == plan.TorchEager:
	case r.Info.Family == plan.Pooling:
		return "", refuse("%s only chooses addresses, which PyTorch's allocator does not take from a plan: "+
			"try its settings (expandable)", r.Info.Name)
	case len(r.Plan.Absences) == 0:
		return "", refuse("%s has nothing to do: a step already fits into %s", r.Info.Name,
			u.Bytes(r.Plan.Budget))
	default:
		return "",
			refuse("%s made this plan for the executor %s: have it made for eager PyTorch", r.Info.Name,
				r.Plan.Executor)
	}
	words, err := live.Encode(p, r.Plan, live.Same)
	if errors.Is(err, live.ErrNotLive) {
		return "", &Refused{err}
	}
	if err != nil {
		return "", err
	}
	table, err := pythonTable(words)
	if err != nil {
		return "", err
	}
	peak, _ := r.Plan.PeakLive()
	all, _ := p.PeakLive()
	head := fmt.Sprintf(`"""%s's plan for %s: %s at the peak of a step instead of %s. %s

It needs torch 2.2 or newer and nothing else. Before the loop:

    import %s
    less = %s.carry(optimizer)

The plan is in force from the first step on; less.remove() ends it. With several optimizers name the one
that steps first. The numbers in PLAN are those of the model, batch and sequence that were recorded: at
others everything is kept in memory, as without it, and less.why says so. What is learnt is the same to the
last bit, which is checked: where a tensor returns changed, as ops that add in no fixed order make it, the
plan ends. It does not work with torch.compile.
"""
`, r.Info.Name, p.Name, u.Bytes(peak), u.Bytes(all), replay.Treatment(p, r.Plan), moduleName, moduleName)
	tail := `

class Plan(Carrier):
    """PLAN, carried out from one step of an optimizer to the next."""

    def __init__(self, optimizer):
        Carrier.__init__(self, torch, PLAN)
        self.begin()
        self.hook = optimizer.register_step_post_hook(self._stepped)

    def _stepped(self, optimizer, args, kwargs):
        # Of the step: bytes out and back, nanoseconds of ops that ran again, and tensors that stayed although
        # the plan moves them, that were compared, and that differed.
        self.moved = self.next()
        if self.why:
            self.remove()

    def remove(self):
        self.hook.remove()
        Carrier.remove(self)


def carry(optimizer):
    """Carry PLAN out while optimizer steps. Call it between two steps, on the thread that trains."""
    return Plan(optimizer)


# save is the number of the saved tensor in a step. how is swap, to the host and back, or drop, where the ops
# of its group run again. release and fetch are the numbers of the save and of the load at which it goes and
# returns. Groups are ops by name and number.
PLAN = ` + table
	return head + pytorch.CarrySource() + tail, nil
}

// pythonTable returns a plan that was encoded for the agent as Python, one line for each value and each
// group.
func pythonTable(words []byte) (string, error) {
	var t struct {
		Version int               `json:"version"`
		Device  string            `json:"device"`
		Slab    int64             `json:"slab"`
		Values  []json.RawMessage `json:"values"`
		Groups  []json.RawMessage `json:"groups"`
	}
	if err := json.Unmarshal(words, &t); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "{\n    \"version\": %d, \"device\": %q, \"slab\": %d,\n", t.Version, t.Device, t.Slab)
	for _, x := range []struct {
		name string
		rows []json.RawMessage
	}{{"values", t.Values}, {"groups", t.Groups}} {
		fmt.Fprintf(&b, "    %q: [\n", x.name)
		for _, r := range x.rows {
			fmt.Fprintf(&b, "        %s,\n", r)
		}
		b.WriteString("    ],\n")
	}
	b.WriteString("}\n")
	return b.String(), nil
}

// moduleName is the name that the file's text assumes for the file.
const moduleName = "less_memory"

// allocatorFile returns a file with the settings of PyTorch's allocator that a baseline represents.
func allocatorFile(r *replay.Result) (string, error) {
	settings := r.Plan.Policy.Settings
	switch {
	case !allocator.InTorch(r.Plan.Policy.Name):
		return "", refuse("%s is not an allocator of PyTorch's", r.Info.Name)
	case settings == "":
		return "", refuse("%s is PyTorch as it is: there is nothing to write", r.Info.Name)
	}
	return fmt.Sprintf(`"""Settings of PyTorch's allocator that %s stands for. Import this before torch."""
import os

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", %s)
`, r.Info.Name, pythonString(settings)), nil
}

// pythonString quotes a string of settings, which are words, numbers and punctuation.
func pythonString(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
