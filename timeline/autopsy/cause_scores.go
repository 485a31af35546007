package autopsy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Attention scores: several equal blocks from the function that calls softmax inside the model, which grow
// with the square of the sequence length. The softmax may be the user's own, written out in a function of
// that name, whose caller then is the attention. Look-alikes: a softmax over classes at the end of the model,
// of which there is one; a gate of a mixture of experts, which is small. They are the cause of an
// out-of-memory error if they are a good part of the memory. Short sequences have scores, too, beside more of
// everything else: then, and for a peak, they are a lever.

// leastScores is how many blocks of their size there must be, and leastScoresOfModule how many are enough in
// PyTorch's own module for attention.
const (
	leastScores         = 3
	leastScoresOfModule = 2
)

// scoresShare is the share of allocated and requested memory from which scores are the cause. Those of short
// sequences have less beside what the other layers keep.
const scoresShare = 0.4

// softmaxOf reports whether a stack is inside a softmax that is not a loss's.
func softmaxOf(c *evidence, s traces.StackID) bool {
	if s < 0 || c.kinds.Of(s).Has(frames.KindLoss) || !c.kinds.Of(s).Has(frames.KindModel) {
		return false
	}
	for _, id := range c.d.Timeline().Places().Stacks.At(s) {
		if fn, _, _ := c.d.Timeline().Places().FrameText(id); strings.Contains(fn, "softmax") {
			return true
		}
	}
	return false
}

// attentionOf adds the user's functions to which a softmax's blocks belong: the one that calls it and, if
// that is a softmax of the user's own, its caller too.
func attentionOf(c *evidence, s traces.StackID, out map[method]bool) {
	i := sites.Frame(c.d, s)
	if s < 0 || i < 0 {
		return
	}
	stack := c.d.Timeline().Places().Stacks.At(s)
	for ; i < len(stack); i++ {
		if c.kinds.Frames[stack[i]].Has(frames.KindLibrary | frames.KindNoise) {
			continue
		}
		m := c.methodAt(stack[i])
		out[m] = true
		if !strings.Contains(m.name, "softmax") {
			break
		}
	}
}

// attentionScores are the blocks of one size around the largest softmax of the model, and around others of
// that size. Every module has a forward, so a function is one of a class, where the code can be read.
type attentionScores struct {
	ids  []timeline.AllocID
	size int64 // of the largest that a softmax made
	at   traces.StackID
	in   map[method]bool
	of   map[traces.StackID]method // found so far: each takes a walk through its file
}

// inside reports whether a stack ends in one of the functions.
func (x *attentionScores) inside(c *evidence, s traces.StackID) bool {
	m, known := x.of[s]
	if !known {
		if i := sites.Frame(c.d, s); s >= 0 && i >= 0 {
			m = c.methodAt(c.d.Timeline().Places().Stacks.At(s)[i])
		}
		x.of[s] = m
	}
	return x.in[m]
}

// has reports whether a block of a size is one of them.
func (x *attentionScores) has(c *evidence, s traces.StackID, size int64) bool {
	return logitsSized(size, x.size) && x.inside(c, s)
}

// scores finds the attention scores that are there.
func scores(c *evidence) (x attentionScores, ok bool) {
	a := &c.d.Allocs
	first := timeline.NoAlloc
	soft := map[traces.StackID]bool{}
	for _, id := range c.live {
		s := c.d.Origin(id)
		is, known := soft[s]
		if !known {
			is = softmaxOf(c, s)
			soft[s] = is
		}
		if is && (first == timeline.NoAlloc || a.Size[id] > a.Size[first]) {
			first = id
		}
	}
	if first == timeline.NoAlloc {
		return x, false
	}
	x.at, x.size = c.d.Origin(first), a.Size[first]
	x.in, x.of = map[method]bool{}, map[traces.StackID]method{}
	around := map[traces.StackID]bool{}
	for _, id := range c.live {
		if s := c.d.Origin(id); soft[s] && !around[s] && logitsSized(a.Size[id], x.size) {
			around[s] = true
			attentionOf(c, s, x.in)
		}
	}
	for _, id := range c.live {
		if x.has(c, c.d.Origin(id), a.Size[id]) {
			x.ids = append(x.ids, id)
		}
	}
	n, least := len(x.ids), leastScores
	if e := c.d.Event(c.a.At); c.a.OOM && logitsSized(e.Size, x.size) && (x.inside(c, e.Stack) ||
		e.Stack == traces.NoStack || c.kinds.Of(e.Stack).Has(frames.KindBackwardPass)) {
		n++ // the request that failed, or its gradient's
	}
	if ofAttentionModule(c, x.at) {
		least = leastScoresOfModule
	}
	return x, n >= least && len(x.in) > 0
}

