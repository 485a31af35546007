package milp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// This file runs solvers that are executables: the model goes to them as a file, and their answer is read
// from another, in a directory of its own that is removed afterwards. They are told when to stop and are
// killed if they do not, or when the context ends; a killed solver leaves no answer behind. What they wrote
// is a claim like any other and is checked like any other.
//
// CBC writes its solutions with eight digits. That is enough for whole variables, and the continuous ones
// beside them are solved for again by the embedded solver if they fail the check; but it is not enough for
// duals, so CBC is not asked to solve linear models.

// program is a solver's executable.
type program struct {
	name      string
	linear    bool // its answers to linear models are exact enough
	maxNodes  bool // it can count nodes
	arguments func(t task, left time.Duration) []string
	options   func(t task, left time.Duration) string // contents of the file options, or nil
	parse     func(c *claim, log string, solution io.Reader) error
	version   *regexp.Regexp // in its log
}

// The files in a run's directory.
const (
	modelFile    = "model.mps"
	optionsFile  = "options"
	solutionFile = "solution"
)

// killAfter is how long past the deadline a native solver may take to write its answer.
const killAfter = 5 * time.Second

// logTail is how much of the end of a solver's log is kept, for its bound and for error messages, besides the
// version at the start.
const logTail = 1 << 16

var highsProgram = program{
	name: "highs", linear: true, maxNodes: true,
	arguments: func(task, time.Duration) []string {
		return []string{"--options_file", optionsFile, modelFile}
	},
	options: func(t task, left time.Duration) string {
		var b strings.Builder
		fmt.Fprintf(&b, "write_solution_to_file = true\nsolution_file = %s\nwrite_solution_style = 0\n",
			solutionFile)
		fmt.Fprintf(&b, "mip_rel_gap = %v\nmip_feasibility_tolerance = %v\n", t.Gap, t.feastol)
		fmt.Fprintf(&b, "time_limit = %v\nthreads = %d\n", left.Seconds(), t.Threads)
		if t.Threads > 1 {
			b.WriteString("parallel = on\n")
		}
		if t.MaxNodes > 0 {
			fmt.Fprintf(&b, "mip_max_nodes = %d\n", min(t.MaxNodes, math.MaxInt32))
		}
		return b.String()
	},
	parse:   parseHighs,
	version: regexp.MustCompile(`Running HiGHS (\S+)`),
}

// programs are the executables of SolverNative in the order of their speed on interval knapsacks.
var programs = []program{
	highsProgram,
	{
		name: "cbc", maxNodes: true,
		arguments: func(t task, left time.Duration) []string {
			a := []string{modelFile, "-sec", strconv.FormatFloat(left.Seconds(), 'f', 3, 64), "-timeMode",
				"elapsed",
				"-ratio", strconv.FormatFloat(t.Gap, 'g', -1, 64), "-integerTolerance",
				strconv.FormatFloat(t.feastol, 'g', -1, 64)}
			if t.MaxNodes > 0 {
				a = append(a, "-maxNodes", strconv.FormatInt(min(t.MaxNodes, math.MaxInt32), 10))
			}
			if t.Threads > 1 {
				a = append(a, "-threads", strconv.Itoa(t.Threads))
			}
			return append(a, "-printingOptions", "all", "-solve", "-solution", solutionFile)
		},
		parse:   parseCBC,
		version: regexp.MustCompile(`Version: (\S+)`),
	},
	{
		name: "glpsol", linear: true,
		arguments: func(t task, left time.Duration) []string {
			return []string{"--freemps", modelFile, "--tmlim", strconv.Itoa(int(math.Ceil(left.Seconds()))),
				"--mipgap", strconv.FormatFloat(t.Gap, 'g', -1, 64), "-w", solutionFile}
		},
		parse:   parseGLPK,
		version: regexp.MustCompile(`GLPSOL\S* .*Solver,? v?(\S+)`),
	},
}

// find returns the path of the program if it is installed and can solve the model with these options.
func (p program) find(m *Model, o *Options) (path string, ok bool) {
	if (o.LPOnly || !m.hasIntegers()) && !p.linear || o.MaxNodes > 0 && !p.maxNodes {
		return "", false
	}
	path, err := exec.LookPath(p.name)
	return path, err == nil
}

