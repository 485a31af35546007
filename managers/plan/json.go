package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The plan as a file: docs/plan.md describes it for users. It holds decisions and places, not steps: reading
// assembles the program again, so that a file cannot smuggle in a program that Assemble would not write, and
// checks it with Validate. It identifies the problem by its shape (ops, buffers, a hash of sizes and
// accesses), and is refused for another.

// schemaVersion is the version of the plan's JSON.
const schemaVersion = 1

type planJSON struct {
	SchemaVersion int          `json:"schema_version"`
	Manager       string       `json:"manager"`
	Executor      string       `json:"executor"`
	Problem       shapeJSON    `json:"problem"`
	BudgetBytes   int64        `json:"budget_bytes"`
	Footprint     int64        `json:"footprint_bytes"`
	LowerBound    int64        `json:"lower_bound_bytes"`
	StepBound     int64        `json:"step_time_bound_ns"`
	SectionBytes  int64        `json:"section_bytes,omitempty"`
	Parks         bool         `json:"parks_optimizer_state,omitempty"`
	Sequence      []OpID       `json:"sequence,omitempty"`
	Policy        *policyJSON  `json:"policy,omitempty"`
	Actions       []actionJSON `json:"actions"`
	Reruns        []rerunJSON  `json:"reruns"`
	Variants      []int        `json:"variants,omitempty"`
	Places        []placeJSON  `json:"places"`
	Notes         []string     `json:"notes"`
}

type shapeJSON struct {
	Name    string `json:"name"`
	Ops     int    `json:"ops"`
	Buffers int    `json:"buffers"`
	Hash    string `json:"hash"`
}

type policyJSON struct {
	Name     string `json:"name"`
	Settings string `json:"settings,omitempty"`
}

type actionJSON struct {
	What     string   `json:"what"`
	Buffer   BufferID `json:"buffer"`
	Name     string   `json:"name"`
	Bytes    int64    `json:"bytes"`
	After    OpID     `json:"after_op"`
	Release  OpID     `json:"release_op"`
	Fetch    OpID     `json:"fetch_op"`
	Before   OpID     `json:"before_op"`
	Blocking bool     `json:"blocking,omitempty"`
	Paced    bool     `json:"paced,omitempty"`
	Joined   OpID     `json:"joined_op,omitempty"`
	Why      string   `json:"why,omitempty"`
}

type rerunJSON struct {
	Before OpID       `json:"before_op"`
	Ops    []OpID     `json:"ops"`
	Loads  []loadJSON `json:"loads,omitempty"`
}

type loadJSON struct {
	Buffer BufferID `json:"buffer"`
	Fetch  OpID     `json:"fetch_op"`
}

type placeJSON struct {
	Buffer BufferID `json:"buffer"`
	Name   string   `json:"name"`
	Offset int64    `json:"offset"`
	Bytes  int64    `json:"bytes"`
}

// Hash is a fingerprint of the problem's shape: sizes, lifetimes, accesses and streams, not durations, so
// that a plan fits another recording of the same training.
func (p *Problem) Hash() string {
	h := uint64(14695981039346656037) // FNV-1a over 64-bit words
	mix := func(v int64) {
		for range 8 {
			h = (h ^ uint64(v&0xff)) * 1099511628211
			v >>= 8
		}
	}
	mix(p.Align)
	for i := range p.Buffers {
		b := &p.Buffers[i]
		mix(b.Size)
		mix(int64(b.Start))
		mix(int64(b.End))
		mix(int64(b.Life))
	}
	for i := range p.Ops {
		mix(int64(p.Ops[i].Stream))
		for _, a := range p.AccessesOf(OpID(i)) {
			mix(int64(a.Buffer)<<2 | int64(a.Mode))
		}
	}
	return fmt.Sprintf("%016x", h)
}

