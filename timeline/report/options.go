package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// SchemaVersion is the version of every JSON report. In version 1, allocated and active bytes were requested
// bytes at the start and the peak and rounded bytes at the end; since version 2 they are always rounded.
const SchemaVersion = 2

// Options says what a report shows and how.
type Options struct {
	// Units of printed sizes; JSON is always in bytes.
	Units timeline.Units
	// Top limits the stacks, modules and size classes that are listed; 0 means 5 in text and 20 in JSON
	// values.
	Top int
	// Devices selects devices; the zero value selects all.
	Devices Devices
	// From and To bound the report, [From, To).
	From, To Position
	// At is the one moment that a picture shows; the zero value shows the whole stretch.
	At Position
	// Iterations are the numbers of the iterations of A and B that a diff compares; empty ones leave the
	// choice to it.
	Iterations [2]string
	// ASCII keeps the text form free of other characters.
	ASCII bool
	// Width is the width in cells at which the text form is wrapped, as on a terminal; 0 wraps nothing.
	Width int
}

func (o Options) top(whenZero int) int {
	if o.Top > 0 {
		return o.Top
	}
	return whenZero
}

// Devices is a selection of devices, as in --device. The zero value selects every device.
type Devices struct {
	text     string
	kinds    map[traces.DeviceKind]bool
	ordinals map[int]bool
	only     *traces.Device
}

// ParseDevices reads a selection: ordinals of accelerators, kinds, or both, separated by commas: "0,1",
// "cuda", "cpu", "host".
func ParseDevices(s string) (Devices, error) {
	d := Devices{text: s, kinds: map[traces.DeviceKind]bool{}, ordinals: map[int]bool{}}
	if s == "" || s == "all" {
		return Devices{}, nil
	}
	for _, word := range strings.Split(s, ",") {
		word = strings.ToLower(strings.TrimSpace(word))
		switch word {
		case "cuda", "gpu":
			d.kinds[traces.DeviceGPU] = true
			continue
		case "tpu":
			d.kinds[traces.DeviceTPU] = true
			continue
		case "cpu":
			d.kinds[traces.DeviceCPU] = true
			continue
		case "host", "pinned":
			d.kinds[traces.DeviceHost] = true
			continue
		case "arena":
			d.kinds[traces.DeviceArena] = true
			continue
		}
		word = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(word, "cuda:"), "gpu:"), "tpu:")
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 {
			return Devices{}, fmt.Errorf("device %q is neither a number nor one of cuda, tpu, cpu, host, "+
				"arena", word)
		}
		d.ordinals[n] = true
	}
	return d, nil
}

// IsZero reports whether every device is selected.
func (d Devices) IsZero() bool { return d.text == "" }

// OnlyDevice returns the selection of one device.
func OnlyDevice(info traces.Device) Devices {
	return Devices{text: DeviceName(info), only: &info}
}

// has reports whether the selection includes the device.
func (d Devices) has(info traces.Device) bool {
	if d.IsZero() {
		return true
	}
	if d.only != nil {
		return *d.only == info
	}
	return d.kinds[info.Kind] || (info.Kind.Accelerator() || info.Kind == traces.DeviceArena) &&
		d.ordinals[info.Ordinal]
}

// Of returns the selected devices of a timeline, in its order, and an error that lists the devices if none is
// selected.
func (d Devices) Of(t *timeline.Timeline) ([]*timeline.Device, error) {
	var out []*timeline.Device
	var names []string
	for _, dev := range t.Devices {
		names = append(names, DeviceName(dev.Info))
		if d.has(dev.Info) {
			out = append(out, dev)
		}
	}
	if len(out) == 0 && len(t.Devices) > 0 {
		return nil, fmt.Errorf("device %q is not in this trace: it has %s", d.text, strings.Join(names, ", "))
	}
	return out, nil
}

// DeviceName returns a device's name in reports: its kind and ordinal, and its own name if the trace has one.
func DeviceName(d traces.Device) string {
	s := fmt.Sprintf("%s %d", d.Kind, d.Ordinal)
	if d.Name != "" {
		s += " (" + d.Name + ")"
	}
	return s
}

// WriteJSON writes v as indented JSON with a final newline.
func WriteJSON(w io.Writer, v any) error {
	enc := NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// NewEncoder returns an encoder of printable JSON. Angle brackets stay as they are, so that C++ frames remain
// readable; characters that control a terminal are escaped.
func NewEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(printableJSON{w})
	enc.SetEscapeHTML(false)
	return enc
}

// printableJSON escapes the characters that Printable removes, which occur only in JSON strings.
// encoding/json already escapes those below the space. Each Write holds whole values.
type printableJSON struct{ w io.Writer }

func (p printableJSON) Write(b []byte) (int, error) {
	out := b
	if bytes.ContainsFunc(b, drivesFromJSON) {
		out = nil
		for _, r := range string(b) {
			if drivesFromJSON(r) {
				out = fmt.Appendf(out, `\u%04x`, r)
			} else {
				out = utf8.AppendRune(out, r)
			}
		}
	}
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

func drivesFromJSON(r rune) bool { return r >= 0x7f && drives(r) }

// ParseIterations reads the iterations of a diff: one number for both traces, or two with a comma; "" leaves
// both empty.
func ParseIterations(s string) (pair [2]string, err error) {
	if s == "" {
		return pair, nil
	}
	a, b, two := strings.Cut(s, ",")
	if !two {
		b = a
	}
	for i, word := range []string{a, b} {
		word = strings.TrimPrefix(strings.TrimSpace(word), "it")
		if n, err := strconv.Atoi(word); err != nil || n < 0 {
			return pair, fmt.Errorf("--iteration %q is not the number of an iteration, or "+
				"one of A and one of B: write 2, or 2,3", s)
		}
		pair[i] = word
	}
	return pair, nil
}
