package milp

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write the wanted answers of testdata again, as the "+
	"embedded solver gives them")

// parseModel reads the notation of testdata, a line each:
//
//	var x 0 5 int             variable with its bounds, and int if whole; variables come first
//	min 3 x - 2 y             the cost
//	cap: 1 <= x + 2 y <= 10   a row, with <=, >= or =
//
// A line "lp" sets Options.LPOnly, and "start 1 2" sets Options.Start.
func parseModel(t testing.TB, text string) (*Model, Options, names) {
	t.Helper()
	m, o, called := &Model{}, Options{}, names{}
	vars := map[string]Var{}
	number := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatalf("number %q: %v", s, err)
		}
		return v
	}
	terms := func(words []string) (terms []Term) {
		coef, sign := 1.0, 1.0
		for _, w := range words {
			if v, ok := vars[w]; ok {
				terms = append(terms, Term{v, sign * coef})
				coef, sign = 1, 1
			} else if w == "-" {
				sign = -1
			} else if w != "+" {
				coef = number(w)
			}
		}
		return terms
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0] == "#":
		case f[0] == "lp":
			o.LPOnly = true
		case f[0] == "start":
			for _, w := range f[1:] {
				o.Start = append(o.Start, number(w))
			}
		case f[0] == "var":
			vars[f[1]] = m.AddVar(0, number(f[2]), number(f[3]), len(f) > 4 && f[4] == "int")
			called.vars = append(called.vars, f[1])
		case f[0] == "min":
			for _, term := range terms(f[1:]) {
				m.cost[term.Var] += term.Coef
			}
		case strings.HasSuffix(f[0], ":"):
			lo, hi := math.Inf(-1), math.Inf(1)
			body := f[1:]
			if len(body) > 3 && body[1] == "<=" {
				lo, body = number(body[0]), body[2:]
			}
			if n := len(body); n >= 2 {
				switch v := body[n-1]; body[n-2] {
				case "<=":
					hi, body = number(v), body[:n-2]
				case ">=":
					lo, body = number(v), body[:n-2]
				case "=":
					lo, hi, body = number(v), number(v), body[:n-2]
				}
			}
			m.AddRow(lo, hi, terms(body)...)
			called.rows = append(called.rows, strings.TrimSuffix(f[0], ":"))
		default:
			t.Fatalf("line %q", line)
		}
	}
	return m, o, called
}

// names are what a model in text calls its variables and rows, by their index.
type names struct{ vars, rows []string }

// table writes an answer as testdata has it; only what is the same for every solver if brief.
func table(called names, s Solution, err error, brief bool) string {
	var b strings.Builder
	if err != nil {
		fmt.Fprintf(&b, "error %v\n", err)
		return b.String()
	}
	n := func(v float64) string { return strconv.FormatFloat(v, 'g', 9, 64) }
	fmt.Fprintf(&b, "status %v\nobjective %s\nbound %s\n", s.Status, n(s.Objective), n(s.Bound))
	if brief {
		return b.String()
	}
	for j, v := range s.X {
		fmt.Fprintf(&b, "%s = %s\n", called.vars[j], n(v))
	}
	for i, v := range s.Dual {
		fmt.Fprintf(&b, "price of %s = %s\n", called.rows[i], n(v))
	}
	return b.String()
}

// solvers are what the tests run: the embedded solver and each executable by itself.
var solvers = []struct {
	name string
	run  backend // nil if it is not installed
	program
}{
	{"wasm", runWASM, program{linear: true, maxNodes: true}},
	nativeSolver(programs[0]), nativeSolver(programs[1]), nativeSolver(programs[2]),
}

func nativeSolver(p program) (s struct {
	name string
	run  backend
	program
}) {
	s.name, s.program = p.name, p
	if path, err := exec.LookPath(p.name); err == nil {
		s.run = p.run(path)
	}
	return s
}

// eachSolver runs f as a subtest for each solver that is installed.
func eachSolver(t *testing.T, f func(t *testing.T, p program,
	solve func(*Model, Options) (Solution, error))) {
	for _, s := range solvers {
		t.Run(s.name, func(t *testing.T) {
			if s.run == nil {
				t.Skipf("needs the solver %s: it is not on PATH", s.name)
			}
			f(t, s.program, func(m *Model, o Options) (Solution, error) {
				return solveWith(context.Background(), m, o, s.run)
			})
		})
	}
}

func TestModelsInTextHaveTheAnswersInTestdata(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(ar.Files) != 2 || ar.Files[0].Name != "model" || ar.Files[1].Name != "want" {
				t.Fatal("want the files model and want")
			}
			m, o, called := parseModel(t, string(ar.Files[0].Data))
			want := string(ar.Files[1].Data)
			eachSolver(t, func(t *testing.T, p program, solve func(*Model, Options) (Solution, error)) {
				if (o.LPOnly || !m.hasIntegers()) && !p.linear {
					return
				}
				s, err := solve(m, o)
				if p.name != "" {
					want := strings.Join(strings.SplitAfter(want, "\n")[:min(3, strings.Count(want, "\n"))],
						"")
					if got := table(called, s, err, true); got != want {
						t.Errorf("got\n%swant\n%s", got, want)
					}
					return
				}
				got := table(called, s, err, false)
				if *update && got != want {
					ar.Files[1].Data = []byte(got)
					if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
						t.Fatal(err)
					}
					want = got
				}
				if got != want {
					t.Errorf("got\n%swant\n%s", got, want)
				}
			})
		})
	}
}

func TestAModelWrittenAsMPSLooksLikeThis(t *testing.T) {
	m, _, _ := parseModel(t, "var x 0 1 int\nvar y -inf 3\nvar z -inf inf\nvar w 2 2\nvar v 1 "+
		"inf int\nmin x - 0.1 y\n"+
		"a: x + y <= 4\nb: 1 <= y - z <= 3\nc: w + v = 5\nfree: x\nd: x + v >= 1e10\n")
	var b bytes.Buffer
	one := scaling{cost: 1, rows: make([]float64, m.NumRows())}
	for i := range one.rows {
		one.rows[i] = 1
	}
	if err := m.writeMPS(&b, one, false); err != nil {
		t.Fatal(err)
	}
	want := `NAME milp FREE
ROWS
 N cost
 L R0
 G R1
 E R2
 G R4
COLUMNS
 M 'MARKER' 'INTORG'
 C0 cost 1
 C0 R0 1
 C0 R4 1
 M 'MARKER' 'INTEND'
 C1 cost -0.1
 C1 R0 1
 C1 R1 1
 C2 cost 0
 C2 R1 -1
 C3 cost 0
 C3 R2 1
 M 'MARKER' 'INTORG'
 C4 cost 0
 C4 R2 1
 C4 R4 1
 M 'MARKER' 'INTEND'
RHS
 RHS R0 4
 RHS R1 1
 RHS R2 5
 RHS R4 1e+10
RANGES
 RNG R1 2
BOUNDS
 LO BND C0 0
 UP BND C0 1
 MI BND C1
 UP BND C1 3
 FR BND C2
 FX BND C3 2
 LO BND C4 1
 PL BND C4
ENDATA
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s", got)
	}
}
