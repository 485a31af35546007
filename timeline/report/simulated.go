package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
)

// Simulation is a device's recording played through an emulated allocator under other settings. The caller
// runs it: this package knows no emulation.
type Simulation struct {
	// Available is false if the recording cannot be played; Reason says why.
	Available bool   `json:"available"`
	Reason    string `json:"reason"`
	// Emulator describes how closely the emulation with the recorded settings follows the recording; Fidelity
	// is the share of allocations for which it does.
	Emulator string  `json:"emulator"`
	Fidelity float64 `json:"fidelity"`
	// Capacity is what the allocator may hold, nil for no limit; CapacityAtLeast says that the true capacity
	// may have been higher.
	Capacity        *int64 `json:"capacity_bytes"`
	CapacityAtLeast bool   `json:"capacity_at_least"`
	// FromStart is false if the recording begins in the middle, with a state shaped by the recorded settings.
	FromStart bool                `json:"from_start"`
	Recorded  *SimulatedSettings  `json:"recorded"`
	Settings  []SimulatedSettings `json:"settings"`
	Notes     []string            `json:"notes"`
}

// SimulatedSettings is the simulated run under some settings of the allocator. In bytes; nil if unknown.
type SimulatedSettings struct {
	// Name is the lever's name, Setting the added option, Conf all options.
	Name    string `json:"name"`
	Setting string `json:"setting"`
	Conf    string `json:"conf"`
	// Fits says whether every request was served under the capacity, including the one that failed; nil
	// without a capacity.
	Fits         *bool  `json:"fits"`
	PeakReserved int64  `json:"peak_reserved_bytes"`
	SmallestCap  *int64 `json:"smallest_cap_bytes"`
	// Spare is the capacity minus the smallest cap; negative if memory is missing.
	Spare       *int64 `json:"spare_bytes"`
	DriverCalls int64  `json:"driver_calls"`
	Retries     int64  `json:"retries"`
	Exactness   string `json:"exactness"`
}

// worthShowing is the share of the recorded figure below which a saving is not offered.
const worthShowing = 0.01

// worthSaying is the share of the recorded figure below which the first sentences do not speak of a saving.
const worthSaying = 0.05

// Simulate merges a simulation into the report: levers that are allocator settings get its figures, settings
// that help and were not offered become levers, levers that turn out to save nothing are dropped, and
// settings that serve the failed request come first. If the recording cannot be played the report says so,
// and no lever claims to fit.
func (d *OOMDevice) Simulate(s *Simulation, u timeline.Units) {
	d.Simulation = s
	if !s.Available || s.Recorded == nil {
		if d.OOM {
			d.NotTried(s.Reason)
		}
		return
	}
	var told *Lever
	for _, name := range [...]string{"expandable_segments", "max_split_size", "roundup_power2_divisions"} {
		best := d.best(name)
		if best == nil {
			continue
		}
		helps := d.helps(best)
		i := slices.IndexFunc(d.Levers, func(l Lever) bool { return l.Name == name })
		switch {
		case !helps && (i < 0 || !s.FromStart): // from a start that other settings shaped, "no" shows nothing
			continue
		case i < 0:
			d.Levers = append(d.Levers, Lever{Name: name})
			i = len(d.Levers) - 1
		}
		l := &d.Levers[i]
		claimed := l.Fits != nil && *l.Fits
		d.price(l, best)
		if claimed && l.Fits != nil && !helps && !d.faulty() {
			d.advise("Simulated, it does not fit with %s.", best.Setting)
		}
		if !helps && (!d.OOM || l.saves() <= 0) {
			d.Levers = slices.Delete(d.Levers, i, i+1) // it was an estimate, and does not hold
		}
	}
	slices.SortStableFunc(d.Levers, func(x, y Lever) int {
		return cmp.Or(cmp.Compare(y.rank(), x.rank()), cmp.Compare(y.spare(), x.spare()),
			cmp.Compare(y.saves(), x.saves()))
	})
	for i := range d.Levers {
		l := &d.Levers[i]
		if l.Simulated == nil || !d.helps(l.Simulated) || !d.OOM && !d.worthSaying(l) {
			continue
		}
		if told == nil || !d.OOM && l.saves() > told.saves() {
			told = l
		}
	}
	d.correctSaving(told)
	if told != nil && !d.faulty() {
		d.name(told.Name)
		d.advise("%s", d.simulatedSentence(told.Simulated, u))
	}
}

// correctSaving acts where the simulation contradicts what the sentence calls the biggest saving. The
// sentence then names the next lever that saves more than told, or none. told is the simulated lever that the
// sentence will name at its end, nil for none.
func (d *OOMDevice) correctSaving(told *Lever) {
	if len(d.savings) == 0 || !strings.HasPrefix(d.advice, d.savings[0].Text) {
		return
	}
	lever := func(name string) *Lever {
		i := slices.IndexFunc(d.Levers, func(l Lever) bool { return l.Name == name })
		if i < 0 {
			return nil
		}
		return &d.Levers[i]
	}
	if l := lever(d.savings[0].Lever); l != nil && l.Simulated == nil {
		return
	}
	advice := strings.TrimPrefix(d.advice, d.savings[0].Text)
	d.Named = nil
	for _, next := range d.savings[1:] {
		l := lever(next.Lever)
		if l != nil && l.Simulated == nil && (told == nil || next.Bytes > told.saves()) {
			advice = next.Text + advice
			d.Named = []string{next.Lever}
			break
		}
	}
	d.Sentence = strings.TrimSuffix(d.Sentence, d.advice) + advice
	d.advice, d.savings = advice, nil
}

