// Command estimates runs gmemtop estimate with either allocator on the examples and on public training
// scripts, which are not changed, and writes docs/estimate.md:
//
//	go run ./scripts/estimates -python PYTHON [-sources DIR] [-data DIR] [-results DIR] [-only NAME,...] \
//		[-allocators real,model,cards] [-packages DIR] > docs/estimate.md
//
// Scripts come from checkouts in the folder of sources, each at the commit that programs.go names; none of
// their code is in this repository. made_up.py makes their data, once, in the folder of data. Each estimate
// is kept in the folder of results: an interrupted run continues where it was; remove an estimate's file to
// make it again. -table only writes the page again.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/scripts/internal/trial"
)

// results is the folder of the estimates that docs/estimate.md shows.
const results = "scripts/estimates/results"

type options struct {
	python, packages, sources, data, results, only, allocators, gmemtop string

	limit    time.Duration
	pageOnly bool
}

func main() {
	var o options
	flag.StringVar(&o.python, "python", os.Getenv("GMEMTOP_TORCH"), "a Python with a torch built for CUDA")
	flag.StringVar(&o.results, "results", results, "the folder that estimates are kept in")
	flag.StringVar(&o.packages, "packages", "", "a folder with packages that the Python lacks")
	flag.StringVar(&o.sources, "sources", "", "a folder with checkouts; without it the examples here are "+
		"estimated alone")
	flag.StringVar(&o.data, "data", "", "the folder for what is made up (default one that is removed)")
	flag.StringVar(&o.only, "only", "", "the programs, separated by commas (default all)")
	flag.StringVar(&o.allocators, "allocators", "real,model,cards", "which allocators are asked; "+
		"cards finds the smallest card, by the real one, for programs that the page wants it for")
	flag.StringVar(&o.gmemtop, "gmemtop", "", "a gmemtop that is built already")
	flag.DurationVar(&o.limit, "limit", 20*time.Minute, "how long an estimate may take")
	flag.BoolVar(&o.pageOnly, "table", false, "only write the page")
	flag.Parse()
	var err error
	if !o.pageOnly {
		err = o.measure(context.Background())
	}
	if err == nil {
		err = o.write(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "estimates:", err)
		os.Exit(1)
	}
}

// found is the kept result of one estimate.
type found struct {
	Date    string `json:"date"` // on which it was made
	Torch   string `json:"torch"`
	Seconds int    `json:"seconds"`         // of the whole command
	Steps   *int   `json:"steps,omitempty"` // nil for a row that was written by hand
	Fits    bool   `json:"fits"`
	// Peaks in bytes, 0 if there are none.
	Allocated int64 `json:"allocated_bytes,omitempty"`
	Reserved  int64 `json:"reserved_bytes,omitempty"`
	// Lines are those that read values, as file:line.
	Lines []string `json:"lines,omitempty"`
	// Failed is why there are no figures.
	Failed string `json:"failed,omitempty"`
	// Printed holds the two sizes of an estimate if only its printed text is known.
	Printed []string `json:"printed,omitempty"`
}

// itoa is short for strconv's.
func itoa(n int) string { return strconv.Itoa(n) }

// kept returns the kept result of an estimate, nil if there is none.
func (o *options) kept(name, allocator string) (*found, error) {
	text, err := os.ReadFile(o.path(name, allocator))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f found
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("read %s: %w", o.path(name, allocator), err)
	}
	if f.Failed == "" && f.Printed == nil && (f.Allocated <= 0 || f.Reserved <= 0) {
		return nil, fmt.Errorf("read %s: it holds no estimate: delete it to estimate again",
			o.path(name, allocator))
	}
	return &f, nil
}

// chosen are the programs that are to be estimated.
func (o *options) chosen() ([]program, error) {
	programs := slices.Clone(groups["examples"])
	if o.sources != "" {
		programs = all()
	}
	if o.only == "" {
		return programs, nil
	}
	var some []program
	for name := range strings.SplitSeq(o.only, ",") {
		k := slices.IndexFunc(programs, func(p program) bool { return p.name == name })
		if k < 0 {
			return nil, fmt.Errorf("no program is called %q; public scripts need -sources", name)
		}
		some = append(some, programs[k])
	}
	return some, nil
}

func (o *options) measure(ctx context.Context) error {
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "estimates-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.MkdirAll(o.results, 0o777); err != nil {
		return err
	}
	if o.gmemtop == "" {
		if o.gmemtop, err = trial.Build(ctx, dir); err != nil {
			return err
		}
	}
	if o.data == "" {
		o.data = filepath.Join(dir, "data")
	}
	for _, p := range chosen {
		for allocator := range strings.SplitSeq(o.allocators, ",") {
			if there, err := o.has(&p, allocator); there || err != nil {
				if err != nil {
					return err
				}
				continue
			}
			err := o.prepare(ctx, &p)
			switch {
			case err != nil:
			case allocator == cards:
				err = o.findCard(ctx, &p)
			default:
				err = o.estimate(ctx, &p, allocator)
			}
			if err != nil {
				// continue with the others; the page says what is missing
				fmt.Fprintf(os.Stderr, "estimates: %s with --allocator %s: %v\n", p.name, allocator, err)
			}
		}
	}
	return nil
}

