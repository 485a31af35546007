package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

//go:embed page.md
var text string

// The most that the two allocators may be apart, as shares of what PyTorch's own says.
const mostAllocated, mostReserved = 0.01, 0.02

// page is the whole page.
func (o *options) page() (string, error) {
	t, err := template.New("page").Funcs(template.FuncMap{
		"table": o.table, "failures": o.failures, "agreement": o.agreement, "taken": o.taken,
		"output": o.output, "whichCard": o.whichCard, "answered": o.answered,
	}).Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, nil)
	return b.String(), err
}

// output is what a command printed, which is kept in a file of the folder of results.
func (o *options) output(name string) (string, error) {
	said, err := os.ReadFile(filepath.Join(o.results, name+".txt"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for line := range strings.Lines(strings.TrimRight(string(said), "\n")) {
		b.WriteString(strings.TrimRight("    "+strings.TrimRight(line, "\n"), " ") + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// row is a program with its kept results; either may be nil.
type row struct {
	p           program
	real, model *found
}

// rows returns the rows of a group.
func (o *options) rows(group string) ([]row, error) {
	programs, ok := groups[group]
	if !ok {
		return nil, fmt.Errorf("there is no group %q", group)
	}
	var rows []row
	for _, p := range programs {
		r := row{p: p}
		var err error
		if r.real, err = o.kept(p.name, "real"); err != nil {
			return nil, err
		}
		if r.model, err = o.kept(p.name, "model"); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// table is the table of a group.
func (o *options) table(group string) (string, error) {
	rows, err := o.rows(group)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| program | command | allocated | reserved | `model` | seconds | run | lines that were " +
		"answered |\n|---|---|---:|---:|---|---:|---|---|\n")
	for _, r := range rows {
		allocated, reserved := r.sizes()
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s | %s | %s | %s |\n", r.p.title, r.p.command(), allocated,
			reserved, r.beside(), r.seconds(), r.date(), r.lines())
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// byHand says that an estimate was written down by hand, before there was this command.
func (f *found) byHand() bool { return f.Steps == nil && f.Failed == "" }

// sizes are what PyTorch's own allocator says.
func (r *row) sizes() (allocated, reserved string) {
	switch f := r.real; {
	case f == nil:
		return "not run", ""
	case f.Failed != "":
		return "failed", ""
	case f.Printed != nil:
		return f.Printed[0], f.Printed[1]
	case !f.Fits:
		return "does not fit", ""
	default:
		return timeline.IEC.Bytes(f.Allocated), timeline.IEC.Bytes(f.Reserved)
	}
}

// apart returns the shares by which the emulated allocator is above PyTorch's own; ok says that both are
// known to the byte.
func (r *row) apart() (allocated, reserved float64, ok bool) {
	if r.real == nil || r.model == nil || r.real.Allocated == 0 || r.model.Allocated == 0 {
		return 0, 0, false
	}
	return off(r.model.Allocated, r.real.Allocated), off(r.model.Reserved, r.real.Reserved), true
}

// far reports whether they are further apart than they may be.
func far(allocated, reserved float64) bool {
	return max(allocated, -allocated) > mostAllocated || max(reserved, -reserved) > mostReserved
}

// beside says how close the emulated allocator comes.
func (r *row) beside() string {
	a, b, ok := r.apart()
	switch {
	case ok && a == 0 && b == 0:
		return "equal"
	case ok && far(a, b):
		return fmt.Sprintf("**%s, %s**", percent(a), percent(b))
	case ok:
		return percent(a) + ", " + percent(b)
	case r.model == nil:
		return "not run"
	case r.model.Failed != "":
		return "failed"
	case r.real != nil && r.real.Printed != nil && slices.Equal(r.real.Printed, r.model.Printed):
		return "equal as printed"
	}
	return "not comparable"
}

// percent writes a share.
func percent(x float64) string {
	switch {
	case x == 0:
		return "0"
	case max(x, -x) < 0.00005:
		return "< 0.01 %"
	}
	return fmt.Sprintf("%+.2f %%", 100*x)
}

func (r *row) seconds() string {
	var words []string
	for _, f := range []*found{r.real, r.model} {
		if f == nil || f.Seconds == 0 {
			words = append(words, "–")
		} else {
			words = append(words, itoa(f.Seconds))
		}
	}
	return strings.Join(words, ", ")
}

// date is when PyTorch's own allocator was asked, marked if the row is older than this command.
func (r *row) date() string {
	switch {
	case r.real == nil:
		return "–"
	case r.real.byHand():
		return r.real.Date + " ¹"
	}
	return r.real.Date
}

// mostLines limits how many lines of a script are listed.
const mostLines = 6

func (r *row) lines() string {
	if r.real == nil || r.real.Failed != "" {
		return ""
	}
	lines := r.real.Lines
	switch {
	case len(lines) == 0 && r.real.byHand():
		return "–"
	case len(lines) == 0:
		return "none"
	}
	if len(lines) > mostLines {
		return strings.Join(lines[:mostLines], ", ") + fmt.Sprintf(" and %d more", len(lines)-mostLines)
	}
	return strings.Join(lines, ", ")
}

// failures lists the programs without an estimate, with the reason.
func (o *options) failures() (string, error) {
	var b strings.Builder
	for _, g := range order {
		rows, err := o.rows(g)
		if err != nil {
			return "", err
		}
		for _, r := range rows {
			for k, f := range []*found{r.real, r.model} {
				if f != nil && f.Failed != "" {
					said := fmt.Sprintf("%s with `%s`: %s", r.p.title, []string{"real", "model"}[k], f.Failed)
					b.WriteString("- " + strings.ReplaceAll(report.Wrap(said, wide-2), "\n", "\n  ") + "\n")
				}
			}
		}
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// agreement says in how many programs the two allocators agree.
func (o *options) agreement() (string, error) {
	both, equal, outside := 0, 0, 0
	for _, g := range order {
		rows, err := o.rows(g)
		if err != nil {
			return "", err
		}
		for _, r := range rows {
			a, b, ok := r.apart()
			if !ok {
				continue
			}
			both++
			if a == 0 && b == 0 {
				equal++
			}
			if far(a, b) {
				outside++
			}
		}
	}
	return report.Wrap(fmt.Sprintf("Of %d programs whose sizes are known to the byte under both, %d are "+
		"equal, and these targets are missed by %d.", both, equal, outside), wide), nil
}

// taken says how many rows are older than this command.
func (o *options) taken() (string, error) {
	old, ours := 0, 0
	for _, g := range order {
		rows, err := o.rows(g)
		if err != nil {
			return "", err
		}
		for _, r := range rows {
			switch {
			case r.real == nil:
			case r.real.byHand():
				old++
			default:
				ours++
			}
		}
	}
	if old == 0 {
		return report.Wrap(fmt.Sprintf("All %d rows are of runs with the programs and data of this command.",
			ours), wide), nil
	}
	return report.Wrap(fmt.Sprintf("%d rows are of runs with the programs and data of this command. ¹ %d "+
		"are taken over from the page as it was before, where they were written by hand; their commands "+
		"named other folders, and where a dash stands for the seconds or the lines, these were not kept.",
		ours, old), wide), nil
}

// wide is how wide lines of prose are.
const wide = 110

// off is by what share of the second the first is above it.
func off(got, want int64) float64 { return float64(got-want) / float64(want) }
