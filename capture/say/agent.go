package say

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Told is a sentence as an agent sends it: its code and what fills its gaps. The agent also sends a text,
// which people see if this program does not know the code. Older agents send only the text.
type Told struct {
	Code   string `json:"code,omitempty"`
	Values []any  `json:"values,omitempty"`
}

// maxNested bounds the nesting of sentences. The agent's are at most three deep.
const maxNested = 4

// Text returns the sentence, or text if this program does not know it.
func (t Told) Text(text string) string {
	if said, ok := t.text(maxNested); ok {
		return said
	}
	return text
}

func (t Told) text(nested int) (string, bool) {
	sentence, ok := agent[t.Code]
	if !ok || nested == 0 || strings.Count(sentence, "%s") != len(t.Values) {
		return "", false
	}
	gaps := make([]any, len(t.Values))
	for i, v := range t.Values {
		switch v := v.(type) {
		case string, json.Number:
			gaps[i] = v
		case Told:
			if gaps[i], ok = v.text(nested - 1); !ok {
				return "", false
			}
		default:
			return "", false
		}
	}
	return fmt.Sprintf(sentence, gaps...), true
}

// Label returns the sentence that an agent sent as the label of a block, or text if this program does not
// know it.
func Label(says json.RawMessage, text string) string {
	var t Told
	if err := json.Unmarshal(says, &t); err != nil {
		return text
	}
	return t.Text(text)
}

// UnmarshalJSON reads what an agent sends. Anything that is not a sentence gets no code; that is not an
// error.
func (t *Told) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err
	}
	*t = told(v, maxNested)
	return nil
}

func told(v any, nested int) (t Told) {
	fields, ok := v.(map[string]any)
	if !ok || nested == 0 {
		return Told{}
	}
	t.Code, _ = fields["code"].(string)
	t.Values, _ = fields["values"].([]any)
	for i, v := range t.Values {
		if _, ok := v.(map[string]any); ok {
			t.Values[i] = told(v, nested-1)
		}
	}
	return t
}

// WhyOff returns the reason in an agent's sentence that a plan is off, or all of any other text. Callers say
// themselves what the training does now.
func WhyOff(text string) string {
	return strings.TrimPrefix(text, strings.TrimSuffix(agent["plan_off"], "%s"))
}

// AgentSentences returns the agent's sentences by code, with %s for gaps, for programs that show them without
// a viewer.
func AgentSentences() map[string]string { return maps.Clone(agent) }

