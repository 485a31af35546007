package report

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// OOM is the report of why a process ran out of memory or, if it did not, of what its peak is made of.
type OOM struct {
	SchemaVersion int         `json:"schema_version"`
	Source        Source      `json:"source"`
	Found         bool        `json:"found"`
	Losses        []Loss      `json:"losses"`
	Devices       []OOMDevice `json:"devices"`
	// Message is PyTorch's message, for a process that died of an out-of-memory whose request is not in the
	// recording; nil if there is none.
	Message *Message `json:"message"`
}

// OOMDevice is the autopsy of one device. Figures are nil if the trace cannot show them.
type OOMDevice struct {
	Device     int            `json:"device"`
	DeviceKind string         `json:"device_kind"`
	Name       string         `json:"name,omitempty"`
	Sentence   string         `json:"sentence"`
	OOM        bool           `json:"oom"`
	Inferred   bool           `json:"inferred"`
	oneMoment  bool           // the recording has no events in which anything changes
	Event      *int64         `json:"event"`
	Time       *int64         `json:"time_ns"`
	Asked      *int64         `json:"asked_bytes"`
	Free       *int64         `json:"free_bytes"`
	Stats      MemoryStats    `json:"books"`
	State      *Fragmentation `json:"state"`
	Causes     []Cause        `json:"causes"`
	Holders    []StackRow     `json:"holders"`
	Levers     []Lever        `json:"levers"`
	// Simulation is nil if none was made.
	Simulation *Simulation `json:"simulation"`
	// Together are levers that only help together, nil if one is enough alone or there are none.
	Together *Together `json:"together"`
	// advice is the end of Sentence, about levers.
	advice string
	// savings are what may be called the biggest saving; where there are some, advice begins with the first.
	savings []autopsy.Saving
	// Named are the names of the levers that Sentence tells the reader to try.
	Named []string `json:"-"`
}

// MemoryStats are the allocator's figures at the moment of the autopsy, as in PyTorch's memory_stats and the
// out-of-memory error's message. Nil if the trace cannot show a figure.
type MemoryStats struct {
	Allocated          *int64 `json:"allocated_bytes"`
	AllocatedRequested *int64 `json:"allocated_requested_bytes"`
	Active             *int64 `json:"active_bytes"`
	ActiveRequested    *int64 `json:"active_requested_bytes"`
	Reserved           *int64 `json:"reserved_bytes"`
	// Tried is what the allocator asked the driver for, "Tried to allocate" in the message. Nil without a
	// failed request.
	Tried *int64 `json:"tried_bytes"`
	// PoolsIdle are inactive bytes in private pools, "allocated in private pools" in the message.
	PoolsIdle *int64 `json:"private_pools_idle_bytes"`
	// Unallocated is reserved - allocated - PoolsIdle, "reserved by PyTorch but unallocated" in the message.
	Unallocated *int64 `json:"unallocated_bytes"`
}

func newMemoryStats(d *timeline.Device, a *autopsy.Result) MemoryStats {
	if !d.Timeline().Trace.OfPyTorch() {
		return MemoryStats{}
	}
	b := MemoryStats{Allocated: known(d.Allocated.At(a.At)), Active: known(d.Active.At(a.At)),
		Tried: figure(a.Tried)}
	if d.RequestedKnown() {
		b.AllocatedRequested, b.ActiveRequested = known(d.RequestedSeries().At(a.At)),
			known(d.RequestedActiveSeries().At(a.At))
	}
	if s := a.State; s != nil && s.Known {
		idle := int64(0)
		for i := range s.Segments {
			if g := &s.Segments[i]; g.Pool != (traces.Pool{}) {
				idle += g.Size - g.Active
			}
		}
		b.Reserved, b.PoolsIdle, b.Unallocated = known(s.Reserved), &idle, known(s.Reserved-*b.Allocated-idle)
	}
	return b
}

// Cause is one part of the explanation.
type Cause struct {
	Kind  string `json:"kind"`
	Bytes *int64 `json:"bytes"`
	Text  string `json:"text"`
	Main  bool   `json:"main"`
	// Certainty is certain, likely or possible; Reason says why.
	Certainty autopsy.Certainty `json:"certainty"`
	Reason    string            `json:"certainty_reason"`
}