// run returns the backend that runs the program at path.
func (p program) run(path string) backend {
	return func(ctx context.Context, t task) (answer, error) {
		c := newClaim(t)
		c.solver = p.name
		left := time.Until(t.deadline)
		if ctx.Err() != nil || left <= 0 {
			return c.answer, nil
		}
		dir, err := os.MkdirTemp("", "gmemtop-milp-")
		if err != nil {
			return c.answer, fmt.Errorf("milp: running %s: %w", p.name, err)
		}
		defer os.RemoveAll(dir)
		scale := t.scaling()
		if err := writeFile(filepath.Join(dir, modelFile), func(w io.Writer) error {
			return t.writeMPS(w, scale, t.LPOnly)
		}); err != nil {
			return c.answer, fmt.Errorf("milp: running %s: %w", p.name, err)
		}
		if p.options != nil {
			options := []byte(p.options(t, left))
			if err := os.WriteFile(filepath.Join(dir, optionsFile), options, 0o600); err != nil {
				return c.answer, fmt.Errorf("milp: running %s: %w", p.name, err)
			}
		}
		kill, cancel := context.WithDeadline(ctx, t.deadline.Add(killAfter))
		defer cancel()
		cmd := exec.CommandContext(kill, path, p.arguments(t, left)...)
		cmd.Dir = dir
		var log tailBuffer
		cmd.Stdout, cmd.Stderr = &log, &log
		cmd.WaitDelay = time.Second
		killAsGroup(cmd) // for a solver installed behind a script that starts it
		rerr := cmd.Run()
		if v := p.version.FindStringSubmatch(log.String()); v != nil {
			c.solver = p.name + " " + v[1]
		}
		if kill.Err() != nil {
			return c.answer, nil
		}
		f, err := os.Open(filepath.Join(dir, solutionFile))
		if err != nil {
			return c.answer, fmt.Errorf("milp: %s wrote no solution: %w, and said last: %s",
				p.name, errors.Join(rerr, err), log.lastLine())
		}
		defer f.Close()
		if err := p.parse(c, log.String(), f); err != nil {
			return c.answer, fmt.Errorf("milp: reading the solution of %s: %w", p.name, err)
		}
		return c.finish(scale), nil
	}
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// tailBuffer keeps the first 4 KiB and about the last logTail bytes written to it.
type tailBuffer struct{ head, tail []byte }

func (b *tailBuffer) Write(p []byte) (int, error) {
	if room := 4096 - len(b.head); room > 0 {
		b.head = append(b.head, p[:min(room, len(p))]...)
	}
	b.tail = append(b.tail, p...)
	if len(b.tail) > 2*logTail {
		b.tail = append(b.tail[:0], b.tail[len(b.tail)-logTail:]...)
	}
	return len(p), nil
}

// String returns the head and the tail, which overlap in a short log.
func (b *tailBuffer) String() string { return string(b.head) + "\n" + string(b.tail) }

func (b *tailBuffer) lastLine() string {
	lines := bytes.Split(bytes.TrimSpace(b.tail), []byte("\n"))
	return string(lines[len(lines)-1])
}

// claim is an answer being read from a solution file, in the solver's scale.
type claim struct {
	answer
	task   task
	linear bool
	point  bool // x is meant to be feasible
	duals  bool
}

func newClaim(t task) *claim {
	c := &claim{task: t, linear: t.LPOnly || !t.hasIntegers()}
	c.bound = math.Inf(-1)
	return c
}

// room makes place for the values to be read; variables and rows not mentioned are 0.
func (c *claim) room() {
	c.x, c.dual = make([]float64, c.task.NumVars()), make([]float64, c.task.NumRows())
}

// set stores a value under its name in the model file.
func (c *claim) set(name, value string, dual bool) error {
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return fmt.Errorf("%s has value %q", name, value)
	}
	into, prefix := c.x, byte('C')
	if dual {
		into, prefix = c.dual, 'R'
	}
	if len(name) < 2 || name[0] != prefix {
		return nil
	}
	i, err := strconv.Atoi(name[1:])
	if err != nil || i < 0 || i >= len(into) {
		return fmt.Errorf("unknown name %q", name)
	}
	into[i] = v
	return nil
}

