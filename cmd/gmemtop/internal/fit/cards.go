package fit

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// cards maps presets to the stand-in's models where their names differ by more than the vendor's words.
var cards = map[string]string{"V100-SXM2-16GB": "v100-16", "V100-SXM2-32GB": "v100",
	"A100-SXM4-40GB": "a100-40", "A100-SXM4-80GB": "a100", "H100-SXM5-80GB": "h100", "H200-SXM-141GB": "h200"}

// cardOf finds the card that a device is.
func cardOf(hw *plan.Hardware) (standin.Card, bool) {
	if model, ok := cards[hw.Name]; ok {
		return standin.CardNamed(model)
	}
	return standin.CardNamed(hw.Name)
}

// cardNamed finds the card that --hardware names: a name means the same here as everywhere else.
func cardNamed(name string) (standin.Card, error) {
	h, err := hardware.ByName(name)
	if err != nil {
		return standin.Card{}, fmt.Errorf("--hardware: %w", err)
	}
	if c, ok := cardOf(&h); ok {
		return c, nil
	}
	return standin.Card{}, fmt.Errorf("--hardware %q is not a card that PyTorch's own allocator can be "+
		"run for: %s, or all", name, strings.Join(cardNames(), ", "))
}

func cardNames() []string {
	var names []string
	for _, c := range standin.Cards() {
		names = append(names, c.Name)
	}
	return names
}

// device is the card with the figures of its preset. A card without one has none: its ops take no time but
// their launch.
func (r *Real) device() estimate.Device {
	for _, hw := range hardware.Presets() {
		if c, ok := cardOf(&hw); ok && c.Model == r.Card.Model {
			return device(&hw, r.Card.Memory)
		}
	}
	return device(&plan.Hardware{Name: r.Card.Name, LaunchGap: defaultLaunch}, r.Card.Memory)
}

// defaultLaunch is the launch of a kernel on a card that is not among the presets.
const defaultLaunch = 5000

// capabilities are compute capabilities and numbers of multiprocessors of presets that are not among the
// stand-in's cards, by prefix of their names. To scripts, any other GPU looks like an A100.
var capabilities = []struct {
	prefix     string
	capability [2]int
	processors int
}{
	{"TITAN X (Maxwell)", [2]int{5, 2}, 24}, {"P100", [2]int{6, 0}, 56}, {"V100", [2]int{7, 0}, 80},
	{"GH200", [2]int{9, 0}, 132}, {"A10", [2]int{8, 6}, 72}, {"A40", [2]int{8, 6}, 84},
	{"L40", [2]int{8, 9}, 142}, {"", [2]int{8, 0}, 108},
}

// device converts a GPU for an estimate.
func device(hw *plan.Hardware, memory int64) estimate.Device {
	d := estimate.Device{Name: "NVIDIA " + hw.Name, MemoryBytes: memory, FlopsPerSecond: hw.FlopsPerSecond,
		FlopsType: hw.FlopsType, BytesPerSecond: hw.BytesPerSecond, LaunchGap: hw.LaunchGap}
	if c, ok := cardOf(hw); ok {
		d.Name, d.Capability, d.Processors = c.Name, c.Capability, c.Processors
		return d
	}
	for _, c := range capabilities {
		if strings.HasPrefix(hw.Name, c.prefix) {
			d.Capability, d.Processors = c.capability, c.processors
			return d
		}
	}
	return d
}

// memory returns a device's memory in bytes. For a preset that is what its driver reports, a little less than
// in its data sheet; measured hardware has its own figure.
func memory(hw *plan.Hardware) int64 {
	if preset, err := hardware.ByName(hw.Name); err == nil && preset == *hw {
		if c, ok := cardOf(hw); ok {
			return c.Memory
		}
	}
	return hw.MemoryBytes
}

// variants says which cards an ambiguous name could mean and which one is used; "" for an unambiguous name.
func variants(name string) string {
	all := hardware.Meant(name)
	h, err := hardware.ByName(name)
	if len(all) < 2 || err != nil {
		return ""
	}
	return fmt.Sprintf("%s is used, the smallest of those that %q may mean: %s", h.Name, name,
		strings.Join(all, ", "))
}