// Lever is something the user can do. Fits says whether the failed request would then have been served, nil
// if the recording does not show it.
type Lever struct {
	Name    string `json:"name"`
	Text    string `json:"text"`
	Command string `json:"command"`
	// Saves is what it takes off the peak, nil if the recording does not show that.
	Saves *int64 `json:"saves_bytes"`
	// Frees is what it frees by the failed request; nil if Saves, which says more, is known.
	Frees     *int64 `json:"frees_bytes"`
	Exactness string `json:"exactness"`
	Fits      *bool  `json:"fits"`
	// Simulated are the simulated figures of a lever that is an allocator setting, if it was simulated. Saves
	// is then how much less is reserved or, after an out-of-memory, how much smaller the smallest cap is.
	Simulated *SimulatedSettings `json:"simulated"`
	// Tried is the outcome of playing the run with the lever, nil if nothing failed.
	Tried *Tried `json:"tried"`
	// Mends says that the lever removes the main cause, if that is a fault of the training.
	Mends bool `json:"mends_cause"`
	// Elsewhere says that it needs more devices than the run has.
	Elsewhere bool `json:"-"`
	// Unsure says that it depends on what the recording does not show.
	Unsure bool `json:"-"`
	// Parts is into how many parts the lever divides the batch or each sample, 0 if it divides nothing.
	Parts int64 `json:"parts"`
	// Divide is [autopsy.Lever.Divide].
	Divide func(ctx context.Context, parts int64) (autopsy.Lever, bool, error) `json:"-"`
	// frees is what it frees by the failed request, if anything.
	frees int64
	holds bool // Saves is known though the rest of the step is not
	// alternative says that it mends the cause only if the training is not what it seems to be.
	alternative bool
	partly      bool // it saves more than Saves, which is therefore not shown
	// Effect is what there is to try.
	Effect autopsy.Effect `json:"-"`
}

// NewOOM computes the report of t, its main device first.
func NewOOM(ctx context.Context, t *timeline.Timeline, o Options) (*OOM, error) {
	r := &OOM{SchemaVersion: SchemaVersion, Source: newSource(t.Trace), Losses: newLosses(t),
		Devices: []OOMDevice{}}
	devices, err := o.Devices.Of(t)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		a, err := autopsy.Of(ctx, d, o.Units)
		if err != nil {
			return nil, err
		}
		r.Found = r.Found || a.OOM || a.Inferred
		row := newOOMDevice(d, a, o)
		if d == t.Main() {
			r.Devices = append([]OOMDevice{row}, r.Devices...)
		} else {
			r.Devices = append(r.Devices, row)
		}
	}
	if m, ok := diedOf(t.Trace); ok && !r.Found {
		r.Message = &m
	}
	return r, nil
}

// diedOf explains the message of the failure that the recorded process died of; ok is false if the recording
// holds none.
func diedOf(t *traces.Trace) (m Message, ok bool) {
	for _, l := range t.Losses {
		if l.Name == traces.LossOutOfMemory {
			return ParseMessage(l.Detail)
		}
	}
	return m, false
}

func newOOMDevice(d *timeline.Device, a *autopsy.Result, o Options) OOMDevice {
	row := OOMDevice{
		Device: d.Info.Ordinal, DeviceKind: d.Info.Kind.String(), Name: d.Info.Name, Sentence: a.Sentence,
		OOM:    a.OOM,
		advice: a.Advice, savings: a.Savings, Named: a.Named,
		Inferred: a.Inferred, oneMoment: d.Timeline().Trace.OneMoment(),
		Event: eventOf(a.At), Time: timeOf(d, a.At), Asked: figure(a.Asked), Free: figure(a.Free),
		Stats: newMemoryStats(d, a), Causes: []Cause{},
		Holders: newStackRows(d, a.Holders, o.top(defaultTopJSON)), Levers: []Lever{},
	}
	if a.State != nil && a.State.Known {
		row.State = newFragmentation(a.State, "peak")
		if a.OOM || a.Inferred {
			row.State.At = "oom"
		}
	}
	for _, c := range a.Causes {
		row.Causes = append(row.Causes, Cause{Kind: c.Kind, Bytes: figure(c.Bytes), Text: c.Text,
			Main: c.Main, Certainty: c.Certainty, Reason: c.Reason})
	}
	for i := range a.Levers {
		row.Levers = append(row.Levers, newLever(&a.Levers[i]))
	}
	return row
}

