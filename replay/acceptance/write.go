package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// Reports as files: every field is checked on the way out and on the way in.

// validate returns an error about the first field that is not allowed, or whose form is not.
func (r *Report) validate() error {
	if r.SchemaVersion != SchemaVersion {
		return fmt.Errorf("schema_version %d is not %d: use the gmemtop that wrote it", r.SchemaVersion,
			SchemaVersion)
	}
	texts := []struct{ form, text string }{{"day", r.Day}, {"gmemtop version", r.Gmemtop.Version},
		{"revision", r.Gmemtop.Revision}, {"system", r.System.OS},
		{"system", r.System.Arch}, {"kernel", r.System.Kernel}, {"GPU name", r.GPU.Name},
		{"driver", r.GPU.Driver}, {"version", r.GPU.CUDA}}
	if r.Torch != nil {
		texts = append(texts, []struct{ form, text string }{{"version", r.Torch.Version},
			{"version", r.Torch.CUDA}, {"version", r.Torch.Python}}...)
	}
	for _, t := range texts {
		if !forms[t.form].MatchString(t.text) {
			return fmt.Errorf("%q is no %s", clip(t.text, 100), t.form)
		}
	}
	if !slices.Contains([]string{full.name, small.name, tiny.name}, r.Networks) {
		return fmt.Errorf("unknown networks %q: choose full, small or tiny", clip(r.Networks, 100))
	}
	if r.GPU.Memory < 0 || r.GPU.Count < 0 || r.System.Cores < 0 || !isTime(r.Seconds) {
		return errors.New("a figure is missing or negative")
	}
	seen := map[string]bool{}
	for i := range r.Results {
		x := &r.Results[i]
		if err := x.validate(); err != nil {
			return err
		}
		if seen[x.Check] {
			return fmt.Errorf("check %s has two results", x.Check)
		}
		seen[x.Check] = true
	}
	return nil
}

func (x *Result) validate() error {
	if _, ok := Find(x.Check); !ok {
		return fmt.Errorf("there is no check %q", clip(x.Check, 100))
	}
	switch x.Outcome {
	case OK, Failed, Skipped, NotRun:
	default:
		return fmt.Errorf("check %s: %q is not an outcome", x.Check, clip(string(x.Outcome), 100))
	}
	if !isTime(x.Seconds) {
		return fmt.Errorf("check %s: it cannot take %v s", x.Check, x.Seconds)
	}
	if public.redact(x.Reason) != x.Reason {
		return fmt.Errorf("check %s: its reason is not redacted", x.Check)
	}
	for _, f := range x.Figures {
		known, ok := vocabulary[f.Name]
		switch {
		case !ok:
			return fmt.Errorf("check %s: there is no figure %q", x.Check, clip(f.Name, 100))
		case f.Unit != known.unit:
			return fmt.Errorf("check %s: %s is in %s, not in %q", x.Check, f.Name, known.unit,
				clip(f.Unit, 100))
		case f.Of != "" && !slices.Contains(subjects, f.Of):
			return fmt.Errorf("check %s: a figure of %q is not known", x.Check, clip(f.Of, 100))
		case math.IsNaN(f.Value) || math.IsInf(f.Value, 0):
			return fmt.Errorf("check %s: %s is not a number", x.Check, f.Name)
		}
	}
	return nil
}

func isTime(seconds float64) bool { return seconds >= 0 && seconds < 1e7 }

// public is a redactor that knows no machine: a text that it changes names something.
var public = newRedactor()

// Write validates the report and writes it as JSON.
func (r *Report) Write(w io.Writer) error {
	if err := r.validate(); err != nil {
		return fmt.Errorf("the report is not written: %w", err)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// largestReport is how many bytes of a report file are read.
const largestReport = 1 << 20

// Read reads a report and validates it. Further keys in the file are an error.
func Read(r io.Reader) (*Report, error) {
	limited := &io.LimitedReader{R: r, N: largestReport + 1}
	d := json.NewDecoder(limited)
	d.DisallowUnknownFields()
	var out Report
	if err := d.Decode(&out); err != nil {
		if limited.N == 0 {
			return nil, fmt.Errorf("a report has at most %d bytes: this is not a report", largestReport)
		}
		return nil, fmt.Errorf("not a report of gmemtop doctor --gpu-report: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a report: something follows it in the file")
	}
	return &out, out.validate()
}
