package figure

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
)

// The columns of a pprof profile, with the names that Go's heap profiles use: go tool pprof, Perfetto and
// speedscope know them.
const (
	allocObjects = iota
	allocSpace
	inuseObjects
	inuseSpace
)

// Pprof writes a gzipped pprof profile with a sample for each stack and category: inuse is what it held at
// the peak of the span, alloc all that it allocated within the span, in blocks and in rounded bytes. The sum
// of inuse_space is the allocated memory at the peak. Source: profile.proto of google/pprof.
func Pprof(ctx context.Context, w io.Writer, d *timeline.Device, o Options) error {
	span, at, err := peakOf(d, o)
	if err != nil {
		return err
	}
	p := newProfile(d, span, at)
	a := &d.Allocs
	for i := range a.Len() {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if began := a.Start[i]; began >= span.First && began < span.End {
			v := p.sample(timeline.AllocID(i)).Value
			v[allocObjects]++
			v[allocSpace] += a.Rounded[i]
		}
	}
	for _, id := range d.LiveAt(at, nil) {
		v := p.sample(id).Value
		v[inuseObjects]++
		v[inuseSpace] += a.Rounded[id]
	}
	if u := d.Totals.Unattributed; u > 0 {
		p.unattributed(u)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return p.finish().Write(w)
}

// profileOf builds a profile of one device.
type profileOf struct {
	profile.Profile
	device    *timeline.Device
	samples   map[sampleKey]*profile.Sample
	stacks    map[traces.StackID][]*profile.Location
	locations map[place]*profile.Location
	functions map[place]*profile.Function // without a line
}

// sampleKey is what blocks of one sample share.
type sampleKey struct {
	stack    traces.StackID
	category timeline.Category
}

// place is a line of code.
type place struct {
	function, file string
	line           int
}

func newProfile(d *timeline.Device, s report.Span, at timeline.Moment) *profileOf {
	p := &profileOf{
		device:    d,
		samples:   map[sampleKey]*profile.Sample{},
		stacks:    map[traces.StackID][]*profile.Location{},
		locations: map[place]*profile.Location{},
		functions: map[place]*profile.Function{},
	}
	count, space := "count", "bytes"
	p.SampleType = []*profile.ValueType{
		allocObjects: {Type: "alloc_objects", Unit: count},
		allocSpace:   {Type: "alloc_space", Unit: space},
		inuseObjects: {Type: "inuse_objects", Unit: count},
		inuseSpace:   {Type: "inuse_space", Unit: space},
	}
	p.DefaultSampleType = p.SampleType[inuseSpace].Type
	p.PeriodType, p.Period = &profile.ValueType{Type: "space", Unit: space}, 1
	tr := d.Timeline().Trace
	p.Comments = []string{
		fmt.Sprintf("%s of %s", report.DeviceName(d.Info), report.Printable(baseName(tr.Source.Path))),
		fmt.Sprintf("inuse: allocated at the peak, event %d; alloc: allocated from event %d to %d",
			at, s.First, s.End-1),
	}
	if tr.Clock.HasTime && s.First >= 0 && s.End > s.First {
		p.DurationNanos = d.Time(s.End-1) - d.Time(s.First)
	}
	return p
}

// sample returns the sample that a block belongs to.
func (p *profileOf) sample(id timeline.AllocID) *profile.Sample {
	key := sampleKey{p.device.Origin(id), p.device.Allocs.Category[id]}
	s := p.samples[key]
	if s == nil {
		s = &profile.Sample{
			Location: p.stack(key.stack),
			Value:    make([]int64, len(p.SampleType)),
			Label:    map[string][]string{"category": {key.category.String()}},
		}
		if module := sites.Module(p.device, key.stack); module != "" {
			s.Label["module"] = []string{report.Printable(module)}
		}
		p.samples[key] = s
	}
	return s
}

// unattributed adds a sample for bytes that only the source's total knows.
func (p *profileOf) unattributed(bytes int64) {
	s := &profile.Sample{
		Location: []*profile.Location{p.location(place{function: "(known only from the total)"})},
		Value:    make([]int64, len(p.SampleType)),
	}
	s.Value[inuseSpace] = bytes
	p.samples[sampleKey{stack: traces.NoStack, category: timeline.NumCategories}] = s
}

// stack returns a stack's locations, innermost first. A block without a stack has a location that says so: a
// sample without any is dropped by some readers.
func (p *profileOf) stack(id traces.StackID) []*profile.Location {
	if list, ok := p.stacks[id]; ok {
		return list
	}
	tr := p.device.Timeline().Places()
	var list []*profile.Location
	for _, frame := range tr.Stacks.At(id) {
		function, file, line := tr.FrameText(frame)
		list = append(list, p.location(place{report.Printable(function), report.Printable(file), line}))
	}
	if len(list) == 0 {
		list = append(list, p.location(place{function: sites.Name(p.device, id)}))
	}
	p.stacks[id] = list
	return list
}

func (p *profileOf) location(at place) *profile.Location {
	if l := p.locations[at]; l != nil {
		return l
	}
	of := place{function: at.function, file: at.file}
	f := p.functions[of]
	if f == nil {
		f = &profile.Function{
			ID: uint64(len(p.Function) + 1), Name: cmp.Or(at.function, at.file), Filename: at.file,
		}
		p.Function, p.functions[of] = append(p.Function, f), f
	}
	l := &profile.Location{
		ID: uint64(len(p.Location) + 1), Line: []profile.Line{{Function: f, Line: int64(at.line)}},
	}
	p.Location, p.locations[at] = append(p.Location, l), l
	return l
}

// finish returns the profile, samples with most held bytes first.
func (p *profileOf) finish() *profile.Profile {
	keys := make([]sampleKey, 0, len(p.samples))
	for k := range p.samples {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y sampleKey) int {
		a, b := p.samples[x].Value, p.samples[y].Value
		return cmp.Or(cmp.Compare(b[inuseSpace], a[inuseSpace]), cmp.Compare(b[allocSpace], a[allocSpace]),
			cmp.Compare(x.stack, y.stack), cmp.Compare(x.category, y.category))
	})
	for _, k := range keys {
		p.Sample = append(p.Sample, p.samples[k])
	}
	return &p.Profile
}