func newLever(l *autopsy.Lever) Lever {
	lever := Lever{Name: l.Name, Text: l.Text, Command: l.Command, Saves: figure(l.Saves),
		Exactness: l.Exactness.String(),
		Mends:     l.Mends, Elsewhere: l.Elsewhere, Unsure: l.Unsure, Effect: l.Effect, frees: l.Frees,
		holds: l.Holds, alternative: l.Alternative, partly: l.Partly, Parts: l.Parts, Divide: l.Divide}
	if l.Fits != autopsy.FitNotShown {
		fits := l.Fits == autopsy.Fits
		lever.Fits = &fits
	}
	return lever
}

// InParts returns the lever with what it becomes in another number of parts. Divide makes those.
func (l *Lever) InParts(of *autopsy.Lever) Lever {
	next := newLever(of)
	next.Mends, next.alternative, next.Elsewhere = l.Mends, l.alternative, l.Elsewhere
	return next
}

// Words names the lever as the subject of a sentence.
func (l *Lever) Words() string { return autopsy.LeverWords(l.Name, l.Parts) }

// Words names the lever with a given name as the subject of a sentence.
func (d *OOMDevice) Words(name string) string {
	for i := range d.Levers {
		if d.Levers[i].Name == name {
			return d.Levers[i].Words()
		}
	}
	return autopsy.LeverWords(name, 0)
}

// WriteText prints the autopsy on about one screen.
func (r *OOM) WriteText(w io.Writer, o Options) error {
	p := newPrinter(o)
	shown := 0
	for i := range r.Devices {
		d := &r.Devices[i]
		if r.Found && !d.OOM && !d.Inferred {
			continue // another device ran out; this one is not at fault
		}
		if shown++; shown > 1 {
			p.line("")
		}
		d.print(p, o, len(r.Devices) > 1 || d.Device > 0)
	}
	if len(r.Devices) == 0 {
		p.line("This trace has no memory data for any device.")
	}
	if r.Message != nil {
		p.line("")
		r.Message.print(p, o)
	}
	return p.flush(w)
}

func (d *OOMDevice) print(p *printer, o Options, named bool) {
	sentence := d.Sentence
	if named {
		sentence = fmt.Sprintf("%s %d: %s", d.DeviceKind, d.Device, sentence)
	}
	p.line("%s", sentence)
	p.line("")
	if d.Event != nil && !d.oneMoment {
		when := "event " + Grouped(*d.Event)
		if d.Time != nil {
			when = timeline.Duration(*d.Time) + " after the first event, " + when
		}
		p.line("when      %s", when)
	}
	var asked []string
	if d.Asked != nil {
		asked = append(asked, "asked for "+o.Units.Bytes(*d.Asked))
	}
	if d.Free != nil {
		asked = append(asked, "the driver had "+o.Units.Bytes(*d.Free)+" free")
	}
	if len(asked) > 0 {
		p.line("request   %s", strings.Join(asked, "; "))
	}
	d.printStats(p, o)
	if f := d.State; f != nil {
		unit, format := o.Units.Column(f.Reserved)
		p.line("state     requested %s + rounding %s + fragmented %s + cached %s = reserved %s %s",
			format(f.ActiveRequested),
			format(f.Internal), format(f.Stranded), format(f.Cached), format(f.Reserved), unit)
		p.line("          pending frees %s %s; largest free block %s", format(f.PendingFree), unit,
			o.Units.Bytes(f.LargestFree))
	}
	d.printCauses(p, o)
	d.printHolders(p, o)
	d.printLevers(p, o)
}

