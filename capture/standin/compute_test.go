//go:build standin

package standin_test

import (
	"bufio"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

var update = flag.Bool("update", false, "rewrite the lists of ops that do not agree with the CPU")

// compute runs a program of testdata/compute on a machine whose ops compute.
func compute(t testing.TB, order, program string, args ...string) standintest.Result {
	t.Helper()
	m := standin.Machine{Compute: true, Order: order, Devices: 2}
	args = append([]string{filepath.Join("testdata", "compute", program)}, args...)
	return standintest.Run(t, standintest.Library(t), m, standintest.Interpreter(t), args...)
}

// laws runs laws about computed numbers in one process, each as a separate test.
func laws(t *testing.T, order string, names ...string) standintest.Result {
	t.Helper()
	r := compute(t, order, "run_laws.py", append([]string{order}, names...)...)
	if r.Err != nil {
		t.Fatalf("%v\n%s%s", r.Err, r.Stdout, r.Stderr)
	}
	seen := 0
	for line := range strings.Lines(r.Stdout) {
		verdict, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, why, _ := strings.Cut(name, ": ")
		switch verdict {
		case "ok", "FAIL":
			seen++
			t.Run(name, func(t *testing.T) {
				if verdict != "ok" {
					t.Errorf("%s\n%s", why, r.Stderr)
				}
			})
		}
	}
	if !strings.Contains(r.Stdout, " of "+strconv.Itoa(seen)+" laws hold") || seen == 0 {
		t.Errorf("the program ended early:\n%s%s", r.Stdout, r.Stderr)
	}
	return r
}

// The laws themselves are sentences in testdata/compute/laws_*.py.
func TestQuickComputeLawsHoldLate(t *testing.T) {
	laws(t, "late", "laws").Check(t)
}

func TestComputeLawsHoldInEveryOrder(t *testing.T) {
	for _, order := range []string{"once", "3", "77"} {
		t.Run(order, func(t *testing.T) { laws(t, order, "laws").Check(t) })
	}
}

func TestComputeRefusesLoudlyAndListsTheOps(t *testing.T) {
	for _, order := range []string{"once", "late"} {
		t.Run(order, func(t *testing.T) {
			r := laws(t, order, "refusals")
			var ops []string
			for _, p := range r.Reports {
				for _, u := range p.Uncomputed {
					ops = append(ops, u.Op)
				}
			}
			for _, want := range []string{
				"aten::index_select", "aten::_cudnn_rnn", "aten::addmm", "torch.compile (inductor)",
				"triton kernel nothing", "kernel void sum_of_all<float>(float*)",
			} {
				if !slices.Contains(ops, want) {
					t.Errorf("the report does not list %s: %q", want, ops)
				}
			}
		})
	}
}

// With STANDIN_COMPUTE=note a program goes on with whatever is in memory, and the report says so.
func TestComputeContinuesWhereItMayAndReportsIt(t *testing.T) {
	lib := standintest.Library(t)
	const program = `
import torch
s = torch.sparse_coo_tensor(torch.tensor([[0], [0]], device="cuda"), torch.ones(1, device="cuda"), (2, 2))
try:
    torch.sparse.mm(s, torch.ones(2, 2, device="cuda"))
except RuntimeError as e:
    print("raised", "not computed" in str(e))
x = torch.ones(3, device="cuda")
x.resize_(0)
torch.nn.functional.ctc_loss
print(torch.quantize_per_tensor(torch.ones(3, device="cuda"), 1.0, 0, torch.quint8).shape)
`
	path := filepath.Join(t.TempDir(), "program.py")
	if err := os.WriteFile(path, []byte(program), 0o666); err != nil {
		t.Fatal(err)
	}
	c, collect := standintest.Start(t, lib, standin.Machine{Compute: true}, standintest.Interpreter(t), path)
	c.Env = append(c.Env, "STANDIN_COMPUTE=note")
	r := collect(c.Run())
	if r.Err != nil || !strings.Contains(r.Stdout, "torch.Size([3])") {
		t.Fatalf("%v\n%s%s", r.Err, r.Stdout, r.Stderr)
	}
	if len(r.Reports) != 1 || len(r.Reports[0].Uncomputed) == 0 {
		t.Errorf("nothing is listed: %+v", r.Reports)
	}
}

// The CPU's run of the same program is the reference: it knows nothing of the stand-in.
func TestExamplesComputeTheCPUsParametersToTheBit(t *testing.T) {
	folder, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	want := onCPU(t, "examples.py", folder, "cpu", "native")
	if strings.Count(want, "\n") != 5 {
		t.Fatalf("the CPU ran %q", want)
	}
	for _, order := range []string{"once", "late", "3"} {
		t.Run(order, func(t *testing.T) {
			got := compute(t, order, "examples.py", folder, "cuda", "native")
			got.Check(t)
			if got.Stdout != want {
				t.Errorf("the parameters and the last loss are\n%sbut on the CPU\n%s", got.Stdout, want)
			}
		})
	}
	t.Run("cudnn", func(t *testing.T) {
		once := compute(t, "once", "examples.py", folder, "cuda", "cudnn")
		late := compute(t, "late", "examples.py", folder, "cuda", "cudnn")
		once.Check(t)
		late.Check(t)
		if once.Stdout != late.Stdout {
			t.Errorf("at once and late differ:\n%s%s", once.Stdout, late.Stdout)
		}
		g, w := strings.Fields(once.Stdout), strings.Fields(want)
		for i := 2; i < len(w) && i < len(g); i += 3 {
			a, errA := strconv.ParseFloat(g[i], 64)
			b, errB := strconv.ParseFloat(w[i], 64)
			if errA != nil || errB != nil || a-b > 1e-4*b || b-a > 1e-4*b {
				t.Errorf("%s: the last loss is %s and on the CPU %s", w[i-2], g[i], w[i])
			}
		}
	})
}

// onCPU runs a program of testdata/compute without the stand-in.
func onCPU(t testing.TB, program string, args ...string) string {
	t.Helper()
	args = append([]string{filepath.Join("testdata", "compute", program)}, args...)
	c := exec.CommandContext(t.Context(), standintest.Interpreter(t), args...)
	c.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1")
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// Goes through PyTorch's own database of ops and samples: which agree with the CPU, draw random numbers, or
// are refused. The list of all that do not agree is checked in, so a new release of PyTorch shows what
// drifted. go test -tags standin -update rewrites it.
func TestOpsOfTheDatabaseAgreeWithTheCPU(t *testing.T) {
	for _, c := range []struct{ dtype, samples, order string }{
		{"float32", "6", "once"}, {"float32", "6", "late"}, {"bfloat16", "4", "once"},
	} {
		t.Run(c.dtype+" "+c.order, func(t *testing.T) {
			r := compute(t, c.order, "sweep_ops.py", "--dtype", c.dtype, "--samples", c.samples)
			if r.Err != nil {
				t.Fatalf("%v\n%s%s", r.Err, r.Stdout, r.Stderr)
			}
			got := summary(r.Stdout)
			golden := filepath.Join("testdata", "compute", "ops_"+c.dtype+".txt")
			if *update && c.order == "once" {
				if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				const changed = "%s\nThe list of what does not agree has changed (-update rewrites it):\n%s"
				t.Errorf(changed, r.Stderr, difference(string(want), got))
			}
			for _, p := range r.Reports {
				if len(p.Violations)+len(p.Leaks) > 0 {
					t.Errorf("%q %v", p.Violations, p.Leaks)
				}
			}
		})
	}
}

// summary counts the ops that agree and lists the others.
func summary(out string) string {
	agree := 0
	var rest []string
	s := bufio.NewScanner(strings.NewReader(out))
	for s.Scan() {
		if strings.HasSuffix(s.Text(), " agrees") {
			agree++
		} else {
			rest = append(rest, s.Text())
		}
	}
	slices.Sort(rest)
	return strconv.Itoa(agree) + " ops agree. The others:\n" + strings.Join(rest, "\n") + "\n"
}

// difference lists the lines that are in only one of two texts.
func difference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	var out strings.Builder
	for _, l := range x {
		if !slices.Contains(y, l) {
			out.WriteString("- " + l + "\n")
		}
	}
	for _, l := range y {
		if !slices.Contains(x, l) {
			out.WriteString("+ " + l + "\n")
		}
	}
	return out.String()
}

// The user's own sitecustomize runs after ours, with torch or without, and nothing imports torch that would
// not have done so anyway.
func TestQuickSitecustomizeRunsTheOneItHides(t *testing.T) {
	lib := standintest.Library(t)
	dir := t.TempDir()
	hidden := []byte("print('the user\\'s own')\n")
	if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), hidden, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", dir)
	const ask = "import sys; print('torch' in sys.modules)"
	r := standintest.Run(t, lib, standin.Machine{Compute: true}, standintest.Interpreter(t), "-c", ask)
	if r.Err != nil || r.Stdout != "the user's own\nFalse\n" {
		t.Errorf("%v, %q\n%s", r.Err, r.Stdout, r.Stderr)
	}
	// Libraries look for torch before they import it.
	const look = "import importlib.util as u; u.find_spec('torch'); import torch; " +
		"print(torch.ones(2, device='cuda').sum().item())"
	r = standintest.Run(t, lib, standin.Machine{Compute: true}, standintest.Interpreter(t), "-c", look)
	if r.Err != nil || r.Stdout != "the user's own\n2.0\n" {
		t.Errorf("%v, %q\n%s", r.Err, r.Stdout, r.Stderr)
	}
}

// BenchmarkExampleBesideTheCPU reports how many times a CPU run's processor time the same training takes on
// the stand-in.
func BenchmarkExampleBesideTheCPU(b *testing.B) {
	lib := standintest.Library(b)
	folder, err := filepath.Abs("../../examples")
	if err != nil {
		b.Fatal(err)
	}
	const options = "--batch 1 --sequence 128 --layers 4 --width 512 --vocabulary 10000 --steps 4 --device"
	args := append([]string{filepath.Join(folder, "gpt2.py")}, strings.Fields(options)...)
	var cpu, gpu time.Duration
	for b.Loop() {
		c := exec.CommandContext(b.Context(), standintest.Interpreter(b), append(args, "cpu")...)
		c.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		cpu += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
		m := standin.Machine{Compute: true}
		g, collect := standintest.Start(b, lib, m, standintest.Interpreter(b), append(args, "cuda")...)
		collect(g.Run()).Check(b)
		gpu += g.ProcessState.UserTime() + g.ProcessState.SystemTime()
	}
	b.ReportMetric(float64(gpu)/float64(cpu), "x_cpu")
}