// rank puts settings that served the failed request in the simulation before everything else.
func (l *Lever) rank() int {
	if l.Simulated != nil && l.Fits != nil && *l.Fits {
		return 1
	}
	return 0
}

func (l *Lever) spare() int64 {
	if l.rank() == 0 || l.Simulated.Spare == nil {
		return 0
	}
	return *l.Simulated.Spare
}

func (l *Lever) saves() int64 {
	if l.Saves == nil {
		return -1
	}
	return *l.Saves
}

// helps reports whether settings serve the failed request or, if none failed, hold noticeably less.
func (d *OOMDevice) helps(s *SimulatedSettings) bool {
	if d.OOM {
		return s.Fits != nil && *s.Fits
	}
	was := d.Simulation.Recorded.PeakReserved
	return (s.Fits == nil || *s.Fits) && float64(was-s.PeakReserved) >= worthShowing*float64(was) &&
		was > s.PeakReserved
}

// worthSaying reports whether settings of a run that did not fail hold so much less that the reader should
// hear of it first.
func (d *OOMDevice) worthSaying(l *Lever) bool {
	return float64(l.saves()) >= worthSaying*float64(d.Simulation.Recorded.PeakReserved)
}

// best returns the settings of a lever that help most, nil if none were tried.
func (d *OOMDevice) best(name string) *SimulatedSettings {
	var best *SimulatedSettings
	figure := func(s *SimulatedSettings) int64 {
		switch {
		case d.OOM && s.SmallestCap != nil:
			return *s.SmallestCap
		case d.OOM:
			return 1 << 62
		}
		return s.PeakReserved
	}
	for i := range d.Simulation.Settings {
		s := &d.Simulation.Settings[i]
		if s.Name != name {
			continue
		}
		if best == nil || d.helps(s) && !d.helps(best) || d.helps(s) == d.helps(best) &&
			figure(s) < figure(best) {
			best = s
		}
	}
	return best
}

// price gives a lever its simulated figures.
func (d *OOMDevice) price(l *Lever, s *SimulatedSettings) {
	r := d.Simulation.Recorded
	l.Simulated, l.Exactness = s, s.Exactness
	l.Command = "export PYTORCH_CUDA_ALLOC_CONF=" + s.Conf
	l.Saves, l.Fits = nil, nil
	switch {
	case !d.OOM:
		l.Saves = known(max(r.PeakReserved-s.PeakReserved, 0))
	case r.SmallestCap != nil && s.SmallestCap != nil:
		l.Saves = known(max(*r.SmallestCap-*s.SmallestCap, 0))
	}
	if d.OOM && s.Fits != nil && (*s.Fits || !d.Simulation.CapacityAtLeast) {
		l.Fits = s.Fits
	}
	_, value, _ := strings.Cut(s.Setting, ":")
	switch l.Name {
	case "expandable_segments":
		if l.Text == "" {
			l.Text = "let segments grow and shrink by pages, so that free memory need not be contiguous"
		}
	case "max_split_size":
		l.Text = fmt.Sprintf("keep segments of %s MiB and more whole, where expandable segments cannot be "+
			"used: small blocks then do not "+
			"strand them", value)
	case "roundup_power2_divisions":
		l.Text = fmt.Sprintf("round requests up to one of %s steps between powers of two: holes then serve "+
			"more of them", value)
	}
}

// simulatedSentence says what the helpful settings would do.
func (d *OOMDevice) simulatedSentence(s *SimulatedSettings, u timeline.Units) string {
	how := "Simulated"
	if s.Exactness == timeline.Inferred.String() {
		how = "Simulated (inferred)"
	}
	if d.OOM {
		return fmt.Sprintf("%s, the same run fits with %s%s.", how, s.Setting, s.spareText(u))
	}
	return fmt.Sprintf("%s, it would reserve %s with %s.", how, d.insteadText(s, u), s.Setting)
}

func (s *SimulatedSettings) spareText(u timeline.Units) string {
	if s.Spare == nil || *s.Spare <= 0 {
		return ""
	}
	return fmt.Sprintf(", %s to spare", u.Bytes(*s.Spare))
}

// insteadText is "21.3 instead of 21.9 GiB".
func (d *OOMDevice) insteadText(s *SimulatedSettings, u timeline.Units) string {
	was := d.Simulation.Recorded.PeakReserved
	if was == s.PeakReserved {
		return fmt.Sprintf("the same %s", u.Bytes(was))
	}
	unit, column := u.Column(max(was, s.PeakReserved))
	return fmt.Sprintf("%s instead of %s %s", column(s.PeakReserved), column(was), unit)
}

// verdict is the text after a lever's name if the lever was simulated.
func (d *OOMDevice) verdict(l *Lever, u timeline.Units) string {
	s, how := l.Simulated, "simulated"
	if s.Exactness == timeline.Inferred.String() {
		how = "simulated, inferred"
	}
	switch {
	case !d.OOM:
		return fmt.Sprintf("would reserve %s (%s)", d.insteadText(s, u), how)
	case d.helps(s):
		return fmt.Sprintf("the same run fits%s (%s)", s.spareText(u), how)
	case l.Fits == nil:
		return fmt.Sprintf("not shown to be enough (%s)", how)
	case s.Spare != nil && *s.Spare < 0:
		return fmt.Sprintf("not enough by itself, %s are missing (%s)", u.Bytes(-*s.Spare), how)
	}
	return fmt.Sprintf("not enough by itself (%s)", how)
}
