package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
)

// Outcomes of trying a lever.
const (
	// Finishes: this step finishes, and later steps need no more.
	Finishes = "finishes"
	// Postpones: this step finishes, and a later one runs out.
	Postpones = "postpones"
	// ServesRequest: the failed request is served; the rest of the step is not recorded.
	ServesRequest = "serves_request"
	// DoesNotHelp: this step runs out all the same.
	DoesNotHelp = "does_not_help"
	// NotTried: the recording does not allow it, see Reason.
	NotTried = "not_tried"
)

// Tried is the outcome of replaying the recorded run with a lever, up to the failed request and, if the
// process had passed that point in earlier steps, for some steps more.
type Tried struct {
	Outcome string `json:"outcome"`
	// Reason says why it was not tried.
	Reason string `json:"reason,omitempty"`
	// AlsoParts is, for DoesNotHelp, the largest number of parts with which the lever does not help either; 0
	// if it was tried as it is shown only.
	AlsoParts int64 `json:"also_parts,omitempty"`
	// Steps is, for Postpones, about how many steps follow before it runs out again.
	Steps int64 `json:"steps,omitempty"`
	// Peak and PeakReserved are the most bytes allocated and reserved during the play; Capacity is how many
	// bytes may be reserved.
	Peak         *int64 `json:"peak_allocated_bytes"`
	PeakReserved *int64 `json:"peak_reserved_bytes"`
	Capacity     *int64 `json:"capacity_bytes"`
}

// Together are levers that were tried at once.
type Together struct {
	Levers []string `json:"levers"`
	Tried
}

// text describes the outcome.
func (t *Tried) text(u timeline.Units) string {
	switch t.Outcome {
	case Finishes:
		return "this step would have finished, peak " + u.Bytes(*t.Peak) + " allocated" + t.of(u)
	case Postpones:
		steps := "steps"
		if t.Steps == 1 {
			steps = "step"
		}
		return fmt.Sprintf("postpones it by about %d %s", t.Steps, steps)
	case ServesRequest:
		return "the allocation would have succeeded" + t.of(u) + "; the rest of the step is not recorded"
	case DoesNotHelp:
		return "does not help: this step still runs out" + t.Also()
	}
	return "cannot be tried on this recording, because " + t.Reason
}

// Also says with how small a part the lever does not help either, at the end of a sentence; "" if that was
// not tried.
func (t *Tried) Also() string {
	if t.AlsoParts == 0 {
		return ""
	}
	return ", even with " + autopsy.Fraction(t.AlsoParts)
}

func (t *Tried) of(u timeline.Units) string {
	return fmt.Sprintf(", %s of %s reserved", u.Bytes(*t.PeakReserved), u.Bytes(*t.Capacity))
}

// NotTried marks every lever as not tried, and takes back any claim that one fits.
func (d *OOMDevice) NotTried(reason string) {
	for i := range d.Levers {
		d.Levers[i].Tried = &Tried{Outcome: NotTried, Reason: reason}
		d.Levers[i].Fits = nil
	}
	d.takeBack()
}

// takeBack cuts the sentence off before its part about levers.
func (d *OOMDevice) takeBack() {
	if d.advice != "" {
		d.Named = nil
	}
	d.Sentence, d.advice = strings.TrimSuffix(d.Sentence, d.advice), ""
}

// name notes that the sentence names levers.
func (d *OOMDevice) name(levers ...string) {
	for _, l := range levers {
		if !slices.Contains(d.Named, l) {
			d.Named = append(d.Named, l)
		}
	}
}

// advise adds a remark about levers to the end of the sentence.
func (d *OOMDevice) advise(format string, args ...any) {
	s := " " + fmt.Sprintf(format, args...)
	d.Sentence, d.advice = d.Sentence+s, d.advice+s
}

// allocatorCauses are the causes in the allocator and the device; all others are faults of the training, or a
// limit that the program sets.
var allocatorCauses = []string{"capacity", "too_large", "fragmentation", "stranded_pool", "pending_frees",
	"outside_pytorch", "rounding", "unknown", "other_process"}

// faulty reports whether the main cause is a fault of the training. A setting that serves the failed request
// then only hides it for a while.
func (d *OOMDevice) faulty() bool {
	return slices.ContainsFunc(d.Causes, func(c Cause) bool {
		return c.Main && !slices.Contains(allocatorCauses, c.Kind)
	})
}

// levelOf orders outcomes, the most certain first.
var levelOf = map[string]int{Finishes: 0, ServesRequest: 1, Postpones: 2, NotTried: 3, DoesNotHelp: 4}

// level orders levers by their outcome. One that is right only if the training is not what it seems comes
// after others that do as much, and one that needs another device after what this one may do.
func (l *Lever) level() int {
	n := 3 * levelOf[l.Tried.Outcome]
	switch helped := 3 * levelOf[NotTried]; {
	case l.Elsewhere && n < helped:
		return helped + 1
	case l.Unsure && l.Tried.Outcome != DoesNotHelp:
		return 3*levelOf[ServesRequest] + 1
	}
	return n
}