// finish drops what the solver did not vouch for and scales the rest back.
func (c *claim) finish(s scaling) answer {
	if !c.point || c.status != StatusOptimal && c.status != StatusFeasible {
		c.x = nil
	}
	if c.x == nil || !c.duals || !c.linear || c.status != StatusOptimal {
		c.dual = nil
	}
	s.unscale(c.dual)
	c.bound /= s.cost
	return c.answer
}

// lastNumber returns the number that the pattern's last match in the log captures.
func lastNumber(pattern *regexp.Regexp, log string) (float64, bool) {
	all := pattern.FindAllStringSubmatch(log, -1)
	if len(all) == 0 {
		return 0, false
	}
	v, err := strconv.ParseFloat(all[len(all)-1][1], 64)
	return v, err == nil
}

// optimalBound is what an optimal objective proves when the log does not say.
func (c *claim) optimalBound(objective float64) float64 {
	return objective - c.task.Gap*math.Abs(objective)
}

func lines(r io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), 1<<16) // no line of a solution is longer
	return s
}

var (
	highsBound = regexp.MustCompile(`(?m)^\s*Dual bound\s+(\S+)`)
	highsNodes = regexp.MustCompile(`(?m)^\s*Nodes\s+(\d+)`)
)

// parseHighs reads a solution in HiGHS' raw style: a status, then sections that start with #.
func parseHighs(c *claim, log string, solution io.Reader) error {
	c.room()
	s := lines(solution)
	section, values, dual := "", "", false
	for s.Scan() {
		line := strings.TrimSpace(s.Text())
		switch {
		case line == "":
			continue
		case line == "Model status":
			section = line
			continue
		case strings.HasPrefix(line, "# Primal solution values"):
			section, dual = "values", false
			continue
		case strings.HasPrefix(line, "# Dual solution values"):
			section, dual = "values", true
			continue
		case strings.HasPrefix(line, "# Columns"), strings.HasPrefix(line, "# Rows"):
			values = line
			continue
		case strings.HasPrefix(line, "#"):
			section = ""
			continue
		}
		f := strings.Fields(line)
		switch {
		case section == "Model status":
			c.status, c.either = highsStatus(line)
			section = ""
		case section == "values" && len(f) == 1:
			if dual {
				c.duals = line == "Feasible"
			} else {
				c.point = line == "Feasible"
			}
		case section == "values" && len(f) == 2 && values != "":
			if err := c.set(f[0], f[1], dual); err != nil {
				return err
			}
		}
	}
	if c.status == StatusUnknown && c.point {
		c.status = StatusFeasible
	}
	if v, ok := lastNumber(highsBound, log); ok {
		c.bound = v
	}
	if v, ok := lastNumber(highsNodes, log); ok {
		c.nodes = int64(v)
	}
	return s.Err()
}

// highsStatus reads HiGHS' word for a model status; a limit of any kind is StatusUnknown.
func highsStatus(s string) (status Status, either bool) {
	switch s {
	case "Optimal", "Empty":
		return StatusOptimal, false
	case "Infeasible":
		return StatusInfeasible, false
	case "Unbounded":
		return StatusUnbounded, false
	case "Primal infeasible or unbounded":
		return StatusUnknown, true
	}
	return StatusUnknown, false
}

var (
	cbcBound = regexp.MustCompile(`(?m)^Lower bound:\s+(\S+)`)
	cbcNodes = regexp.MustCompile(`(?m)^Enumerated nodes:\s+(\d+)`)
)

