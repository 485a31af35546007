package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// chapter is a part of the page that is made from source: every text of four words or more.
type chapter struct {
	title, intro string
	root         string // of the folders, from the root of the repository
	parts        []part
}

// part is a section: the texts of a folder's files, or of those that begin with a prefix.
type part struct{ folder, title string }

const everyText = "every text of four words or more, in the order of the code. Here … stands for a value. " +
	"Many are parts of a sentence."

// chapters are the parts of the page after the catalogue's, in order.
var chapters = []chapter{
	{"Messages of the screen", "What the views say besides, from their source: " + everyText, "tui", []part{
		{".", "The frame: keys, dialogs, loading, following a job"}, {"overview", "1 Overview"},
		{"timelineview", "2 Timeline"}, {"peak", "3 Peak"}, {"segments", "4 Segments"},
		{"iterations", "5 Iterations"}, {"allocations", "6 Allocations"}, {"ranks", "7 Ranks"},
		{"oom", "8 Out of memory"}, {"diff", "9 Diff"}, {"tracepage", "0 Trace"}, {"managers", "m Managers"},
		{"planview", "Inside a plan"}, {"live", "L Live"}, {"machine", "P Machine"}, {"block", "One block"},
		{"leaf", "All views"}, {"dialog", "Dialogs"}, {"table", "Tables"},
	}},
	{"Messages of reports", "What is said about a recording: " + everyText, ".", []part{
		{"timeline/autopsy", "Why memory ran out, what holds the peak, and what would help"},
		{"timeline/report", "Reports: stats, oom, diff"},
		{"timeline/figure", "Pictures and tables"},
		{"timeline/steps", "Steps"},
		{"timeline/runs", "Ranks, two recordings"}, {"timeline/sites", "Searches"},
		{"timeline", "Recordings, sizes and times"},
		{"replay/whatif", "Other settings, tried on a recorded run"},
		{"capture/books", "The memory of a whole GPU"},
	}},
	{"Messages about plans", "What is said about managers and their plans: " + everyText, ".", []part{
		{"replay", "Managers compared"}, {"managers/plan", "Steps to plan for, and plans"},
		{"replay/sim", "The simulator"}, {"replay/cuda", "A GPU"}, {"replay/live", "The running training"},
		{"replay/crew", "All processes of a running training"}, {"replay/emit", "A plan as a Python file"},
		{"replay/acceptance", "Checks on a GPU"},
	}},
	{"Messages of commands", "Help, errors and what commands print: " + everyText, ".", []part{
		{"cmd/gmemtop", "Commands"},
		{"cmd/gmemtop/internal/help", "Help"}, {"cmd/gmemtop/internal/console", "The terminal"},
		{"cmd/gmemtop/internal/output", "Files that are written"}, {"cmd/gmemtop/internal/export", "Exports"},
		{"cmd/gmemtop/internal/input", "Files that are opened"}, {"traces/load", "Reading files"},
		{"cmd/gmemtop/internal/headless", "Jobs watched without a screen"},
		{"cmd/gmemtop/internal/feed", "Jobs watched on the screen"},
		{"cmd/gmemtop/internal/planner", "Choosing managers and budgets"},
		{"cmd/gmemtop/internal/fit", "Estimates"},
		{"capture/pytorch/estimate", "Running a script for an estimate"},
		{"capture/aside", "Keeping a script from files and the network"},
		{"cmd/gmemtop/internal/sweep", "Sweeps"}, {"cmd/gmemtop/internal/doctor", "Doctor"},
		{"cmd/gmemtop/internal/assistant", "Answers to a coding assistant"},
		{"cmd/gmemtop/internal/progress", "Progress"},
	}},
	{"Messages about watching a job", "Errors and notes on the way to a job: " + everyText, "capture", []part{
		{".", "What a watched process reports"}, {"pytorch", "Starting and reaching the agent"},
		{"pytorch/inject", "Getting into a running process"}, {"pytorch/pool", "The pool"}, {"job", "A job"},
		{"procs", "Processes"}, {"usdt", "Probes"}, {"nvml", "The driver's counters"},
		{"slurm", "Slurm"}, {"hub", "The hub of a run"}, {"reach", "Reaching a hub"},
		{"fleet", "Several machines"},
	}},
}

// write writes a chapter, from the source below the root of the repository.
func (c *chapter) write(b *strings.Builder, root string) error {
	fmt.Fprintf(b, "\n# %s\n\n%s\n\n", c.title, filled(c.intro))
	for _, part := range c.parts {
		files, err := filepath.Glob(filepath.Join(root, c.root, part.folder, "*.go"))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("%s: no source: %w", part.folder, fs.ErrNotExist)
		}
		var texts []string
		seen := map[string]bool{}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				return err
			}
			for _, t := range sentencesOf(f) {
				if !seen[t] {
					seen[t], texts = true, append(texts, t)
				}
			}
		}
		if len(texts) > 0 {
			fmt.Fprintf(b, "## %s\n\n- %s\n\n", part.title, strings.Join(texts, "\n- "))
		}
	}
	return nil
}

// filled breaks a text into lines of at most 110 columns.
func filled(text string) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > 110:
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// sentencesOf returns the texts of a file that a person may read, in order.
func sentencesOf(f *ast.File) (texts []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		x, ok := n.(ast.Expr)
		if _, bare := n.(*ast.ImportSpec); bare || !ok {
			return !bare
		}
		s, known := joined(x)
		if !known {
			return true
		}
		s = strings.ReplaceAll(s, "%%", percent)
		s = gap.ReplaceAllString(flags.ReplaceAllString(s, "%$1"), "…")
		s = strings.TrimSpace(strings.NewReplacer(percent, "%", "\n", " ").Replace(s))
		if len(word.FindAllString(s, -1)) >= 4 && strings.Contains(s, " ") &&
			!strings.ContainsAny(s, "<\\") && !strings.Contains(s, `"""`) &&
			!strings.HasPrefix(s, "#") && !tag.MatchString(s) && !code.MatchString(s) {
			texts = append(texts, s)
		}
		return false
	})
	return texts
}

// percent stands for a sign that is none of a verb.
const percent = "\x00"

var (
	// flags matches a verb with flags, a width or a precision.
	flags = regexp.MustCompile(`%[-+#0-9.*]+([a-z])`)
	tag   = regexp.MustCompile(`^[a-z]+:"`) // of a struct's field
	// code matches Python, style sheets, gdb's commands and patterns that search a log.
	code = regexp.MustCompile(
		`^import |^@media|^try: |^set [a-z]+-|^False None|lambda p: |^, p\.O_|\(\?:|\.\*|\|your `)
	word = regexp.MustCompile(`\p{L}{2,}|\bI\b|\ba\b`)
)

// joined returns a text that may be written in parts, with … for the values between them; known is false if
// it has no text at all.
func joined(x ast.Expr) (s string, known bool) {
	if b, ok := x.(*ast.BinaryExpr); ok && b.Op == token.ADD {
		left, l := joined(b.X)
		right, r := joined(b.Y)
		if !l {
			left = "…"
		}
		if !r {
			right = "…"
		}
		return left + right, l || r
	}
	s, err := text(x)
	return s, err == nil
}
