// Command gpuresults writes docs/gpu-results.md: what gmemtop claims about GPUs, and where each claim was
// confirmed.
//
// The problem: gmemtop is developed without a GPU, and its pages make promises about GPUs. A reader must see
// which of them a GPU has confirmed, which only the stand-in GPU of our tests, and which nothing. A page kept
// by hand would become stale.
//
// The solution: docs/gpu-claims.json lists the claims as data. A claim quotes the sentences that make it, and
// names the checks of gmemtop doctor --gpu-report and the tests on the stand-in that support it. Users'
// reports are files in docs/gpu-reports. This program joins the three. Its test compares the list with the
// pages: every quotation is still there, every sentence about GPUs is quoted by a claim or listed as none,
// and tests and checks exist.
//
// Rejected: marks in the pages themselves, which are noise to readers.
//
// usage: go run ./scripts/gpuresults [ROOT]
//
// It writes ROOT/docs/gpu-results.md.
package main

//go:generate go run . ../..

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/replay/acceptance"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	var b bytes.Buffer
	err := write(&b, root)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "docs", "gpu-results.md"), b.Bytes(), 0o666)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "gpuresults: %v\n", err)
		os.Exit(1)
	}
}

// write writes the page from what is below root.
func write(w io.Writer, root string) error {
	l, err := readClaims(filepath.Join(root, "docs", "gpu-claims.json"))
	if err != nil {
		return err
	}
	reports, err := readReports(filepath.Join(root, "docs", "gpu-reports"))
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, page(l, reports))
	return err
}

// list is docs/gpu-claims.json.
type list struct {
	Claims []claim `json:"claims"`
	// None are sentences that mention GPUs and promise nothing about them.
	None []none `json:"not_claims"`
}

// claim is something that gmemtop promises about GPUs.
type claim struct {
	ID string `json:"id"`
	// Claim is what is claimed, in one sentence.
	Claim string `json:"claim"`
	// Stands are the sentences that make the claim.
	Stands []quotation `json:"stands"`
	// Checks are names of checks of gmemtop doctor --gpu-report. All must be ok on a GPU.
	Checks []string `json:"checks,omitempty"`
	// Tests run on the stand-in GPU: a package's folder and a function, "cmd/gmemtop TestX".
	Tests []string `json:"tests,omitempty"`
	// Note says which part of the claim none of these shows.
	Note string `json:"note,omitempty"`
}

type quotation struct {
	Page  string `json:"page"`
	Quote string `json:"quote"`
}

type none struct {
	Page string `json:"page"`
	// Quote is the sentence or a part of it; "*" is the whole page.
	Quote string `json:"quote"`
	Why   string `json:"why"`
}

func readClaims(file string) (*list, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	var l list
	if err := d.Decode(&l); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &l, nil
}