// WriteJSON writes the plan as docs/plan.md describes it. A sectioned plan speaks of the sectioned problem,
// whose shape it names.
func (pl *Plan) WriteJSON(w io.Writer, p *Problem) error {
	p, err := pl.Of(p)
	if err != nil {
		return err
	}
	out := planJSON{SchemaVersion: schemaVersion, Manager: pl.Manager, Executor: pl.Executor.String(),
		BudgetBytes: pl.Budget,
		Problem:     shapeJSON{Name: p.Name, Ops: len(p.Ops), Buffers: len(p.Buffers), Hash: p.Hash()},
		Footprint:   pl.Footprint, LowerBound: pl.LowerBound, StepBound: pl.StepBound,
		SectionBytes: pl.SectionBytes, Parks: pl.Parks, Sequence: pl.Sequence,
		Actions: []actionJSON{}, Reruns: []rerunJSON{}, Places: []placeJSON{},
		Notes: append([]string{}, pl.Notes...)}
	if pl.Policy != nil {
		out.Policy = &policyJSON{pl.Policy.Name, pl.Policy.Settings}
	}
	for _, x := range pl.Absences {
		out.Actions = append(out.Actions, actionJSON{What: x.How.String(), Buffer: x.Buffer,
			Name: p.Buffers[x.Buffer].Name, Bytes: p.Rounded(x.Buffer),
			After: x.After, Release: x.Release, Fetch: x.Fetch, Before: x.Before, Blocking: x.Blocking,
			Paced: x.Paced, Joined: x.Joined, Why: x.Why})
	}
	for _, r := range pl.Reruns {
		x := rerunJSON{Before: r.Before, Ops: r.Ops}
		for _, l := range r.Loads {
			x.Loads = append(x.Loads, loadJSON(l))
		}
		out.Reruns = append(out.Reruns, x)
	}
	for _, v := range pl.Variants {
		out.Variants = append(out.Variants, int(v))
	}
	for i := range pl.Instances {
		x := &pl.Instances[i]
		out.Places = append(out.Places, placeJSON{Buffer: x.Buffer, Name: p.Buffers[x.Buffer].Name,
			Offset: x.Offset, Bytes: x.Size})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

// Head is what a plan's file says about itself before it is read for a problem.
type Head struct {
	Manager string
	// Addresses says that the plan only chooses addresses.
	Addresses bool
}

// ReadHead reads the head of a plan's file. Its errors say what in the file is wrong.
func ReadHead(r io.Reader) (Head, error) {
	in, err := decode(r)
	if err != nil {
		return Head{}, err
	}
	return Head{Manager: in.Manager, Addresses: in.Executor == Ideal.String() && in.Policy == nil &&
		in.SectionBytes == 0 && len(in.Actions)+len(in.Reruns) == 0}, nil
}

// decode reads a plan's file without interpreting it.
func decode(r io.Reader) (in planJSON, err error) {
	dec := json.NewDecoder(r)
	if err := dec.Decode(&in); err != nil {
		return in, fmt.Errorf("read plan at byte %d: %w", dec.InputOffset(), err)
	}
	if in.SchemaVersion != schemaVersion {
		return in, fmt.Errorf("read plan: schema_version is %d and this program reads "+
			"%d: write the plan again",
			in.SchemaVersion, schemaVersion)
	}
	return in, nil
}

// ReadJSON reads a plan for problem p, assembles it again and validates it. Its errors say what in the file
// is wrong or that it is another problem's.
func ReadJSON(r io.Reader, p *Problem) (*Plan, error) {
	in, err := decode(r)
	if err != nil {
		return nil, err
	}
	q, err := (&Plan{SectionBytes: in.SectionBytes, Parks: in.Parks, Sequence: in.Sequence}).Of(p)
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	if got := q.Hash(); in.Problem.Hash != got {
		return nil, fmt.Errorf("read plan: it was made for another iteration (%d ops, %d buffers, shape "+
			"%s; this one has %d, %d, %s): plan this one", in.Problem.Ops,
			in.Problem.Buffers, in.Problem.Hash, len(q.Ops), len(q.Buffers), got)
	}
	d, err := in.decisions()
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	pl, err := Assemble(q, d)
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	pl.Manager, pl.Budget, pl.LowerBound, pl.StepBound, pl.SectionBytes, pl.Notes = in.Manager,
		in.BudgetBytes, in.LowerBound, in.StepBound, in.SectionBytes, in.Notes
	pl.Parks, pl.Sequence = in.Parks, in.Sequence
	for _, e := range []Executor{TorchEager, Reordering} {
		if in.Executor == e.String() {
			pl.Executor = e
		}
	}
	if in.Policy != nil {
		pl.Policy = &Policy{in.Policy.Name, in.Policy.Settings}
		pl.Order(q)
	} else {
		if len(in.Places) != len(pl.Instances) {
			return nil, fmt.Errorf("read plan: %d places for %d stays in memory", len(in.Places),
				len(pl.Instances))
		}
		offsets := make([]int64, len(in.Places))
		for i, x := range in.Places {
			if x.Buffer != pl.Instances[i].Buffer {
				return nil, fmt.Errorf("read plan: place %d is for buffer %d and buffer %d comes there", i,
					x.Buffer, pl.Instances[i].Buffer)
			}
			offsets[i] = x.Offset
		}
		pl.Place(offsets)
		pl.Settle(p)
		pl.Order(q)
	}
	if err := Validate(p, pl); err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	return pl, nil
}

var errUnknownAction = errors.New("an action is none of swap, recompute, discard")

func (in *planJSON) decisions() (Decisions, error) {
	var d Decisions
	for i, a := range in.Actions {
		x := Absence{Buffer: a.Buffer, After: a.After, Release: a.Release, Fetch: a.Fetch, Before: a.Before,
			Blocking: a.Blocking, Paced: a.Paced, Joined: a.Joined, Why: a.Why}
		switch strings.ToLower(a.What) {
		case "swap":
		case "recompute":
			x.How = Recompute
		case "discard":
			x.How = Discard
		default:
			return d, fmt.Errorf("action %d, %q: %w", i, a.What, errUnknownAction)
		}
		d.Absences = append(d.Absences, x)
	}
	for _, r := range in.Reruns {
		x := Rerun{Before: r.Before, Ops: r.Ops}
		for _, l := range r.Loads {
			x.Loads = append(x.Loads, Load(l))
		}
		d.Reruns = append(d.Reruns, x)
	}
	if in.Variants != nil {
		d.Variants = make([]uint8, len(in.Variants))
		for i, v := range in.Variants {
			if v < 0 || v > 255 {
				return d, fmt.Errorf("op %d has no variant %d", i, v)
			}
			d.Variants[i] = uint8(v)
		}
	}
	return d, nil
}