// printStats prints the figures of PyTorch's message, so that a reader recognises them.
func (d *OOMDevice) printStats(p *printer, o Options) {
	b := &d.Stats
	if b.Allocated == nil {
		return
	}
	says := []string{"allocated " + o.Units.Bytes(*b.Allocated)}
	if r := b.AllocatedRequested; r != nil && o.Units.Bytes(*r) != o.Units.Bytes(*b.Allocated) {
		says[0] += " (requested " + o.Units.Bytes(*r) + ")"
	}
	if b.PoolsIdle != nil && *b.PoolsIdle > 0 {
		says = append(says, "idle in private pools "+o.Units.Bytes(*b.PoolsIdle))
	}
	if b.Unallocated != nil {
		says = append(says, "reserved but unallocated "+o.Units.Bytes(*b.Unallocated))
	}
	p.line("PyTorch   %s", strings.Join(says, "; "))
}

func (d *OOMDevice) printCauses(p *printer, o Options) {
	if len(d.Causes) == 0 {
		return
	}
	p.line("")
	p.line("why")
	var rows []row
	for _, c := range d.Causes {
		mark, said := " ", autopsy.Cause{Text: c.Text}
		if c.Bytes != nil {
			said.Bytes = maybe.Known(*c.Bytes)
		}
		if c.Main {
			mark = "*"
		}
		rows = append(rows, row{mark, strings.ReplaceAll(c.Kind, "_", " "), string(c.Certainty),
			said.Said(o.Units)})
	}
	p.table("  ", rows)
	for _, c := range d.Causes {
		if c.Main && c.Certainty != autopsy.Certain && c.Reason != "" {
			p.line("  %s: %s", c.Certainty, c.Reason)
		}
	}
}

func (d *OOMDevice) printHolders(p *printer, o Options) {
	if len(d.Holders) == 0 {
		return
	}
	p.line("")
	p.line("who held the memory")
	var rows []row
	for _, h := range first(d.Holders, o.top(8)) {
		rows = append(rows, row{right(o.Units.Bytes(h.Bytes)), right(blocksText(h.Blocks)),
			shorten(h.Site, 100)})
	}
	p.table("  ", rows)
}

func (d *OOMDevice) printLevers(p *printer, o Options) {
	if len(d.Levers) == 0 {
		return
	}
	p.line("")
	p.line("what would help")
	simulated, refused := false, d.Simulation != nil && !d.Simulation.Available
	for _, l := range d.Levers {
		saves, fits := "saving unknown", ""
		if l.Saves != nil {
			saves = "saves " + estimate(l.Exactness) + o.Units.Bytes(*l.Saves)
		} else if l.Frees != nil {
			saves = "frees " + estimate(l.Exactness) + o.Units.Bytes(*l.Frees)
		}
		if l.Fits != nil && *l.Fits {
			fits = ": the allocation would have fit"
		} else if l.Fits != nil {
			fits = ": not enough by itself"
		}
		if l.Simulated != nil {
			saves, fits, simulated = d.verdict(&l, o.Units), "", true
		}
		switch {
		case refused && l.Tried != nil:
			fits = ", not tried"
		case l.Tried != nil:
			saves, fits = l.Tried.text(o.Units), ""
		}
		p.line("  %s: %s%s", l.Words(), saves, fits)
		p.line("    %s", l.Text)
		if l.Command != "" {
			p.command("    ", l.Command)
		}
	}
	if t := d.Together; t != nil {
		words := make([]string, len(t.Levers))
		for i, name := range t.Levers {
			words[i] = d.Words(name)
		}
		p.line("  together, %s: %s", strings.Join(words, " and "), t.text(o.Units))
	}
	switch {
	case simulated:
		p.line("")
		p.line("emulator  %s", d.Simulation.Emulator)
	case refused && d.OOM:
		p.line("")
		p.line("Savings are estimates: this recording cannot be played again (-v says why).")
	}
}

// estimate returns the sign that goes before a figure of the given exactness.
func estimate(exactness string) string {
	switch exactness {
	case timeline.Inferred.String():
		return "~"
	case timeline.LowerBound.String():
		return "≥"
	}
	return ""
}
