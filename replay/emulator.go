package replay

import (
	"context"
	"errors"

	"github.com/gmemtop/gmemtop/replay/fidelity"
	"github.com/gmemtop/gmemtop/timeline"
)

// Fidelity is how well the emulation of PyTorch's allocator, on which the footprints of online allocators
// depend, reproduces the recording being planned.
type Fidelity struct {
	// Report is the proof, nil if the recording cannot be replayed; Refused then says why not.
	Report  *fidelity.Report
	Refused string
}

// Prove replays a device's recording through the emulated allocator. The error is the context's.
func Prove(ctx context.Context, d *timeline.Device) (*Fidelity, error) {
	r, err := fidelity.Replay(ctx, d)
	var refusal *fidelity.Refusal
	switch {
	case err == nil:
		return &Fidelity{Report: r}, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &refusal):
		return &Fidelity{Refused: refusal.Text}, nil
	}
	return &Fidelity{Refused: err.Error()}, nil
}

// text summarises it in half a line, with sizes in units u.
func (f *Fidelity) text(u timeline.Units) string {
	if f.Report == nil {
		return "not checked on this recording: " + f.Refused
	}
	return f.Report.Summary(u)
}

// fidelityJSON is compare --json's fidelity; docs/json.md describes it.
type fidelityJSON struct {
	Available    bool            `json:"available"`
	Reason       string          `json:"reason"`
	Score        float64         `json:"score"`
	Allocations  int             `json:"allocations"`
	Placed       int             `json:"placed_as_recorded"`
	Segments     int             `json:"segment_events"`
	SameSegments int             `json:"segment_events_as_recorded"`
	Peak         int64           `json:"peak_reserved_bytes"`
	Emulated     int64           `json:"emulated_peak_reserved_bytes"`
	FromStart    bool            `json:"from_start"`
	Divergence   *divergenceJSON `json:"first_divergence"`
	Notes        []string        `json:"notes"`
}

type divergenceJSON struct {
	Event    int64  `json:"event"`
	Recorded string `json:"recorded"`
	Emulated string `json:"emulated"`
	Why      string `json:"why"`
}

func (f *Fidelity) json() *fidelityJSON {
	if f == nil {
		return nil
	}
	r := f.Report
	if r == nil {
		return &fidelityJSON{Reason: f.Refused, Notes: []string{}}
	}
	j := &fidelityJSON{Available: true, Score: r.Score(), Allocations: r.Allocations, Placed: r.SamePlace,
		Segments: r.SegmentEvents, SameSegments: r.SameSegments, Peak: r.PeakReserved,
		Emulated: r.EmulatedPeakReserved, FromStart: r.FromEmpty, Notes: append([]string{}, r.Caveats...)}
	if d := r.First; d != nil {
		j.Divergence = &divergenceJSON{int64(d.At), d.Recorded, d.Emulated, d.Why}
	}
	return j
}