// agent has the agent's sentences by code. Gaps are %s.
var agent = map[string]string{
	// Attaching and leaving.
	"torch_not_loaded": "torch is not loaded in this process: attach once the program has imported " +
		"it, or name the process that trains",
	"torch_too_old": "torch %s is too old: the agent needs %s or newer. Update torch, or see what " +
		"the GPU's driver allocates with gmemtop attach --probes",
	"agent_lives": "another agent is running in this process, and this gmemtop cannot find it: run " +
		"gmemtop as the user who started that agent, with the same XDG_RUNTIME_DIR",
	"torch_import_failed": "the program failed to import torch",
	"agent_failed":        "the agent hit an error and stopped; training goes on: %s",
	"last_words_lost":     "%s; its last message was lost: %s",
	"wrapped_since":       "%s, which the program wrapped after gmemtop did",

	// Steps.
	"first_step": "waiting for the first optimizer step",
	"no_optimizer_steps": "%s backward passes but no optimizer step: gmemtop sees the steps of " +
		"torch.optim's optimizers, unless torch 2.2 compiled them, and of others if the model is an " +
		"nn.Module",
	"allocator_counts_nothing": "the program uses %s, which keeps no statistics: steps have no figures for " +
		"GPU memory",
	"allocator_named":     "the allocator %s",
	"allocator_rmm":       "RMM's pluggable allocator",
	"allocator_pluggable": "a pluggable allocator",

	// Losses on the way to a viewer.
	"viewer_late": "no viewer read them in time",
	"viewer_left": "the viewer left while it was being sent",
	"viewer_slow": "the viewer had not read the earlier ones yet",

	// Orders.
	"captures_next": "waiting for the end of the step, then capturing %s",
	"superseded":    "a newer request came before this one began",
	"unknown_order": "this agent does not know the request %s",

	// Windows.
	"compiled":        "torch.compile is in use",
	"mode_of_its_own": "the program uses its own dispatch mode",
	"history_instead": "%s, and capturing ops would run other code than the training does: the allocator's " +
		"history shows what is allocated instead, though not what uses it",
	"profile_instead": "%s, and capturing ops would run other code than the training does: torch's " +
		"profiler shows what is allocated instead, though not what uses it",
	"profiler_busy":  "the program is running torch's profiler itself, and only one can run at a time",
	"history_of_cpu": "the allocator keeps no history of the CPU's memory: capture ops instead",
	"history_of_pluggable": "the program uses %s, which keeps no history: leave torch's own in " +
		"place, or capture ops",
	"history_of_backend": "the program uses %s, which keeps no history: unset backend in " +
		"PYTORCH_CUDA_ALLOC_CONF, or capture ops",
	"history_busy": "the program is recording the allocator's history itself, and only one recording can " +
		"run at a time",
	"compiled_meanwhile": "torch.compile was first used while a step was being captured op by op: " +
		"the window would show it uncompiled, so it is discarded",
	"untouched":       "not touched by these steps",
	"of_step_before":  "of the step before",
	"workspace":       "workspace of %s",
	"graphs_replayed": "%s CUDA graphs were replayed: gmemtop does not see the ops in them",
	"costs_unknown":   "the time that copies take could not be measured: %s",
	"copies_untimed":  "some copies could not be timed",
	"reruns_untimed":  "some recomputed ops could not be timed",
	"saves_unseen":    "gmemtop did not see what autograd saved up to step %s: %s",

	// Tensors that wait on the host until there is a plan.
	"offloads":   "saved tensors wait on the host until there is a plan",
	"saves_stay": "saved tensors stay on the device: %s",
	"compiled_saves": "torch.compile is in use, and gmemtop does not see what a compiled graph " +
		"saves",

	// Plans.
	"plan_off":       "off, and training goes on as before: %s",
	"plan_not_begun": "not begun: %s",
	"plan_malformed": "the plan is malformed: %s",
	"plan_version":   "the plan has version %s, but this agent only supports version 1",
	"plan_rocm": "torch is built for ROCm here, but plans run only on CPUs and NVIDIA GPUs: capture " +
		"and replay work without a plan",
	"plan_device":          "the plan is for %s, but the parameters are on %s",
	"device_without_plans": "the parameters are on %s, but plans run only on cpu and cuda",
	"device_unknown":       "cannot tell where the parameters are: no optimizer is known",
	"mode_around_steps":    "the program uses its own dispatch mode around its steps",
	"host_full": "it takes %s MiB of host memory, but only %s MiB are available: plan with " +
		"recompute, or with a larger budget",
	"host_full_ranks": "it takes %s MiB of host memory (%s ranks of this host together), but only %s " +
		"MiB are available: plan with recompute, or with a larger budget",
	"compiled_plan": "torch.compile is in use, and a compiled backward pass fetches all saved tensors " +
		"before its first op, so moving them would not lower the peak: to recompute instead, set " +
		"torch._functorch.config.activation_memory_budget = 0.7, or another share below 1, before the " +
		"model is compiled",
	"hooks_of_its_own": "the program has its own saved-tensor hooks around its modules",
	"hooks_forbidden": "the program runs its modules where torch forbids saved-tensor hooks, as " +
		"torch.func does",
	"func_inside": "torch.func is used inside a module",
	"graphs_replay": "the program replays CUDA graphs, and gmemtop cannot see what they read and " +
		"write",
	"graph_captured": "the program captures a CUDA graph, which would repeat what the plan does at capture " +
		"in every replay",
	"other_iteration": "saved tensor %s has %s bytes, but %s in the plan: the plan was made for " +
		"smaller batches, or for another model; ask again, or crop all batches to one shape",
	"other_saves": "%s tensors were saved, but %s when the plan was made: the model has changed, or the " +
		"batches take a different number of ops, as sequences of other lengths do in a recurrent network; " +
		"pad or crop all batches to one length",
	"other_places": "%s tensors were saved, and the plan knows the places of only %s: the model has " +
		"changed, or its steps have little in common; ask again, or train with steps that " +
		"run the same modules",
	"changed_outside": "the program changed a tensor in place, outside of modules, that the plan needed as " +
		"it was, so a gradient of that step may be wrong: train without recomputing",
	"differs_swapped": "%s of %s tensors were not bit-identical when used again; the first was " +
		"saved tensor %s, which came back from the host",
	"differs_recomputed": "%s of %s tensors were not bit-identical when used again; the first was " +
		"saved tensor %s, which %s recomputed",
	"rerun_failed": "running %s again failed (%s: %s), so dropped tensors came back from copies on the host",
	"rerun_retried": "running %s again failed at first (%s: %s), and succeeded once %s MiB of saved " +
		"tensors were on the host",
	"fetch_retried": "a tensor could not come back from the host at first (%s: %s), and did once %s MiB of " +
		"saved tensors had left",
	"state_retried": "optimizer state could not come back from the host at first (%s: %s), and did once %s " +
		"MiB of saved tensors had left",
	"differs_state": "%s of %s tensors of the optimizer's state were not bit-identical when they came back " +
		"from the host",
	"state_stays": "the plan keeps %s MiB of optimizer state on the host, but only %s MiB can leave: the " +
		"program holds other references to the rest",
	"state_uncounted": "this build of torch does not tell what else refers to a tensor's memory, so " +
		"optimizer state stays: use torch 2.2 or newer with CUDA",

	// The pool.
	"pool_platform":     "the pool runs only on Linux, on x86-64 and arm64: use another manager here",
	"pool_free_threads": "the pool is untested with free-threaded Python: use another manager",
	"pool_device": "the pool handles the memory of NVIDIA GPUs and of the host, not of %s: use another " +
		"manager",
	"pool_torch":   "the pool supports torch %s to %s, and this is %s: use another manager",
	"pool_arm_gpu": "on a GPU the pool runs only on x86-64: use another manager here",
	"pool_rocm": "the pool supports CUDA, and torch is built for ROCm here: capture and replay work " +
		"without a plan",
	"pool_pluggable": "the pool wraps torch's native allocator, but this program has replaced it " +
		"with a pluggable one: use torch's own",
	"pool_backend": "the pool wraps torch's native allocator, but this program uses %s: unset " +
		"backend in PYTORCH_CUDA_ALLOC_CONF",
	"pool_no_caching": "PYTORCH_NO_CUDA_MEMORY_CACHING turns torch's allocator off: unset it",
	"pool_slots": "torch %s has its allocator's functions at %s, not at %s: gmemtop does not know " +
		"this build of torch",
	"pool_library": "the pool's library cannot be loaded in this process (%s): the process must be " +
		"able to read and execute it",
	"pool_does_not_fit": "the pool's library does not match torch's allocator",
	"pool_of_parent":    "this process is the child of one that has a pool: plan in a separate process",
	"pool_of_device":    "this process has had a pool for another device: restart the program",
	"pool_in_use":       "another pool is in use in this process: turn it off first",
	"pool_off":          "the pool was turned off",
	"pool_stale": "three iterations in a row got less than half of their allocations from the plan: " +
		"addresses fit only steps that allocate the same sizes in the same order; pad or crop all batches " +
		"to one shape, or use a manager that moves or recomputes",
	"pool_left":       "%s tensors from the pool are still alive: %s bytes are freed with the last of them",
	"pool_wrapped":    "another tool has wrapped the pool: the pool stays and passes everything on",
	"arena_full":      "not enough memory for the arena",
	"entry_misplaced": "the plan is malformed: an entry lies outside of the arena or is not aligned",
	"entries_missing": "the plan has no entry with an address",
	"entries_many":    "the plan has %s entries in %s bytes, and the pool supports 1 to %s entries",
	"tables_full":     "not enough memory for the plan's tables",
	"plan_in_use":     "a plan is in use: turn it off first",
	"tensors_alive": "tensors from earlier plans are still alive: let the program free them, or " +
		"restart it",
	"tensors_of_stream": "tensors from a plan for another stream are still alive: try again after " +
		"the next step",
	"records_itself": "on a GPU torch records its allocator itself: capture allocator history " +
		"instead",
	"recording_full":  "not enough memory to record",
	"library_missing": "torch's %s is not loaded in this process",
	"symbols_unread": "cannot read the symbols of %s (%s): was torch updated since the program " +
		"began? restart it",
	"not_elf":           "it is not a 64-bit ELF file",
	"allocator_missing": "torch has no allocator for %s yet: wait for the first step",
	"allocator_replaced": "another tool or a pluggable allocator has replaced torch's allocator for " +
		"%s, or its library has no symbols",
	"allocator_unknown": "torch's allocator has no known %s: this version of gmemtop does not know " +
		"this torch",
}