// costOf orders levers by what they cost and change: first code that keeps memory it does not need, then
// settings, then the same numbers computed differently, then time, then different numbers, then more devices,
// then the batch. Names not listed belong to the third kind.
var costOf = map[string]int{
	"del_outputs": 0, "set_to_none": 0, "detach_metric": 0, "drop_create_graph": 0, "no_grad": 0,
	"backward_each_micro_batch": 0, "move_outputs_to_cpu": 0, "drop_copy": 0, "map_location_cpu": 0,
	"free_other_process": 0, "unset_allocator_settings": 0, "drop_retain_graph": 0, "remove_hook": 0,
	"freeze_gradients_off": 0, "copy_to_cpu": 0, "state_dict_to_cpu": 0, "prefetch_less": 0,
	"drop_exception": 0, "load_each_batch": 0, "drop_references": 0, "free_outside": 0,
	"use_cache_off": 0, "autocast_cache_off": 0, "offload_unused": 0, "save_for_backward": 0,
	"offload_optimizer": 0, "smaller_kv_cache": 0,
	"expandable_segments": 1, "max_split_size": 1, "roundup_power2_divisions": 1, "release_cache": 1,
	"pending_frees": 1, "private_pools": 1, "smaller_workspaces": 1,
	"checkpoint": 3, "weights_on_host": 3, "mixed_precision": 4, "optimizer_8bit": 4, "smaller_weights": 4,
	"cap_sequence": 4, "bucket_by_length": 4, "expert_capacity": 4, "limit_growth": 4,
	"smaller_vocabulary": 4,
	"shard_optimizer":    5, "shard_parameters": 5, "distributed_data_parallel": 5, "micro_batch": 6,
}

// cost is what a lever costs, see costOf.
func (l *Lever) cost() int {
	if n, ok := costOf[l.Name]; ok {
		return n
	}
	return 2
}

// ofHoles are the causes where enough memory is free, but not where the request can use it.
var ofHoles = []string{"fragmentation", "stranded_pool", "pending_frees", "rounding"}

// Rank orders tried levers: first those that fix the cause, unless they do not help, then those certain to
// fit, then those that cost and change least. Unless holes are the cause, allocator settings that only serve
// the one request come after all that helps or may. Fits is set to what the trial showed, and what a lever
// saves is known only if the trial went on to the end of the step, or what the run did before bounds the
// rest.
func (d *OOMDevice) Rank() {
	for i := range d.Levers {
		l := &d.Levers[i]
		l.Fits = nil
		if o := l.Tried.Outcome; o == Finishes || o == DoesNotHelp || o == Postpones {
			fits := o == Finishes
			l.Fits = &fits
		}
	}
	holes := slices.ContainsFunc(d.Causes, func(c Cause) bool {
		return c.Main && slices.Contains(ofHoles, c.Kind)
	})
	level := func(l *Lever) int {
		if !holes && l.Effect.Setting != "" && l.Tried.Outcome == ServesRequest {
			// One more request gets through, and the step needs as much as before.
			return 3*levelOf[NotTried] + 2
		}
		return l.level()
	}
	slices.SortStableFunc(d.Levers, func(x, y Lever) int {
		return cmp.Or(cmp.Compare(x.turn(), y.turn()), cmp.Compare(level(&x), level(&y)),
			cmp.Compare(y.Tried.Steps, x.Tried.Steps), cmp.Compare(x.second(), y.second()),
			cmp.Compare(x.cost(), y.cost()),
			cmp.Compare(y.saves(), x.saves()))
	})
	for i := range d.Levers {
		l := &d.Levers[i]
		if l.partly || l.Tried.Outcome == ServesRequest && l.Simulated == nil && !l.holds {
			l.Saves = nil
			if frees := l.frees; frees > 0 {
				l.Frees = &frees
			}
		}
	}
}

// turn is 0 for a lever that fixes the cause, as far as the trial shows, and 1 for others: a setting that
// gets one more request through does not compete with it.
func (l *Lever) turn() int {
	if l.Mends && l.Tried.Outcome != DoesNotHelp {
		return 0
	}
	return 1
}

// second is 1 for a lever that mends the cause only if the training is not what it seems to be: the lever of
// what it seems to be comes first if it helps as much.
func (l *Lever) second() int {
	if l.alternative {
		return 1
	}
	return 0
}

// mostPairs is how many pairs are tried.
const mostPairs = 6

// Pairs returns the indices of levers to try together, the cheapest first: none if one lever is enough.
func (d *OOMDevice) Pairs() [][2]int {
	var tried []int
	for i := range d.Levers {
		switch d.Levers[i].Tried.Outcome {
		case Finishes, ServesRequest:
			return nil
		case NotTried:
		default:
			tried = append(tried, i)
		}
	}
	var all [][2]int
	for k, i := range tried {
		for _, j := range tried[k+1:] {
			if d.Levers[i].Name != d.Levers[j].Name {
				all = append(all, [2]int{i, j})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y [2]int) int {
		cost := func(p [2]int) int { return max(d.Levers[p[0]].cost(), d.Levers[p[1]].cost()) }
		return cmp.Compare(cost(x), cost(y))
	})
	return all[:min(len(all), mostPairs)]
}

// SayTried ends the sentence with the first lever that helps and its outcome, replacing what the sentence
// said about levers before they were tried. Next to a fault of the training it names only levers that finish
// the step.
func (d *OOMDevice) SayTried(u timeline.Units) {
	d.takeBack()
	faulty := d.faulty()
	first := slices.IndexFunc(d.Levers, func(l Lever) bool {
		return !l.Unsure && levelOf[l.Tried.Outcome] < levelOf[NotTried]
	})
	switch {
	case d.Together != nil && (!faulty || d.Together.Outcome == Finishes):
		one, other := d.Together.Levers[0], d.Together.Levers[1]
		d.name(one, other)
		d.advise("Tried %s together with %s: %s.", d.Words(one), d.Words(other),
			d.Together.text(u))
	case first >= 0 && (!faulty || first == 0 && d.Levers[0].Tried.Outcome == Finishes):
		l := &d.Levers[first]
		d.name(l.Name)
		d.advise("Tried %s: %s.", l.Words(), l.Tried.text(u))
	case !faulty:
		d.advise("No single change that this recording lets us try is enough.")
	}
}