// parseCBC reads a status line followed by lines of index, name, value and dual value, led by ** where a
// bound is overstepped.
func parseCBC(c *claim, log string, solution io.Reader) error {
	c.room()
	s := lines(solution)
	if !s.Scan() {
		return errors.Join(errors.New("it is empty"), s.Err())
	}
	status, objective, ok := strings.Cut(s.Text(), " - objective value ")
	value, err := strconv.ParseFloat(strings.TrimSpace(objective), 64)
	switch c.point = true; {
	case strings.HasPrefix(status, "Optimal") && ok && err == nil:
		c.status, c.bound = StatusOptimal, c.optimalBound(value)
	case strings.HasPrefix(status, "Infeasible"), strings.HasPrefix(status, "Integer infeasible"):
		c.status = StatusInfeasible
	case strings.HasPrefix(status, "Unbounded"):
		c.either = true
	case strings.HasPrefix(status, "Stopped"):
		c.status = StatusFeasible
		c.point = !strings.Contains(s.Text(), "no integer solution")
		if !c.point {
			c.status = StatusUnknown
		}
	default:
		return fmt.Errorf("unknown status %q", s.Text())
	}
	for s.Scan() {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(s.Text()), "**"))
		if len(f) < 3 {
			continue
		}
		if err := c.set(f[1], f[2], false); err != nil {
			return err
		}
	}
	if v, ok := lastNumber(cbcBound, log); ok {
		c.bound = v
	}
	if v, ok := lastNumber(cbcNodes, log); ok {
		c.nodes = int64(v)
	}
	return s.Err()
}

// glpkBound matches the bound in GLPK's lines of progress, such as
// "+ 12: mip =  3.5e+00 >=  3.4e+00   2.9% (1; 0)".
var glpkBound = regexp.MustCompile(`(?m)^\+.*>=\s+(-?[0-9][-+.0-9e]*)\s`)

// parseGLPK reads GLPK's own format: a line s with the status, then lines i for rows and j for columns,
// numbered from 1 in the order of the model file, which leaves out rows without bounds.
func parseGLPK(c *claim, log string, solution io.Reader) error {
	c.room()
	var rows []int
	for i, lo := range c.task.rowLower {
		if rowKind(lo, c.task.rowUpper[i]) != 0 {
			rows = append(rows, i)
		}
	}
	s := lines(solution)
	for s.Scan() {
		f := strings.Fields(s.Text())
		switch {
		case len(f) >= 6 && f[0] == "s":
			if err := c.glpkStatus(f, log); err != nil {
				return err
			}
		case len(f) >= 3 && f[0] == "j":
			value := f[2]
			if c.linear && len(f) >= 4 {
				value = f[3]
			}
			if j, err := strconv.Atoi(f[1]); err != nil || c.set("C"+strconv.Itoa(j-1), value, false) != nil {
				return fmt.Errorf("malformed line %q", s.Text())
			}
		case len(f) >= 5 && f[0] == "i" && c.linear:
			i, err := strconv.Atoi(f[1])
			if err != nil || i < 1 || i > len(rows) || c.set("R"+strconv.Itoa(rows[i-1]), f[4], true) != nil {
				return fmt.Errorf("malformed line %q", s.Text())
			}
		}
	}
	return s.Err()
}

// glpkStatus reads the fields of a line s and, where GLPK's presolver ended the matter, the log.
func (c *claim) glpkStatus(f []string, log string) error {
	objective, err := strconv.ParseFloat(f[len(f)-1], 64)
	if err != nil {
		return fmt.Errorf("malformed line %q", strings.Join(f, " "))
	}
	state := f[4]
	if f[1] == "bas" {
		state += f[5]
	}
	switch {
	case state == "o":
		c.status, c.point, c.bound = StatusOptimal, true, objective
		if strings.Contains(log, "MIP GAP TOLERANCE REACHED") {
			c.bound = c.optimalBound(objective)
		}
	case state == "ff":
		c.status, c.point, c.duals = StatusOptimal, true, true
	case state[0] == 'f' && f[1] == "mip" && strings.Contains(log, "MIP GAP TOLERANCE REACHED"):
		c.status, c.point, c.bound = StatusOptimal, true, c.optimalBound(objective)
	case state == "fn":
		c.status = StatusUnbounded
	case state[0] == 'f':
		c.status, c.point = StatusFeasible, true
		if v, ok := lastNumber(glpkBound, log); ok {
			c.bound = v
		}
	case state[0] == 'n', strings.Contains(log, "NO PRIMAL FEASIBLE SOLUTION"):
		c.status = StatusInfeasible
	case strings.Contains(log, "NO DUAL FEASIBLE SOLUTION"), strings.Contains(log, "UNBOUNDED"):
		c.either = true
	}
	return nil
}
