package say

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Told is a sentence as an agent tells it: its code and what fills its gaps. The agent sends a text beside
// it, which people see where this program does not know the code. Older agents send that text alone.
type Told struct {
	Code   string `json:"code,omitempty"`
	Values []any  `json:"values,omitempty"`
}

// maxNested bounds sentences within sentences. The agent's own go two deep.
const maxNested = 4

// Text returns the sentence, or text if it is not one that this program knows.
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

// UnmarshalJSON reads what an agent sends. What is no sentence is not an error: it has no code.
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

// AgentSentences returns the agent's sentences by their codes, with %s for gaps, for a program that says them
// without a viewer.
func AgentSentences() map[string]string { return maps.Clone(agent) }

// agent has what an agent says, by code. Gaps are %s.
var agent = map[string]string{
	// How it comes and goes.
	"torch_not_loaded": "torch is not loaded in this process: attach once the program has imported " +
		"it, or name the process that trains",
	"torch_too_old": "torch %s is too old: an agent needs %s or newer. Update torch, or see what " +
		"the GPU's driver allocates with gmemtop attach --probes",
	"agent_lives": "another agent lives in this process, and this gmemtop cannot find it: watch the " +
		"process as the user who started that agent, with the same XDG_RUNTIME_DIR",
	"agent_failed":    "the agent met an error and has gone; training goes on: %s",
	"last_words_lost": "%s; its last words were lost: %s",
	"wrapped_since":   "%s, which the program wrapped after us",

	// Steps.
	"first_step": "waiting for the first optimizer step",
	"no_optimizer_steps": "%s backward passes and no optimizer step: a row ends when an optimizer " +
		"of torch.optim has stepped. gmemtop does not see other optimizers, nor one that torch 2.2 has " +
		"compiled; a newer torch shows that one",
	"allocator_counts_nothing": "the program uses %s, which counts nothing: steps have no figures " +
		"of the GPU's memory",
	"allocator_named":     "the allocator %s",
	"allocator_rmm":       "RMM's pluggable allocator",
	"allocator_pluggable": "a pluggable allocator",

	// What did not reach a viewer.
	"viewer_late": "no viewer read them for too long",
	"viewer_left": "the viewer left while it was sent",
	"viewer_slow": "the viewer had not taken the ones before",

	// Orders.
	"captures_next": "waiting for the step's end, then capturing %s",
	"superseded":    "a newer order came before this one began",
	"unknown_order": "this agent knows no order %s",

	// Windows.
	"compiled":        "torch.compile is in use",
	"mode_of_its_own": "the program has a dispatch mode of its own",
	"history_instead": "%s, and capturing ops would run other code than what trains: the " +
		"allocator's history shows what is allocated instead, though not what uses it",
	"profile_instead": "%s, and capturing ops would run other code than what trains: torch's " +
		"profiler shows what is allocated instead, though not what uses it",
	"profiler_busy":  "the program runs torch's profiler itself, and there is only one",
	"history_of_cpu": "the allocator keeps no history of the CPU's memory: capture ops instead",
	"history_of_pluggable": "the program uses %s, which keeps no history: leave torch's own in " +
		"place, or capture ops",
	"history_of_backend": "the program uses %s, which keeps no history: unset backend in " +
		"PYTORCH_CUDA_ALLOC_CONF, or capture ops",
	"history_busy": "the program records the allocator's history itself, and one recording would " +
		"end the other",
	"compiled_meanwhile": "torch.compile came into use while a step was captured op by op: the " +
		"window would show it uncompiled and is thrown away",
	"graphs_replayed": "%s CUDA graphs were replayed: gmemtop does not see the ops in them",
	"costs_unknown":   "the time that copies take could not be measured: %s",
	"saves_unseen":    "what autograd saves was not seen up to step %s: %s",

	// Tensors that wait on the host until there is a plan.
	"offloads":   "what autograd saves waits on the host until there is a plan",
	"saves_stay": "what autograd saves stays on the device: %s",
	"compiled_saves": "torch.compile is in use, and gmemtop does not see what a compiled graph " +
		"saves",

	// Plans.
	"plan_off":       "off, and training goes on as before: %s",
	"plan_not_begun": "not begun: %s",
	"plan_malformed": "the plan is malformed: %s",
	"plan_version":   "the plan is of version %s, and this agent carries out version 1",
	"plan_rocm": "torch is built for ROCm here, and plans are carried out on CPUs and NVIDIA GPUs: " +
		"capture and replay work without one",
	"plan_device":          "the plan is for %s, and the parameters are on %s",
	"device_without_plans": "the parameters are on %s, and plans are carried out on cpu and cuda",
	"device_unknown":       "no optimizer says where the parameters are",
	"mode_around_steps":    "the program has a dispatch mode of its own around its steps",
	"host_full": "it takes %s MiB of host memory, of which %s MiB are available: plan with " +
		"recompute, or with a larger budget",
	"host_full_ranks": "it takes %s MiB of host memory (%s ranks of this host together), of which " +
		"%s MiB are available: plan with recompute, or with a larger budget",
	"compiled_plan": "torch.compile is in use, and what a compiled graph saves is not seen tensor " +
		"by tensor: set torch._functorch.config.activation_memory_budget instead",
	"hooks_of_its_own": "the program has hooks on saved tensors of its own around its modules",
	"hooks_forbidden": "the program runs its modules where torch allows no hooks on saved tensors, " +
		"as torch.func does",
	"func_inside": "torch.func is used inside of a module",
	"graphs_replay": "the program replays CUDA graphs, and gmemtop cannot see what they read and " +
		"write",
	"graph_captured": "the program captures a CUDA graph, which would repeat forever what the plan " +
		"does meanwhile",
	"other_iteration": "saved tensor %s has %s bytes, and %s in the plan: it was made for smaller " +
		"batches, or for another model; ask again, or crop all batches to one shape",
	"other_saves": "%s tensors were saved, and %s when it was made: it was made for another model, or " +
		"for batches that take another number of ops",
	"differs_swapped": "%s of %s tensors were not the same to the bit when they were used again, " +
		"first saved tensor %s, which came back from the host",
	"differs_recomputed": "%s of %s tensors were not the same to the bit when they were used again, " +
		"first saved tensor %s, which was computed again by %s",

	// The pool.
	"pool_platform": "the pool runs on Linux, on x86-64 and arm64: the other managers need neither",
	"pool_free_threads": "the pool was not tried with a free-threaded Python: the other managers " +
		"work with it",
	"pool_device": "the pool knows the memory of NVIDIA GPUs and of the host, not of %s: the other " +
		"managers work with it",
	"pool_torch":   "the pool knows torch %s to %s and this is %s: the other managers work with it",
	"pool_arm_gpu": "on a GPU the pool runs on x86-64: the other managers work here",
	"pool_rocm": "the pool knows CUDA, and torch is built for ROCm here: capture and replay work " +
		"without a plan",
	"pool_pluggable": "the pool stands in front of torch's native allocator, and this program has " +
		"put a pluggable one in its place: leave torch's own there",
	"pool_backend": "the pool stands in front of torch's native allocator, and this program uses " +
		"%s: unset backend in PYTORCH_CUDA_ALLOC_CONF",
	"pool_no_caching": "PYTORCH_NO_CUDA_MEMORY_CACHING turns torch's allocator off: unset it",
	"pool_slots": "torch %s has its allocator's functions at %s, not at %s: it is no torch that is " +
		"known",
	"pool_library": "the pool's library cannot be loaded in this process (%s): it has to be able to " +
		"read and execute it",
	"pool_does_not_fit": "the pool's library and torch's allocator do not fit",
	"pool_of_parent": "this process is the child of one that has a pool: plan in a process of its " +
		"own",
	"pool_of_device": "the pool of another device lived in this process: restart the program",
	"pool_in_use":    "another pool is in use in this process: turn that one off first",
	"pool_off":       "the pool was turned off",
	"pool_stale": "stale: of what is planned, less than half was served in three iterations in a " +
		"row",
	"pool_left": "%s tensors that the pool served are still alive: %s bytes go with the last of " +
		"them",
	"pool_wrapped": "another tool has put itself in front of the pool: it stays, and hands " +
		"everything on",
	"arena_full":      "there is no memory for the arena",
	"entry_misplaced": "the plan is malformed: an entry lies outside of the arena or is not aligned",
	"entries_missing": "the plan has no entry with a place",
	"entries_many":    "the plan has %s entries in %s bytes: from 1 to %s can be served",
	"tables_full":     "there is no memory for the plan's tables",
	"plan_in_use":     "a plan is in use: turn it off first",
	"tensors_alive": "tensors from earlier plans are still alive: have the program free them, " +
		"or restart it",
	"tensors_of_stream": "tensors from a plan of another stream are still alive: try again after " +
		"the next step",
	"records_itself": "on a GPU torch records its allocator itself: capture a window at the depth " +
		"history",
	"recording_full":  "there is no memory to record in",
	"library_missing": "torch's %s is not in this process",
	"symbols_unread": "the symbols of %s cannot be read (%s): was torch updated since the program " +
		"began? restart it",
	"allocator_missing": "torch has no allocator for %s yet: wait for the first step",
	"allocator_replaced": "torch's allocator for %s is not its own, or its library has no symbols: " +
		"another tool or a pluggable allocator is in its place",
	"allocator_unknown": "torch's allocator has no %s that is known: this version of gmemtop does " +
		"not know this torch",
}