// readReports reads users' reports in order of their file names. A report from the stand-in is an error: it
// says nothing about a GPU.
func readReports(dir string) ([]*acceptance.Report, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var reports []*acceptance.Report
	for _, file := range files {
		r, err := readReport(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		reports = append(reports, r)
	}
	return reports, nil
}

func readReport(file string) (*acceptance.Report, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := acceptance.Read(f)
	if err == nil && r.GPU.StandIn {
		err = errors.New("it comes from the stand-in, not from a GPU: remove it")
	}
	return r, err
}

const head = `# On a real GPU

<!-- Written by scripts/generate.sh from docs/gpu-claims.json and docs/gpu-reports: change those. -->

gmemtop is developed without a GPU. This page lists its claims about GPUs and where each was confirmed: on a
user's GPU, on the stand-in GPU of our tests (PyTorch's own CUDA code on a machine without a GPU,
[capture/standin](../capture/standin)), or nowhere yet. The stand-in proves nothing about time, kernels, or
what a driver does.

## Add your GPU

` + "```" + `
gmemtop doctor --gpu-report gpu.json --python ~/venv/bin/python
` + "```" + `

It takes up to nine minutes, needs no root, and does not touch memory that others use. It runs gmemtop and
small trainings, shows what is in the file, and sends nothing. The file contains the card, versions and
figures, but no names, paths or process numbers. Attach it to an issue of the project.
` + "`--checks list`" + ` lists the checks; ` + "`--all --keep DIR`" + ` runs all of them and resumes an earlier run.

A maintainer reads the file, saves it as ` + "`docs/gpu-reports/CARD-DAY.json`" + `, runs
` + "`scripts/generate.sh`" + ` and commits both. Files with unknown fields and files from the stand-in are refused.

`

// page writes the page.
func page(l *list, reports []*acceptance.Report) string {
	var b strings.Builder
	b.WriteString(head)
	onGPU, onStandIn, never := 0, 0, 0
	rows := make([]string, 0, len(l.Claims))
	for _, c := range l.Claims {
		seen, held := c.onGPUs(reports)
		tested := c.onStandIn()
		cell := ""
		if held {
			onGPU++
		}
		if tested != "" {
			onStandIn++
		}
		if !held && tested == "" {
			never++
			cell = "never"
		}
		text := c.Claim
		if c.Note != "" {
			text += " *" + c.Note + "*"
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |\n", cellText(text), seen, tested, cell))
	}
	b.WriteString("## Reports\n\n")
	if len(reports) == 0 {
		b.WriteString("None yet: gmemtop has not run on a GPU.\n\n")
	}
	for _, r := range reports {
		fmt.Fprintf(&b, "- %s: %s, gmemtop %s, %d of %d checks ok, %d failed\n", r.Day, cellText(r.Card()),
			cellText(r.Gmemtop.Version), count(r, acceptance.OK), len(r.Results), r.Failed())
	}
	if len(reports) > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "## Claims\n\n%d claims: %d seen on a GPU, %d on the stand-in, %d never.\n\n",
		len(l.Claims), onGPU, onStandIn, never)
	b.WriteString("| claim | on a GPU | on the stand-in | never |\n|---|---|---|---|\n")
	for _, row := range rows {
		b.WriteString(row)
	}
	b.WriteString("\nIn the second column, brackets mark checks of `gmemtop doctor --gpu-report` that no " +
		"report has yet.\n")
	return b.String()
}

func count(r *acceptance.Report, o acceptance.Outcome) int {
	n := 0
	for _, x := range r.Results {
		if x.Outcome == o {
			n++
		}
	}
	return n
}

// onGPUs returns what reports say about a claim, and whether one of them confirms it: all checks of the claim
// are ok in it.
func (c *claim) onGPUs(reports []*acceptance.Report) (cell string, held bool) {
	if len(c.Checks) == 0 {
		return "", false
	}
	var parts []string
	for _, r := range reports {
		var said []string
		ok := true
		for _, name := range c.Checks {
			x, there := r.Result(name)
			switch {
			case there && x.Outcome == acceptance.OK:
				if m := x.Measured(); m != "" {
					said = append(said, m)
				}
				continue
			case there && x.Outcome == acceptance.Failed:
				said = append(said, fmt.Sprintf("%s **failed**: %s", name, x.Reason))
			}
			ok = false
		}
		if ok {
			held = true
		}
		if ok || len(said) > 0 {
			parts = append(parts, strings.TrimRight(r.GPU.Name+": "+strings.Join(said, "; "), ": "))
		}
	}
	if len(parts) == 0 {
		return "[`" + strings.Join(c.Checks, "`, `") + "`]", false
	}
	return cellText(strings.Join(parts, " / ")), held
}

// onStandIn lists the tests of a claim.
func (c *claim) onStandIn() string {
	var parts []string
	for _, t := range c.Tests {
		folder, name, _ := strings.Cut(t, " ")
		parts = append(parts, fmt.Sprintf("[%s](../%s)", name, folder))
	}
	return strings.Join(parts, ", ")
}

// cellText escapes a text, so that it neither ends a table cell nor reads as HTML.
func cellText(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(s)
}
