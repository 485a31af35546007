package acceptance

import (
	"fmt"
	"io"
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

// Measured lists the figures of a result in words, those of one subject together.
func (x Result) Measured() string {
	var b strings.Builder
	of := ""
	for i, f := range x.Figures {
		switch {
		case f.Of != of:
			if i > 0 {
				b.WriteString("; ")
			}
			if f.Of != "" {
				b.WriteString(f.Of + ": ")
			}
		case i > 0:
			b.WriteString(", ")
		}
		of = f.Of
		b.WriteString(vocabulary[f.Name].words + " " + f.String())
	}
	return b.String()
}

// subjects are what a figure can belong to if several have one: memory managers, and what doctor examines.
var subjects = []string{
	"caching", "expandable", "smartpool", "smartpool-ff", "smartpool-swap", "stalloc", "exact", "autoswap",
	"capuchin", "delta", "joint", "sqrt", "dtr", "vdnn-all", "nvidia driver", "nvml", "replay on a GPU",
	"run", "attach", "probes",
}
