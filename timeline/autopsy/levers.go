package autopsy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Levers: what the user can change. Each looks at what exists at the moment of the autopsy and is offered
// only if something shows that it would help. Saves is computed on the recording (see whatif.go) or is
// unknown; no share of a peak is guessed. A lever that is based on a category inferred from stacks, or on a
// placement that the allocator would have chosen otherwise, is marked inferred.

// levers returns what would help, the largest saving first; those whose saving the trace does not show come
// last. Levers of faults come first, the main fault's before all others.
func levers(ctx context.Context, d *timeline.Device, a *Result, f *facts, found []fault) ([]Lever, error) {
	if d.Info.Kind == traces.DeviceArena || !d.Timeline().Trace.OfPyTorch() {
		return nil, nil
	}
	c := newLeverCase(ctx, d, a, f)
	all := []Lever{}
	for _, lever := range []func(*leverCase) (Lever, bool){
		expandableLever, cacheLever, splitLever, pendingLever, poolLever,
		lossLever, scoresLever, microBatchLever, checkpointLever, heldLever, gradientLever, freezeLever,
		shardLever, shardParametersLever, foreachLever,
		mixedPrecisionLever, smallOptimizerLever, smallParametersLever, hostWeightsLever,
	} {
		c.tried = nil
		if l, ok := lever(c); ok {
			l.Effect.Changes = c.tried
			all = append(all, l)
		}
		if c.err != nil {
			return nil, c.err
		}
	}
	if c.tried = nil; len(found) == 0 {
		if l, ok := copiedNetworkLever(c, f.units); ok {
			all = append(all, l)
		} else if l, ok := firstCallLever(c, f.units); ok {
			all = append(all, l)
		}
		if a.OOM && d.Info.Kind == traces.DeviceGPU {
			if l, ok := functionLever(c, evidenceOf(d, a, f.units)); ok {
				all = append(all, l)
			} else if l, ok := inputLever(c); ok {
				all = append(all, l)
			}
		}
	}
	for i := range all {
		if err := c.settle(&all[i]); err != nil {
			return nil, err
		}
	}
	single := (a.OOM || a.Inferred) && d.Timeline().Trace.Process.WorldSize.Or(1) < 2
	rank := func(l *Lever) int {
		switch {
		case a.Inferred && single && l.needsRanks():
			return 3 // after what one GPU can do, in the order of the sentence on top
		case l.Saves.Or(0) <= 0:
			return 2
		case single && l.needsRanks():
			return 1 // on one GPU more devices come last of those with a known saving
		}
		return 0
	}
	slices.SortStableFunc(all, func(x, y Lever) int {
		return cmp.Or(cmp.Compare(rank(&x), rank(&y)), cmp.Compare(y.worth(), x.worth()),
			cmp.Compare(y.Fits, x.Fits))
	})
	for _, lever := range []func(*leverCase) (Lever, bool){otherProcessLever, limitLever} {
		if l, ok := lever(c); ok {
			all = append([]Lever{l}, all...)
		}
	}
	if len(found) == 0 {
		mendsFirst(all, a.Causes)
	}
	all = c.faultLevers(found, all)
	if c.err != nil {
		return nil, c.err
	}
	if a.OOM && d.Info.Kind == traces.DeviceGPU {
		c.shows = evidenceOf(d, a, f.units)
	}
	for i := range all {
		all[i].Elsewhere = single && all[i].needsRanks()
		if err := c.finish(&all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// finish adds what is known of a lever once its saving is.
func (c *leverCase) finish(l *Lever) error {
	if c.a.OOM {
		l.Frees = bytesAt(l.Effect.Changes, c.a.At)
	}
	if err := c.settle(l); err != nil {
		return err
	}
	if c.shows != nil {
		l.Holds = c.shows.holds(l)
	}
	return nil
}

// mends names the levers that take a cause of the allocator away.
var mends = map[string][]string{"stranded_pool": {"private_pools", releaseCache},
	"pending_frees": {"pending_frees"}}

// releaseCache is the name of the lever that gives segments back that hold nothing.
const releaseCache = "release_cache"

// mendsFirst puts the lever that takes the main cause away before all others.
func mendsFirst(all []Lever, causes []Cause) {
	for i := range all {
		for _, x := range causes {
			if !x.Main || !slices.Contains(mends[x.Kind], all[i].Name) {
				continue
			}
			l := all[i]
			l.Mends = true
			copy(all[1:i+1], all[:i])
			all[0] = l
			return
		}
	}
}

// worth is a lever's saving, for ordering. A smaller micro-batch changes more of a training than other levers
// do: norms, throughput and related settings. It comes first only if it saves more than twice as much.
// Smaller samples change what the model sees, too, and come after it.
func (l *Lever) worth() int64 {
	saves := l.Saves.Or(-1) // unknown savings come last
	if l.Parts > halves && saves > 0 {
		saves = saves * l.Parts / (halves * (l.Parts - 1)) // an eighth changes no less than half does
	}
	switch {
	case saves <= 0:
		return saves
	case l.Name == microBatch:
		return saves / 2
	case l.ofSamples:
		return saves / 3
	}
	return saves
}

// otherProcessLever is offered where memory outside of this process is the main cause.
func otherProcessLever(c *leverCase) (Lever, bool) {
	outside := func(x Cause) bool {
		return x.Main && (x.Kind == "other_process" || x.Kind == "outside_pytorch")
	}
	return Lever{
		Name: "free_other_process", Command: "nvidia-smi", Mends: true,
		Exactness: timeline.Inferred,
		Text: "stop whatever else uses this GPU, or use another GPU; if this process also runs TensorFlow, " +
			"limit its share (tf.config.experimental.set_memory_growth)",
	}, slices.ContainsFunc(c.a.Causes, outside)
}

// limitLever is offered where the driver had enough for the request, and something kept PyTorch from it.
func limitLever(c *leverCase) (Lever, bool) {
	return Lever{
		Name: raiseLimit, Command: "torch.cuda.set_per_process_memory_fraction(1.0)", Mends: true,
		Exactness: timeline.Inferred,
		Text:      "raise the limit or drop it, if the program or a library sets one",
	}, slices.ContainsFunc(c.a.Causes, isLimit)
}

// settle turns what a lever takes off at the failure into what it takes off the most that the run needed up
// to there: the peak may now come before. What becomes free at the failure stays available for the request.
// If the earlier peak was as high as what the failure needed, it is left unchanged.
func (c *leverCase) settle(l *Lever) error {
	if !c.a.OOM || l.Saves.Or(0) <= 0 || len(l.Effect.Changes) == 0 || l.atFailure > 0 ||
		!c.d.HasLifetimes() {
		return nil
	}
	if c.work == nil {
		c.work = make([]int64, c.d.Len()+2)
	}
	peak, err := peakWithout(c.ctx, c.d, l.Effect.Changes, c.a.At, c.work)
	if err != nil {
		return err
	}
	l.atFailure, l.before = l.Saves.Or(0), peak
	peak = max(peak, l.remains) + l.beside
	if n := c.d.Allocated.At(c.a.At) + c.a.Asked.Or(0) - peak; n > 0 {
		l.Saves = maybe.Known(max(min(l.atFailure-l.beside, n), 0))
	}
	return nil
}

// setting returns the line of shell that sets an allocator option.
func setting(option string) string { return "export PYTORCH_CUDA_ALLOC_CONF=" + option }

func expandableLever(c *leverCase) (Lever, bool) {
	f := c.f
	if !f.known || f.expandable || f.stranded+f.cached == 0 {
		return Lever{}, false
	}
	n := f.unmappable
	if float64(n) < worthShowing*float64(f.reserved) {
		return Lever{}, false
	}
	l := Lever{
		Name: "expandable_segments", Command: setting("expandable_segments:True"), Saves: maybe.Known(n),
		Exactness: timeline.Inferred, Fits: c.fits(n), Effect: Effect{Setting: "expandable_segments:True"},
		Text: fmt.Sprintf("let segments grow and shrink by pages: %s of the holes are whole pages that "+
			"could go back to the driver, "+
			"so that free memory no longer has to be contiguous",
			c.f.units.Bytes(n)),
	}
	return l, true
}

func cacheLever(c *leverCase) (Lever, bool) {
	f := c.f
	if n := f.defaultIdle; float64(n) >= worthShowing*float64(f.reserved) && n > 0 {
		// For a request for a private pool, PyTorch gives back only what that pool has.
		return Lever{
			Name: releaseCache, Command: "torch.cuda.empty_cache()", Saves: maybe.Known(n),
			Exactness: c.d.Totals.Exactness, Fits: c.fits(n),
			Text: fmt.Sprintf("empty the cache before the private pool is used: %s of the default pool hold "+
				"nothing at that moment, and PyTorch does not give them back by itself for another pool",
				f.units.Bytes(n)),
		}, true
	}
	// Before PyTorch reports any other out-of-memory it gives all such segments back itself.
	if c.a.OOM || !f.known || float64(f.cached) < worthShowing*float64(f.reserved) || f.cached == 0 {
		return Lever{}, false
	}
	// DeviceCachingAllocator collects garbage only where a memory fraction was set, of which the threshold is
	// a share; 1.0 will do.
	return Lever{
		Name: releaseCache, Command: "torch.cuda.empty_cache()", Saves: maybe.Known(f.cached),
		Exactness: c.d.Totals.Exactness,
		Text: fmt.Sprintf("release segments that are wholly unused: %s of reserved hold nothing at that "+
			"moment "+
			"(the call does it once; "+
			"PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8 does it whenever 80 %% are "+
			"reserved, but only in a process that has called "+
			"torch.cuda.set_per_process_memory_fraction(1.0))",
			c.f.units.Bytes(f.cached)),
	}, true
}

func splitLever(c *leverCase) (Lever, bool) {
	f := c.f
	if !f.known || f.expandable || f.stranded == 0 || float64(f.stranded) < 0.05*float64(f.reserved) {
		return Lever{}, false
	}
	return Lever{
		Name: "max_split_size", Command: setting("max_split_size_mb:256"),
		Exactness: timeline.Inferred, Effect: Effect{Setting: "max_split_size_mb:256"},
		Text: "keep large segments whole, where expandable segments cannot be used: small blocks then do " +
			"not strand them; what it " +
			"saves depends on the order of allocations",
	}, true
}

func pendingLever(c *leverCase) (Lever, bool) {
	n := c.f.pending
	if n == 0 || float64(n) < worthShowing*float64(c.f.reserved) {
		return Lever{}, false
	}
	return Lever{
		Name: "pending_frees", Command: "export TORCH_NCCL_AVOID_RECORD_STREAMS=1", Saves: maybe.Known(n),
		Exactness: timeline.Inferred, Fits: c.fits(n), Effect: Effect{Prompt: true},
		Text: fmt.Sprintf("wait for the side stream before freeing instead of record_stream: %s are freed "+
			"but not yet "+
			"usable", c.f.units.Bytes(n)),
	}, true
}

func poolLever(c *leverCase) (Lever, bool) {
	n := c.f.otherPools
	if n == 0 || float64(n) < worthShowing*float64(c.f.reserved) {
		return Lever{}, false
	}
	return Lever{
		Name: "private_pools", Command: "torch.cuda.graph(g, pool=shared_pool)", Saves: maybe.Known(n),
		Exactness: timeline.Inferred, Fits: c.fits(n),
		Text: fmt.Sprintf("let CUDA graphs share one pool, or drop those no longer replayed: %s of their "+
			"pools are idle at that "+
			"moment", c.f.units.Bytes(n)),
	}, true
}

// needsRanks reports whether the lever divides what one process holds over several: for a single process that
// takes more devices.
func (l *Lever) needsRanks() bool { return l.Name == "shard_optimizer" || l.Name == "shard_parameters" }

// gerund is a lever as the subject of a sentence.
func (l *Lever) gerund() string { return LeverWords(l.Name, l.Parts) }

// LeverWords names a lever as the subject of a sentence: "halving the micro-batch". parts is [Lever.Parts].
// Lists below a sentence use the same words, so that a reader finds there what the sentence names.
func LeverWords(name string, parts int64) string {
	if w, ok := dividedWords[name]; ok && parts > halves {
		return fmt.Sprintf(w, Fraction(parts))
	}
	if w, ok := leverWords[name]; ok {
		return w
	}
	return strings.ReplaceAll(name, "_", " ")
}

var leverWords = map[string]string{
	"expandable_segments": "expandable segments",
	releaseCache:          "releasing the cache",
	"chunked_loss":        "computing the loss in chunks",
	microBatch:            "halving the micro-batch",
	"checkpoint":          "checkpointing the blocks",
	"del_outputs":         "deleting outputs after their last use",
	"set_to_none":         "freeing the gradients before the forward",
	"shard_optimizer":     "sharding the optimizer",
	"shard_parameters":    "sharding the parameters",
	"foreach":             "an optimizer that works on one parameter at a time",
	"pending_frees":       "not using record_stream",
	"private_pools":       "sharing private pools",

	"detach_metric":             "detaching what is kept",
	"drop_create_graph":         "leaving create_graph=True out",
	"no_grad":                   "torch.no_grad()",
	"backward_each_micro_batch": "a backward after each micro-batch",
	"move_outputs_to_cpu":       "moving results to the CPU",
	"drop_copy":                 "dropping the copy",
	"map_location_cpu":          "loading to the CPU",
	"sdpa":                      "scaled_dot_product_attention",
	"remove_hook":               "removing what keeps outputs",
	"distributed_data_parallel": "DistributedDataParallel",
	"drop_retain_graph":         "leaving retain_graph=True out",
	"freeze_gradients_off":      "freezing what is not trained",
	"copy_to_cpu":               "copying the weights to the CPU",
	"state_dict_to_cpu":         "gathering the state dict to the CPU",
	"cap_sequence":              "capping the length",
	"static_kv_cache":           "a static cache",
	"prefetch_less":             "moving fewer batches ahead",
	"wrap_finer":                "sharding each block by itself",
	"free_other_process":        "freeing what another process holds",
	"drop_references":           "dropping what each step leaves",
	"smaller_workspaces":        "smaller workspaces",
	"bucket_by_length":          "batches of like lengths",
	"expert_capacity":           "a capacity for each expert",
	"balance_stages":            "dividing the layers equally",
	"limit_growth":              "a limit for how large the model gets",
	"offload_unused":            "moving the unused model to the CPU",
	"offload_optimizer":         "moving the optimizer's state to the CPU",
	"schedule_1f1b":             "Schedule1F1B",
	"unset_allocator_settings":  "the allocator's default settings",
	"logits_to_keep":            "logits of the last position alone",
	"free_outside":              "freeing what is outside of PyTorch",
	"mixed_precision":           "mixed precision",
	"optimizer_8bit":            "an optimizer with 8-bit state",
	"smaller_weights":           "weights in a smaller type",
	"weights_on_host":           "keeping a part of the weights on the host",
	"max_split_size":            "keeping large segments whole",
	"roundup_power2_divisions":  "rounding requests up",
	"drop_exception":            "dropping the exception",
	"load_each_batch":           "moving each batch in the loop",
	"smaller_input":             "a smaller input",
	"use_cache_off":             "use_cache=False",
	"autocast_cache_off":        "autocast without its cache",
	"sparse_gradients":          "sparse gradients of embeddings",
	"smaller_vocabulary":        "a sample of the classes",
	"save_for_backward":         "ctx.save_for_backward",
	"smaller_kv_cache":          "a smaller key-value cache",
	raiseLimit:                  "a higher limit for PyTorch",
	"smaller_buffers":           "buffers for some gradients at a time",
	"gradient_as_bucket_view":   "gradient_as_bucket_view=True",
	"sync_each_batch":           "reducing gradients in each micro-batch",
	"norm_of_shards":            "working on the shards of gradients",
}

// savesText is the saving, with a sign for how far it can be trusted, and what it is saved from.
func (l *Lever) savesText(u timeline.Units) string {
	sign := ""
	switch l.Exactness {
	case timeline.Inferred:
		sign = "~"
	case timeline.LowerBound:
		sign = "≥ "
	}
	if l.ofReserved() {
		return sign + u.Bytes(l.Saves.Or(0)) + " of reserved"
	}
	return sign + u.Bytes(l.Saves.Or(0))
}

// ofReserved reports whether a lever only frees memory that no tensor uses.
func (l *Lever) ofReserved() bool {
	switch l.Name {
	case "expandable_segments", releaseCache, "pending_frees", "private_pools":
		return true
	}
	return false
}

// fitText says that the failed request would have been served with a lever.
func (l *Lever) fitText(u timeline.Units) string {
	at := *l
	at.Saves = maybe.Known(max(l.Saves.Or(0), l.atFailure))
	s := fmt.Sprintf("With %s the request would have fit: it frees %s", l.gerund(), at.savesText(u))
	if l.Exactness == timeline.Inferred {
		s += " (inferred)"
	}
	return s + "."
}
