package whatif

import (
	"encoding/json"
	"fmt"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/fidelity"
	"github.com/gmemtop/gmemtop/timeline"
)

// Recorded is the name of the recorded settings.
const Recorded = "recorded"

// Candidate is settings to try.
type Candidate struct {
	// Name is that of the option: expandable_segments, max_split_size, roundup_power2_divisions.
	Name string
	// Option is added to the recorded settings, in the syntax of PYTORCH_CUDA_ALLOC_CONF; Conf is the whole.
	Option, Conf string
	Settings     allocator.Settings
}

// newCandidate returns a device's recorded settings plus an option that candidates knows, which overrides an
// earlier setting of the same option.
func newCandidate(d *timeline.Device, recorded allocator.Settings, name, option string) (Candidate, error) {
	c := Candidate{Name: name, Option: option, Conf: option, Settings: recorded}
	for _, key := range [...]string{"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} {
		var conf string
		text := d.Timeline().Trace.Setting(key)
		if json.Unmarshal([]byte(text), &conf) == nil && conf != "" {
			c.Conf = conf + "," + option
			break
		}
	}
	added, err := allocator.ParseSettings(option)
	if err != nil {
		return Candidate{}, err
	}
	if added.ExpandableSegments {
		c.Settings.ExpandableSegments = true
	}
	if added.MaxSplitSize > 0 {
		c.Settings.MaxSplitSize = added.MaxSplitSize
	}
	for i, n := range added.RoundupPower2Divisions {
		if n > 0 {
			c.Settings.RoundupPower2Divisions[i] = n
		}
	}
	return c, nil
}

// leastSplit is the smallest max_split_size_mb to try: the smallest power of two that PyTorch accepts.
const leastSplit = 32

// candidates returns the settings worth trying on a recording: those not yet in force, and splitting limits
// within the range of its request sizes.
func candidates(d *timeline.Device, recorded allocator.Settings, p *fidelity.Program) []Candidate {
	var all []Candidate
	add := func(name, option string) {
		if c, err := newCandidate(d, recorded, name, option); err == nil {
			all = append(all, c)
		}
	}
	if !recorded.ExpandableSegments {
		add("expandable_segments", "expandable_segments:True")
		for _, n := range splits(recorded, p) {
			add("max_split_size", fmt.Sprintf("max_split_size_mb:%d", n))
		}
	}
	if recorded.RoundupPower2Divisions == ([16]int64{}) {
		for _, n := range [...]int{4, 8} {
			add("roundup_power2_divisions", fmt.Sprintf("roundup_power2_divisions:%d", n))
		}
	}
	return all
}

// splits returns up to three limits in MiB: the smallest, the largest and the middle power of two that the
// largest request exceeds, without the recorded one.
func splits(recorded allocator.Settings, p *fidelity.Program) []int64 {
	var largest int64
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Kind == fidelity.Malloc || s.Kind == fidelity.Fail {
			largest = max(largest, recorded.Round(s.Size))
		}
	}
	var all []int64
	for n := int64(leastSplit); n<<20 < largest && n < 1<<20; n *= 2 {
		if n<<20 != recorded.MaxSplitSize && n<<20 >= recorded.LargeSegmentSize { // PyTorch's minimum
			all = append(all, n)
		}
	}
	if len(all) > 3 {
		all = []int64{all[0], all[len(all)/2], all[len(all)-1]}
	}
	return all
}
