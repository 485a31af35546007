package autopsy

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// Allocator settings that do harm. roundup_power2_divisions rounds every request up, by up to 100, 50 or 25
// percent with one, two or four divisions; max_split_size_mb leaves the rest of a large block unused, up to
// 20 MiB each. The pattern: blocks hold significantly more than was requested, and one of the two is in
// force. Look-alike: very many tiny tensors, rounded to 512 bytes each, which happens without any setting.
// garbage_collection_threshold releases segments before that is necessary, which costs time and never memory,
// and is not named. Source: PyTorch's notes/cuda, "Optimizing memory usage with PYTORCH_CUDA_ALLOC_CONF";
// round_size and should_split in c10/cuda/CUDACachingAllocator.cpp.

// roundsUp reports whether sizes are rounded up to parts of powers of two.
func roundsUp(c *evidence) bool {
	var divisions map[string]int64
	if json.Unmarshal([]byte(c.d.Timeline().Trace.Setting("roundup_power2_divisions")), &divisions) != nil {
		return false
	}
	for _, n := range divisions {
		if n > 0 {
			return true
		}
	}
	return false
}

func settingsFault(c *evidence) (fault, bool) {
	if c.a.State == nil || !c.a.State.Known || c.a.State.Internal == 0 {
		return fault{}, false
	}
	// How much of it is due to the settings: what exceeds a rounding to 512 bytes, by the size of blocks.
	split, _ := strconv.Atoi(c.d.Timeline().Trace.Setting("max_split_size"))
	rounds := roundsUp(c)
	var bytes int64
	f := fault{}
	for _, id := range c.live {
		n := c.d.Allocs.Rounded[id] - torchalloc.Rounded(c.d.Allocs.Size[id])
		if n <= 0 || !rounds && (split <= 0 || c.d.Allocs.Size[id] < int64(split)) {
			continue
		}
		bytes += n
		f.lever.changes = append(f.lever.changes, life(c.d, id, n))
	}
	if bytes == 0 {
		return fault{}, false
	}
	name := "roundup_power2_divisions"
	if !rounds {
		name = "max_split_size_mb"
	}
	f.Cause = Cause{Kind: "allocator_settings", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"rounding takes %s in %s, with %s in force", c.u.Bytes(bytes),
		nBlocks(len(f.lever.changes)), name)}
	f.said = fmt.Sprintf("The setting %s wastes %s: its blocks are that much larger than the tensors in "+
		"them.", name, c.u.Bytes(bytes))
	f.fix = fmt.Sprintf("Take %s out of PYTORCH_CUDA_ALLOC_CONF, or set expandable_segments:True in its "+
		"place.",
		name)
	f.sure(Certain, ownFigures)
	f.lever.name, f.lever.command = "unset_allocator_settings", "unset PYTORCH_CUDA_ALLOC_CONF"
	return f, true
}