// prepare checks that a program's sources are what the page says, and makes the data.
func (o *options) prepare(ctx context.Context, p *program) error {
	if p.folder == "" {
		return nil
	}
	at := filepath.Join(o.sources, p.folder)
	head, err := exec.CommandContext(ctx, "git", "-C", at, "rev-parse", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("%s is no checkout of %s: %w", at, p.title, err)
	}
	if !strings.HasPrefix(string(head), p.commit) {
		return fmt.Errorf("%s is at %.8s, not at %s", at, head, p.commit)
	}
	if !strings.HasPrefix(p.script, "-m ") {
		diff := exec.CommandContext(ctx, "git", "-C", at, "diff", "--quiet", "HEAD", "--", p.script)
		if err := diff.Run(); err != nil {
			return fmt.Errorf("%s in %s is not as it was committed: %w", p.script, at, err)
		}
	}
	if _, err := os.Stat(o.data); err == nil {
		return nil
	}
	making := exec.CommandContext(ctx, o.python, "scripts/estimates/made_up.py", "make", o.data)
	making.Env = append(os.Environ(), "PYTHONPATH="+o.packages)
	if said, err := making.CombinedOutput(); err != nil {
		_ = os.RemoveAll(o.data) // half of it would pass for all of it in the next run
		return fmt.Errorf("making up data: %w: %s", err, lastLine(said))
	}
	return nil
}

// has reports whether a program's result is there, or is not wanted.
func (o *options) has(p *program, allocator string) (bool, error) {
	if allocator == cards {
		f, err := o.keptCards(p)
		return !p.cards || f != nil, err
	}
	_, err := os.Stat(o.path(p.name, allocator))
	return err == nil, nil
}

// ran is what came of a run of gmemtop estimate.
type ran struct {
	date      string // on which it began
	seconds   int    // that it took, and of which a processor was busy with it
	processor int
	text      []byte
	failed    string // why there is no text
}

// run runs gmemtop estimate with some flags on a program.
func (o *options) run(ctx context.Context, p *program, flags ...string) (*ran, error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	argv := append([]string{"estimate"}, flags...)
	argv = append(argv, p.words(o.python, o.sources, o.data)...)
	c := exec.CommandContext(ctx, o.gmemtop, argv...)
	path := []string{o.packages}
	for _, m := range p.modules {
		path = append(path, filepath.Join(o.sources, m))
	}
	c.Env = append(os.Environ(), "PYTHONPATH="+strings.Join(path, string(os.PathListSeparator)))
	var said bytes.Buffer
	c.Stderr, c.Stdin = &said, os.Stdin // a script may ask the terminal for its width
	began := time.Now()
	text, err := c.Output()
	r := ran{date: began.Format(time.DateOnly), seconds: rounded(time.Since(began)), text: text}
	if c.ProcessState != nil {
		r.processor = rounded(c.ProcessState.UserTime() + c.ProcessState.SystemTime())
	}
	switch {
	case ctx.Err() != nil:
		r.failed = fmt.Sprintf("not done after %v", o.limit)
	case err != nil && len(text) == 0:
		if !errors.As(err, new(*exec.ExitError)) {
			return nil, err
		}
		r.failed = reason(said.Bytes())
	}
	return &r, nil
}

// rounded is a time in whole seconds.
func rounded(d time.Duration) int { return int(d.Seconds() + 0.5) }

// estimate makes one estimate and keeps it, or why there is none.
func (o *options) estimate(ctx context.Context, p *program, allocator string) error {
	ran, err := o.run(ctx, p, "--allocator", allocator, "--hardware", "h100", "--json")
	if err != nil {
		return err
	}
	f := found{Date: ran.date, Seconds: ran.seconds, Failed: ran.failed}
	if f.Failed == "" {
		if err := f.read(ran.text); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "%s with --allocator %s: %d s, %d of %d bytes %s\n", p.name, allocator, f.Seconds,
		f.Allocated, f.Reserved, f.Failed)
	return o.keep(p.name, allocator, &f)
}

// keep writes a result.
func (o *options) keep(name, allocator string, result any) error {
	out, err := json.MarshalIndent(result, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.path(name, allocator), append(out, '\n'), 0o666)
}

// read takes over what gmemtop estimate --json says.
func (f *found) read(text []byte) error {
	var said struct {
		Torch   string `json:"torch"`
		Results []struct {
			Fits      bool  `json:"fits"`
			Steps     *int  `json:"steps"`
			Allocated int64 `json:"peak_allocated_bytes"`
			Reserved  int64 `json:"reserved_bytes"`
			Answers   []struct {
				Line string `json:"line"`
			} `json:"answers"`
		} `json:"results"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return err
	}
	if len(said.Results) != 1 {
		return fmt.Errorf("gmemtop estimate answered for %d sizes", len(said.Results))
	}
	r := &said.Results[0]
	f.Torch, f.Fits, f.Steps, f.Allocated, f.Reserved = said.Torch, r.Fits, r.Steps, r.Allocated, r.Reserved
	for _, a := range r.Answers {
		if line := filepath.Base(a.Line); !slices.Contains(f.Lines, line) {
			f.Lines = append(f.Lines, line)
		}
	}
	return nil
}

// reason is the last line of what gmemtop printed, or, if the script itself failed, of what that printed.
func reason(text []byte) string {
	last := lastLine(text)
	if above, ok := bytes.CutSuffix(bytes.TrimSpace(text), []byte(last)); ok &&
		strings.HasSuffix(last, "its output is above") {
		if own := lastLine(bytes.TrimSuffix(above, []byte("gmemtop: "))); own != "" {
			return own
		}
	}
	return last
}

// lastLine is the last line of a text that is not blank.
func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], "gmemtop: ")
}

// write writes the page from the kept results.
func (o *options) write(w io.Writer) error {
	page, err := o.page()
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, page)
	return err
}
