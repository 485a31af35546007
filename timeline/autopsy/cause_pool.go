package autopsy

import (
	"fmt"
	"regexp"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A key-value cache that a server or an engine reserves at once, as much as it may have of the GPU, beside
// something else that needs memory, such as the training of the model that it generates with. The pattern:
// one line outside of the model made several equal blocks, before the call or step that failed, and its code
// or the names around it say that they are a cache. Look-alikes: buffers for data, which have other names; a
// cache that grows, whose blocks the model makes. Source: trl issue 2688, vLLM's gpu_memory_utilization.

// poolShare is the share of allocated and requested memory that the pool must hold.
const poolShare = 0.3

// namesCache matches code that makes a key-value cache.
var namesCache = regexp.MustCompile(`(?i)kv_?cache|key_?value_?cache|key_cache|cache_k|\bk_cache`)

func poolFault(c *evidence) (fault, bool) {
	if len(c.parts) == 0 {
		return fault{}, false
	}
	type kind struct {
		stack traces.StackID
		size  int64
	}
	a, alike, best := &c.d.Allocs, map[kind][]timeline.AllocID{}, kind{stack: traces.NoStack}
	var bytes int64
	sum := map[kind]int64{}
	for _, id := range c.live {
		s := c.d.Origin(id)
		if a.Start[id] >= c.parts[len(c.parts)-1].First || s < 0 || c.inModel(s) {
			continue
		}
		k := kind{s, a.Size[id]}
		alike[k] = append(alike[k], id)
		if sum[k] += a.Rounded[id]; sum[k] > bytes {
			best, bytes = k, sum[k]
		}
	}
	pool := alike[best]
	if len(pool) < leastLayers || float64(bytes) < poolShare*float64(c.total+c.a.Asked.Or(0)) ||
		!makesCache(c, best.stack) {
		return fault{}, false
	}
	line := c.userLine(best.stack)
	f := fault{Cause: Cause{Kind: "kv_cache", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of %s each came from %s and were never given back", nBlocks(len(pool)), c.u.Bytes(best.size),
		line)}}
	f.said = fmt.Sprintf("%s reserves a key-value cache of %s in %s, which stays on the GPU while the rest "+
		"runs.", line, c.u.Bytes(bytes), nBlocks(len(pool)))
	f.fix = "Give it a smaller share of the GPU (gpu_memory_utilization), or free it while nothing is " +
		"generated (vLLM's sleep mode)."
	f.sure(Likely, "equal blocks that code named as a cache made beforehand")
	f.lever = remedy{name: "smaller_kv_cache", command: at("gpu_memory_utilization /= 2", line)}
	f.instead = remedy{name: "offload_unused", command: at("llm.sleep()", line)}
	f.elseFix = "if nothing is generated while the model trains, free the cache for that time"
	for _, id := range pool {
		f.lever.changes = append(f.lever.changes, life(c.d, id, a.Rounded[id]/2))
		from := max(c.parts[len(c.parts)-1].First, a.Start[id])
		f.instead.changes = append(f.instead.changes, Change{id, from,
			min(a.Requested[id], timeline.Moment(c.d.Len())), a.Rounded[id]})
	}
	return f, true
}

// makesCache reports whether frames say that a stack makes a key-value cache, or the statement in the
// program's code that it ends in.
func makesCache(c *evidence, s traces.StackID) bool {
	if c.kinds.Of(s).Has(frames.KindCache) {
		return true
	}
	at := c.d.Timeline().Places().Stacks.At(s)
	if len(at) == 0 || !c.ofUser(at[0]) {
		return false
	}
	_, file, line := c.places.FrameText(at[0])
	text, ok := c.file(file)
	lines := linesOf(text)
	if !ok || line < 1 || line > len(lines) {
		return false
	}
	for i := line - 1; i >= 0; i-- { // up to where the statement begins
		if namesCache.MatchString(lines[i].text) {
			return true
		}
		if assignsTo.MatchString(lines[i].text) || lines[i].blank() {
			break
		}
	}
	return false
}

// assignsTo matches a line that begins an assignment to a name.
var assignsTo = regexp.MustCompile(`^\s*[\w.]+\s*(?::[^=]+)?=[^=]`)
