package fit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces/near"
)

// cards maps presets to the stand-in's models.
var cards = map[string]string{"V100-SXM2-16GB": "v100-16", "V100-SXM2-32GB": "v100",
	"A100-SXM4-40GB": "a100-40", "A100-SXM4-80GB": "a100", "H100-SXM5-80GB": "h100", "H200-SXM-141GB": "h200"}

// cardOf finds the card that a device is.
func cardOf(hw *plan.Hardware) (standin.Card, bool) {
	if model, ok := cards[hw.Name]; ok {
		return standin.CardNamed(model)
	}
	return standin.CardNamed(hw.Name)
}

// cardNamed finds the card that --hardware names. A preset's name means the same card as everywhere else;
// other names are the stand-in's models.
func cardNamed(name string) (standin.Card, error) {
	if len(hardware.Meant(name)) > 0 {
		h, err := hardware.ByName(name)
		if err != nil {
			return standin.Card{}, fmt.Errorf("--hardware: %w", err)
		}
		if c, ok := standin.CardNamed(cards[h.Name]); ok {
			return c, nil
		}
	} else if c, ok := standin.CardNamed(name); ok {
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

// OtherCards returns the names of the cards that are no preset: plans cannot be made for them.
func OtherCards() []string {
	presets := slices.Collect(maps.Values(cards))
	var names []string
	for _, c := range standin.Cards() {
		if !slices.Contains(presets, c.Model) {
			names = append(names, c.Name)
		}
	}
	return names
}

// nearCard returns the name of one of the other cards, without its first words, that is spelled like a name;
// "" if none is.
func nearCard(name string) string {
	joined := func(s string) string { return strings.ReplaceAll(s, " ", "") }
	var words []string // the ends of names, without spaces
	ends := map[string]string{}
	for _, full := range OtherCards() {
		for end, more := full, true; more; _, end, more = strings.Cut(end, " ") {
			words = append(words, joined(end))
			ends[joined(end)] = end
		}
	}
	return ends[near.Word(joined(name), words)]
}

// deviceChosen finds the device that --hardware names for the emulated allocator: hardware that plans can be
// made for, or a card of which we know only the memory and the processors.
func deviceChosen(t *planner.Task) (plan.Hardware, error) {
	hw, err := t.ChosenHardware()
	if err == nil || len(hardware.Meant(t.Hardware)) > 0 || !exit.IsMistake(err) {
		return hw, err
	}
	c, ok := standin.CardNamed(t.Hardware)
	if !ok {
		if card := nearCard(t.Hardware); card != "" {
			return hw, exit.Mistakef("unknown device %q: did you mean %s? gmemtop help hardware lists them",
				t.Hardware, card)
		}
		if hardware.Near(t.Hardware) != "" {
			return hw, err
		}
		return hw, fmt.Errorf("%w. An estimate also takes %s", err, strings.Join(OtherCards(), ", "))
	}
	return plan.Hardware{Name: c.Name, Origin: "a card's memory", MemoryBytes: c.Memory,
		LaunchGap: defaultLaunch}, nil
}

// defaultLaunch is the launch of a kernel on a card that is not among the presets.
const defaultLaunch = 5000

// device is the card with the figures of its preset. A card without one has none: its ops take their launch.
func (r *Real) device() estimate.Device {
	for name, model := range cards {
		if hw, err := hardware.ByName(name); err == nil && model == r.Card.Model {
			return device(&hw, r.Card.Memory)
		}
	}
	return device(&plan.Hardware{Name: r.Card.Name, LaunchGap: defaultLaunch}, r.Card.Memory)
}

// capabilities are compute capabilities and numbers of multiprocessors of presets that are not among the
// stand-in's cards, by prefix of their names. To scripts, any other GPU looks like an A100.
var capabilities = []struct {
	prefix     string
	capability [2]int
	processors int
}{
	{"TITAN X (Maxwell)", [2]int{5, 2}, 24}, {"P100", [2]int{6, 0}, 56}, {"V100", [2]int{7, 0}, 80},
	{"GH200", [2]int{9, 0}, 132}, {"", [2]int{8, 0}, 108},
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
	if model, preset := cards[hw.Name]; preset {
		if c, ok := standin.CardNamed(model); ok {
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
