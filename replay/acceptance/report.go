package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
)

// SchemaVersion is the version of a report's JSON.
const SchemaVersion = 1

// Outcome is how a check ended.
type Outcome string

// The ways in which a check ends.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped" // this machine lacks what the check needs; the reason names it
	NotRun  Outcome = "not_run" // there was no time left, or it was not asked for
)

// Report is what the checks found on one GPU. A report file has only these fields: none can name a person, a
// machine, a file or a process, and [Report.validate] checks the form of each text.
type Report struct {
	SchemaVersion int `json:"schema_version"`
	// Day is when the checks ran, in UTC: 2026-11-22.
	Day     string  `json:"day"`
	Gmemtop Build   `json:"gmemtop"`
	System  System  `json:"system"`
	GPU     GPU     `json:"gpu"`
	Torch   *Torch  `json:"torch"` // nil if no Python with torch was named
	Seconds float64 `json:"seconds"`
	// Networks is the size of the networks that were trained: full, small or tiny.
	Networks string   `json:"networks"`
	Results  []Result `json:"results"`
}

// Build is the gmemtop that ran the checks.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Modified bool   `json:"modified"`
}

// System is what matters about the machine for the figures.
type System struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Kernel string `json:"kernel"` // major and minor version, "" if unknown
	Cores  int    `json:"cores"`
}

// GPU is the card that was checked.
type GPU struct {
	Name   string `json:"name"`
	Memory int64  `json:"memory_bytes"`
	Driver string `json:"driver"` // version, "" if unknown
	CUDA   string `json:"cuda"`   // the highest version that the driver supports, "" if unknown
	MIG    bool   `json:"mig"`
	// Count is how many GPUs the machine shows.
	Count int `json:"count"`
	// StandIn says that this is not a GPU but the stand-in that tests use. Such a report proves nothing about
	// a GPU.
	StandIn bool `json:"stand_in"`
}

// Torch is the PyTorch that trained.
type Torch struct {
	Version string `json:"version"`
	CUDA    string `json:"cuda"`
	Python  string `json:"python"`
}

// Result is how one check ended.
type Result struct {
	Check   string   `json:"check"`
	Outcome Outcome  `json:"outcome"`
	Seconds float64  `json:"seconds"`
	Reason  string   `json:"reason,omitempty"` // why it is not ok, redacted
	Figures []Figure `json:"figures,omitempty"`
}

// Figure is one number that a check measured.
type Figure struct {
	Name  string  `json:"name"`         // one of the names in figures.go
	Of    string  `json:"of,omitempty"` // what it belongs to if several have one, such as a manager
	Value float64 `json:"value"`
	Unit  string  `json:"unit"` // bytes, ms, s, GB/s, share or count
}

// Result returns how a check ended, false if the report does not have it.
func (r *Report) Result(check string) (Result, bool) {
	i := slices.IndexFunc(r.Results, func(x Result) bool { return x.Check == check })
	if i < 0 {
		return Result{}, false
	}
	return r.Results[i], true
}

// Failed counts the checks that failed.
func (r *Report) Failed() int {
	n := 0
	for _, x := range r.Results {
		if x.Outcome == Failed {
			n++
		}
	}
	return n
}

// forms are the forms of a report's texts. A text in another form is neither written nor read.
var forms = map[string]*regexp.Regexp{
	"gmemtop version": regexp.MustCompile(`^[0-9A-Za-z.+()-]{0,64}$`),
	"revision":        regexp.MustCompile(`^[0-9a-f]{0,40}$`),
	"system":          regexp.MustCompile(`^[a-z0-9]{1,12}$`),
	"kernel":          regexp.MustCompile(`^(?:[0-9]{1,3}\.[0-9]{1,3})?$`),
	"GPU name":        regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ()+.-]{0,63}$`),
	"driver":          regexp.MustCompile(`^[0-9A-Za-z.]{0,24}$`),
	"version": regexp.MustCompile(
		`^(?:[0-9]{1,4}(?:\.[0-9A-Za-z]{1,12}){1,4}(?:\+[0-9A-Za-z.]{1,24})?)?$`),
	"day": regexp.MustCompile(`^20[0-9]{2}-[01][0-9]-[0-3][0-9]$`),
}

// fit returns a text if it has its form, and a substitute otherwise.
func fit(form, text, otherwise string) string {
	if forms[form].MatchString(text) {
		return text
	}
	return otherwise
}

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
		return fmt.Errorf("networks %q are none of full, small, tiny", clip(r.Networks, 100))
	}
	if r.GPU.Memory < 0 || r.GPU.Count < 0 || r.System.Cores < 0 || !isTime(r.Seconds) {
		return errors.New("a number is negative or none")
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

func isTime(seconds float64) bool { return seconds >= 0 && seconds < 1e7 }

// public is a redactor that knows no machine: a text that it changes names something.
var public = newRedactor()

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

// Card describes in a few words the card of a report.
func (r *Report) Card() string {
	s := r.GPU.Name
	if r.Torch != nil {
		s += ", torch " + r.Torch.Version
	}
	if r.GPU.Driver != "" {
		s += ", driver " + r.GPU.Driver
	}
	return s
}

// WriteText writes everything in a report in words.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	mib := float64(r.GPU.Memory) / (1 << 20)
	fmt.Fprintf(&b, "GPU        %s, %.0f MiB", r.GPU.Name, mib)
	if r.GPU.Count > 1 {
		fmt.Fprintf(&b, ", one of %d", r.GPU.Count)
	}
	if r.GPU.MIG {
		b.WriteString(", in MIG mode")
	}
	if r.GPU.StandIn {
		b.WriteString(" (a stand-in, not a GPU)")
	}
	fmt.Fprintf(&b, "\ndriver     %s, CUDA %s\n", orUnknown(r.GPU.Driver), orUnknown(r.GPU.CUDA))
	if r.Torch != nil {
		fmt.Fprintf(&b, "torch      %s for CUDA %s, Python %s; %s networks\n", r.Torch.Version,
			orUnknown(r.Torch.CUDA), r.Torch.Python, r.Networks)
	} else {
		b.WriteString("torch      none: no training ran\n")
	}
	fmt.Fprintf(&b, "system     %s/%s, kernel %s, %d cores\n", r.System.OS, r.System.Arch,
		orUnknown(r.System.Kernel), r.System.Cores)
	fmt.Fprintf(&b, "gmemtop    %s%s\n", r.Gmemtop.Version,
		map[bool]string{true: ", with changes"}[r.Gmemtop.Modified])
	fmt.Fprintf(&b, "day        %s\n\n", r.Day)
	width := 0
	for _, x := range r.Results {
		width = max(width, len(x.Check))
	}
	count := map[Outcome]int{}
	for _, x := range r.Results {
		count[x.Outcome]++
		fmt.Fprintf(&b, "%-*s  %s\n", width, x.Check, x.String())
	}
	fmt.Fprintf(&b, "\n%d checks: %d ok, %d failed, %d skipped, %d not run; %s\n", len(r.Results), count[OK],
		count[Failed], count[Skipped], count[NotRun],
		time.Duration(r.Seconds*float64(time.Second)).Round(time.Second))
	_, err := io.WriteString(w, b.String())
	return err
}

// String says how a check ended: its outcome, how long it took, its figures and why it is not ok.
func (x Result) String() string {
	s := fmt.Sprintf("%-7s %5.1f s", strings.ReplaceAll(string(x.Outcome), "_", " "), x.Seconds)
	if f := x.Measured(); f != "" {
		s += "  " + f
	}
	if x.Reason != "" {
		s += "  " + x.Reason
	}
	return s
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