// withoutScores leaves the scores of all calls out, which are smaller in calls with shorter sequences.
func withoutScores(c *evidence, x *attentionScores) []Change {
	a := &c.d.Allocs
	soft, largest := map[traces.StackID]bool{}, map[int]int64{} // of a softmax, by part
	for id := timeline.AllocID(0); id < timeline.AllocID(a.Len()); id++ {
		s := c.d.Origin(id)
		is, known := soft[s]
		if !known {
			is = softmaxOf(c, s) && x.inside(c, s)
			soft[s] = is
		}
		if is {
			i := steps.PartAt(c.parts, a.Start[id])
			largest[i] = max(largest[i], a.Size[id])
		}
	}
	return neverMade(c, func(id timeline.AllocID) bool {
		s, n := c.d.Origin(id), largest[steps.PartAt(c.parts, a.Start[id])]
		return x.has(c, s, a.Size[id]) || n > 0 && logitsSized(a.Size[id], n) && x.inside(c, s)
	})
}

// ofAttentionModule reports whether a stack is inside nn.MultiheadAttention while that computes the scores
// itself, to return their mean, as it does unless called with need_weights=False.
func ofAttentionModule(c *evidence, s traces.StackID) bool {
	return slices.ContainsFunc(c.places.Stacks.At(s), func(id traces.FrameID) bool {
		fn, _, _ := c.places.FrameText(id)
		return fn == "multi_head_attention_forward" && c.kinds.Frames[id].Has(frames.KindTorch)
	})
}

// withoutStoring returns what to do about attention scores, as a sentence and as code.
func withoutStoring(c *evidence, s traces.StackID) (fix, command string) {
	if ofAttentionModule(c, s) {
		return "Call nn.MultiheadAttention with need_weights=False: it then uses " +
			"scaled_dot_product_attention, which does not store the scores.", "need_weights=False"
	}
	return "Use F.scaled_dot_product_attention(q, k, v), or attn_implementation=\"sdpa\": it does not " +
		"store the scores.", "F.scaled_dot_product_attention(q, k, v)"
}

// request returns how much of the failed request the scores' is.
func (x *attentionScores) request(c *evidence) int64 {
	if x.has(c, c.d.Event(c.a.At).Stack, c.a.Asked.Or(0)) {
		return c.a.Asked.Or(0)
	}
	return 0
}

// large reports whether the scores and the request, if it is for them, are a good part of the memory.
func (x *attentionScores) large(c *evidence) bool {
	asked, total := c.a.Asked.Or(0), int64(0)
	for _, id := range c.live {
		total += c.d.Allocs.Rounded[id]
	}
	return float64(c.bytesOf(x.ids)+x.request(c)) >= scoresShare*float64(total+asked)
}

func scoresFault(c *evidence) (fault, bool) {
	x, ok := scores(c)
	if !ok || !x.large(c) {
		return fault{}, false
	}
	bytes, line := c.bytesOf(x.ids), sites.Name(c.d, x.at)
	f := fault{Cause: Cause{Kind: "attention_scores", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of about %s around the softmax at %s: they grow with the square of the sequence's length",
		nBlocks(len(x.ids)), c.u.Bytes(x.size), line)}}
	f.said = fmt.Sprintf("Attention scores take %s: %s of about %s around the softmax at %s.",
		c.u.Bytes(bytes), nBlocks(len(x.ids)), c.u.Bytes(x.size), line)
	f.sure(Certain, "a softmax inside the model made blocks of this size")
	fix, command := withoutStoring(c, x.at)
	f.fix = fix
	f.lever = remedy{name: "sdpa", command: at(command, line),
		changes: withoutScores(c, &x)}
	f.lever.request = x.request(c)
	return f, true
}

// scoresLever offers what scoresFault advises, at a peak or where scores are not the cause.
func scoresLever(c *leverCase) (Lever, bool) {
	of := &evidence{history: history{code: codeOf(c.d), d: c.d, at: c.a.At, says: nothingSaid()}, a: c.a,
		u: c.f.units, live: c.live}
	if c.a.OOM {
		of = evidenceOf(c.d, c.a, c.f.units)
	}
	x, ok := scores(of)
	if !ok || c.a.OOM && x.large(of) {
		return Lever{}, false
	}
	n, ok := c.saves(withoutScores(of, &x))
	line := sites.Name(c.d, x.at)
	fix, command := withoutStoring(of, x.at)
	return Lever{
		Name: "sdpa", Saves: maybe.Known(n), Exactness: timeline.Inferred, Fits: c.fits(n),
		Command: at(command, line),
		Text: fmt.Sprintf("%s; %s of about %s around the softmax at %s hold %s", clause(fix),
			nBlocks(len(x.ids)), c.f.units.Bytes(x.size), line,
			c.f.units.Bytes(of.bytesOf(x.ids))),
	}, ok
}
