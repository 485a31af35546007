package hardware

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces/wholefile"
)

// maxFile is the most bytes of a description that are read: a real one has less than a thousand.
const maxFile = 1 << 20

// ErrInvalid is wrapped by every error about a description that cannot be used; the rest of the error says
// which field to change, and how.
var ErrInvalid = errors.New("invalid hardware")

// Check returns nil if a description can be simulated with. Figures may be 0 if nothing is known (memory,
// arithmetic, driver calls), except for the two links' rates and Together.
func Check(h plan.Hardware) error {
	if h.Name == "" {
		return fmt.Errorf("%w: it has no name; set \"name\" to what it should be called in tables",
			ErrInvalid)
	}
	if h.Origin == "" {
		return fmt.Errorf("%w %q: \"origin\" is empty; say where the figures come from, such as "+
			"\"measured on my machine\"", ErrInvalid, h.Name)
	}
	wrong := func(field string, value any, want string) error {
		return fmt.Errorf("%w %q: %q is %v; set it to %s", ErrInvalid, h.Name, field, value, want)
	}
	for _, l := range []struct {
		field string
		link  plan.Link
	}{{"d2h", h.D2H}, {"h2d", h.H2D}} {
		if !(l.link.BytesPerSecond > 0) || l.link.BytesPerSecond > 1e15 {
			return wrong(l.field+".bytes_per_s", l.link.BytesPerSecond,
				"the rate of a pinned copy in bytes a second, such as 12.3e9")
		}
		if l.link.Latency < 0 || l.link.Latency > 1e9 {
			return wrong(l.field+".latency_ns", l.link.Latency,
				"the fixed cost of one copy in nanoseconds, 0 to 1e9")
		}
	}
	if !(h.Together > 0 && h.Together <= 1) {
		return wrong("together", h.Together,
			"the share of its speed that each direction keeps while both copy, above 0 and up to 1 (1 for "+
				"independent directions)")
	}
	for _, v := range []struct {
		field string
		value int64
		max   int64
		want  string
	}{
		{"memory_bytes", h.MemoryBytes, plan.MaxSize, "the device's memory in bytes, 0 where unknown"},
		{"pinned_bytes", h.PinnedBytes, plan.MaxSize, "the most pinned host memory in bytes, 0 for no limit"},
		{"launch_ns", h.LaunchGap, 1e9, "nanoseconds, 0 to 1e9"},
		{"malloc_ns", h.MallocTime, 1e12, "nanoseconds, 0 to 1e12"},
		{"save_ns", h.SaveTime, 1e9, "nanoseconds, 0 to 1e9"},
		{"note_ns", h.NoteTime, 1e9, "nanoseconds, 0 to 1e9"},
		{"again_ns", h.AgainTime, 1e9, "nanoseconds, 0 to 1e9"},
		{"free_ns", h.FreeTime, 1e12, "nanoseconds, 0 to 1e12"},
		{"map_ns", h.MapTime, 1e12, "nanoseconds, 0 to 1e12"},
	} {
		if v.value < 0 || v.value > v.max {
			return wrong(v.field, v.value, v.want)
		}
	}
	for _, v := range []struct {
		field string
		value float64
	}{{"flops_per_s", h.FlopsPerSecond}, {"bytes_per_s", h.BytesPerSecond}} {
		if !(v.value >= 0) || math.IsInf(v.value, 0) || v.value > 1e20 {
			return wrong(v.field, v.value, "what the device sustains a second, 0 where unknown")
		}
	}
	return nil
}

// Read reads a description from JSON, as [Write] writes it, and checks it. A field that it does not know is
// an error: a misspelt one would otherwise be 0 without a word.
func Read(r io.Reader) (plan.Hardware, error) {
	var h plan.Hardware
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return h, fmt.Errorf("read hardware: %w", err)
	}
	if len(data) > maxFile {
		return h, fmt.Errorf("%w: more than %d bytes; this does not describe one device", ErrInvalid,
			maxFile)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&h); err != nil {
		return plan.Hardware{}, fmt.Errorf("%w: %w; save a preset and edit that", ErrInvalid, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return plan.Hardware{}, fmt.Errorf("%w: there is more behind the description; keep "+
			"one JSON object a file", ErrInvalid)
	}
	if err := Check(h); err != nil {
		return plan.Hardware{}, err
	}
	return h, nil
}

// Write writes a description as indented JSON that [Read] reads back to the bit. It refuses one that Read
// would refuse.
func Write(w io.Writer, h plan.Hardware) error {
	if err := Check(h); err != nil {
		return err
	}
	data, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return fmt.Errorf("write hardware: %w", err)
	}
	if _, err := w.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("write hardware: %w", err)
	}
	return nil
}

// Load reads a description from a file; see [Read].
func Load(path string) (plan.Hardware, error) {
	f, err := os.Open(path)
	if err != nil {
		return plan.Hardware{}, fmt.Errorf("load hardware: %w", err)
	}
	defer f.Close()
	h, err := Read(f)
	if err != nil {
		return plan.Hardware{}, fmt.Errorf("load %s: %w", path, err)
	}
	return h, nil
}

// Save writes a description to a file; see [Write]. The file is replaced whole or not at all.
func Save(path string, h plan.Hardware) error {
	if err := wholefile.Write(path, 0o644, func(f *os.File) error { return Write(f, h) }); err != nil {
		return fmt.Errorf("save hardware in %s: %w", path, err)
	}
	return nil
}
