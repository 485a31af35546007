package timeline_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces/described"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
)

// Inferred categories are scored against the truth: real trainings on the CPU, described op by op by the
// agent, which knows what every storage is for, and the same allocations as the history of a CUDA allocator
// shows them, with only bytes, times and Python stacks (see history.py). Both have the same rows, so
// allocation i is the same in both.

// trained is one training, recorded both ways.
type trained struct {
	name            string
	truth, inferred *timeline.Device
}

// trainings run once for all tests, in one Python process.
var trainings struct {
	sync.Once
	all   []trained
	torch string
}

// training runs scenarios of the agent's own tests and returns them in order, and torch's version.
func training(t *testing.T) ([]trained, string) {
	t.Helper()
	python := torchtest.Python(t)
	trainings.Do(func() {
		trainings.all, trainings.torch = train(t, python,
			slices.Concat(lookedAt, measured, []string{"leaks", "tidy"}))
	})
	if trainings.all == nil {
		t.Fatal("the trainings failed: the first test that ran them says why")
	}
	return trainings.all, trainings.torch
}

func train(t *testing.T, python string, scenarios []string) ([]trained, string) {
	t.Helper()
	dir := t.TempDir()
	agent := filepath.Join(dir, "agent.py")
	if err := os.WriteFile(agent, []byte(pytorch.Agent()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "../capture/pytorch/testdata/history.py", agent, dir,
		strings.Join(scenarios, ","))
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "STEPS=10")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, torch, _ := strings.Cut(string(out), "\ntorch ")
	main := func(path string, read func(b []byte) (*timeline.Timeline, error)) *timeline.Device {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tl, err := read(b)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return tl.Main()
	}
	ctx := context.Background()
	var all []trained
	for _, name := range scenarios {
		x := trained{name: name}
		x.truth = main(filepath.Join(dir, name+".jsonl"), func(b []byte) (*timeline.Timeline, error) {
			tr, err := described.Read(ctx, bytes.NewReader(b), nil)
			if err != nil {
				return nil, err
			}
			return timeline.Build(ctx, tr, nil)
		})
		x.inferred = main(filepath.Join(dir, name+".pickle"), func(b []byte) (*timeline.Timeline, error) {
			tr, err := torchsnapshot.Read(ctx, bytes.NewReader(b), nil)
			if err != nil {
				return nil, err
			}
			return timeline.Build(ctx, tr, nil)
		})
		a, b := &x.truth.Allocs, &x.inferred.Allocs
		if a.Len() != b.Len() {
			t.Fatalf("%s: %d allocations in truth, %d in the history", name, a.Len(), b.Len())
		}
		for i := range a.Size {
			if a.Size[i] != b.Size[i] || a.Addr[i] != b.Addr[i] {
				t.Fatalf("%s: allocation %d is %d bytes at %x in truth, %d at %x in the history", name, i,
					a.Size[i], a.Addr[i], b.Size[i], b.Addr[i])
			}
		}
		all = append(all, x)
	}
	return all, strings.TrimSpace(torch)
}

// confusion counts bytes by true category (row) and inferred category (column).
type confusion [timeline.NumCategories][timeline.NumCategories]float64

// share returns the matrix scaled to a sum of 1.
func (c confusion) share() confusion {
	sum := 0.0
	for _, row := range c {
		for _, v := range row {
			sum += v
		}
	}
	for i := range c {
		for j := range c[i] {
			c[i][j] /= max(sum, 1)
		}
	}
	return c
}

func (c confusion) right() (r float64) {
	for i := range c {
		r += c[i][i]
	}
	return r
}

func (c *confusion) add(o confusion, weight float64) {
	for i := range c {
		for j := range c[i] {
			c[i][j] += weight * o[i][j]
		}
	}
}

// table prints a matrix in hundredths without empty rows and columns.
func (c confusion) table() string {
	var used []timeline.Category
	for i := range timeline.NumCategories {
		sum := 0.0
		for j := range timeline.NumCategories {
			sum += c[i][j] + c[j][i]
		}
		if sum > 0 {
			used = append(used, i)
		}
	}
	var b strings.Builder
	b.WriteString("| is \\ taken for |")
	for _, j := range used {
		b.WriteString(" " + j.String() + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(used)) + "\n")
	for _, i := range used {
		b.WriteString("| **" + i.String() + "** |")
		for _, j := range used {
			if c[i][j] == 0 {
				b.WriteString(" |")
			} else {
				fmt.Fprintf(&b, " %.2f |", 100*c[i][j])
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// worst names the off-diagonal cells of at least this share, largest first.
func (c confusion) worst(least float64) []string {
	type cell struct {
		share float64
		text  string
	}
	var cells []cell
	for i := range timeline.NumCategories {
		for j := range timeline.NumCategories {
			if i != j && c[i][j] >= least {
				cells = append(cells, cell{c[i][j], fmt.Sprintf("%s taken for %s | %.1f", i, j, 100*c[i][j])})
			}
		}
	}
	slices.SortStableFunc(cells, func(a, b cell) int { return cmp.Compare(b.share, a.share) })
	var out []string
	for _, x := range cells {
		out = append(out, x.text)
	}
	return out
}

// confused weighs every allocation by its bytes times the events that it lives through, and by its bytes
// alone at the truth's peak.
func (x *trained) confused() (lives, peak confusion) {
	a, b := &x.truth.Allocs, &x.inferred.Allocs
	at := x.truth.Totals.PeakAt
	for i := range a.Size {
		end := min(a.Requested[i], timeline.Moment(x.truth.Len()))
		lives[a.Category[i]][b.Category[i]] += float64(a.Size[i]) * float64(end-a.Start[i])
		if a.Start[i] <= at && at < a.Requested[i] {
			peak[a.Category[i]][b.Category[i]] += float64(a.Size[i])
		}
	}
	return lives.share(), peak.share()
}

// The rules were written with the first in view; the others were only measured.
var (
	lookedAt = []string{"mlp", "convnet", "gpt", "checkpoint", "amp", "accumulate", "gan"}
	measured = []string{"plain-mlp", "plain-convnet", "plain-gpt", "plain-checkpoint", "plain-amp",
		"plain-accumulation"}
)

const (
	leastOfOne, leastAtPeakOfOne = 0.92, 0.85 // of any one training
	leastOfAll, leastAtPeakOfAll = 0.96, 0.93 // on average
)

func TestInferredCategoriesAgreeWithTheAgent(t *testing.T) {
	all, torch := training(t)
	all = slices.DeleteFunc(slices.Clone(all),
		func(x trained) bool { return x.name == "leaks" || x.name == "tidy" })
	var lives, peaks confusion
	var rows, confused strings.Builder
	for _, x := range all {
		life, peak := x.confused()
		if life.right() < leastOfOne || peak.right() < leastAtPeakOfOne {
			t.Errorf("%s: %.1f %% agree, %.1f %% at the peak; the floors are %.0f and %.0f", x.name,
				100*life.right(), 100*peak.right(), 100*leastOfOne, 100*leastAtPeakOfOne)
		}
		lives.add(life, 1/float64(len(all)))
		peaks.add(peak, 1/float64(len(all)))
		fmt.Fprintf(&rows, "| %s | %d | %.1f | %.1f |\n", x.name, x.truth.Allocs.Len(), 100*life.right(),
			100*peak.right())
		for _, cell := range life.worst(0.005) {
			fmt.Fprintf(&confused, "| %s | %s |\n", x.name, cell)
		}
	}
	if lives.right() < leastOfAll || peaks.right() < leastAtPeakOfAll {
		t.Errorf("on average %.1f %% agree, %.1f %% at the peak; the floors are %.0f and %.0f",
			100*lives.right(), 100*peaks.right(), 100*leastOfAll, 100*leastAtPeakOfAll)
	}
	fmt.Fprintf(&rows, "| all, each the same weight | | %.1f | %.1f |\n", 100*lives.right(),
		100*peaks.right())
	text := fmt.Sprintf(categoriesText, torch, rows.String(), lives.table(), peaks.table(), confused.String())
	if *update {
		if err := os.WriteFile("../docs/categories.md", []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s%s", rows.String(), confused.String())
}

// TestLeaksAreFoundByStacksAlone uses a list that grows by a tensor a step, and the same training without it.
func TestLeaksAreFoundByStacksAlone(t *testing.T) {
	all, _ := training(t)
	for _, x := range all {
		leaks := steps.Leaks(x.inferred)
		if x.name != "leaks" {
			for _, l := range leaks {
				t.Errorf("%s keeps nothing, but %s is reported to leak %.0f bytes a step", x.name,
					sites.Name(x.inferred, l.Stack), l.Slope)
			}
			continue
		}
		// what the allocator gives for the 1,280 bytes that the script keeps
		const aStep = (32*10*4 + 511) / 512 * 512
		if len(leaks) != 1 || leaks[0].Slope != aStep ||
			!strings.HasPrefix(sites.Name(x.inferred, leaks[0].Stack), "leaks train.py:") {
			t.Errorf("%d leaks: %+v; the script keeps %d bytes a step at one place", len(leaks), leaks, aStep)
		}
	}
}

// categoriesText is docs/categories.md: torch's version, the trainings, the matrices over lives and at the
// peak, and what is confused.
const categoriesText = `# How far inferred categories can be trusted

A recording of PyTorch's allocator shows each block's size, times and allocation stack, but not what the block
is for. gmemtop infers that (timeline/category.go has the rules, in order) and marks what it inferred with ~.
Recordings of the agent, of describe.py and of torch.profiler with memory contain the categories, so nothing
is inferred there.

A test writes this page. It trains small networks with real PyTorch (%s, on the CPU) and records
each training in two ways: op by op with the agent, which sees what every storage is for; and as the history
of a CUDA allocator would show the very same allocations, with Python stacks (except for the backward pass,
which runs on its own threads) and nothing else. So truth and inference are compared block by block. To write
the page again, or to check a change of the rules:

    GMEMTOP_TORCH=/path/to/python go test ./timeline -run Inferred -update

Each training has ten steps and is recorded from its first weight on. Blocks are weighted in two ways: by
bytes x life, with life counted in allocator events, and by bytes at the moment of the highest peak.

| training | blocks | %% right of bytes x life | %% right at the peak |
|---|---:|---:|---:|
%s
The rules were written with the trainings without a prefix in view; the plain ones (the estimate's scripts)
were only measured.

## Bytes x life, in percent of all

%s
## Bytes at the peak, in percent of all

%s
## Confusions of at least half a percent of a training's bytes x life

| training | | %% |
|---|---|---:|
%s
Why:

- **gradient taken for autograd_detail**: an optimizer that allocates nothing (plain SGD, SGD with momentum
  after its first step) leaves no trace of where backward ended. Gradients that are freed before anything else
  is allocated look like backward's own temporaries.
- **temporary taken for activation**: autocast's copies of weights. The agent sees that an op only reads a
  weight and writes it in another type; a Python stack shows the module's forward, as for any activation.
  Backward does read them: a recompute may take them for activations.
- **input taken for unknown**: the first batch, if it is made before any training. Weights are made then too,
  by similar code.
- **input taken for activation**: a batch that is made in the middle of a step, between two calls of modules,
  looks just like arithmetic on a module's output.

What these figures leave out: memory that kernels take for themselves (workspaces) is not a tensor's storage
and is in neither recording. A block that existed before a recording began has no stack and stays unknown: a
recording that begins in the middle of a training knows later blocks just as well, but nothing about the
weights. The networks are small; shares differ with shapes.

## Leaks

In the same histories, a training that keeps a tensor of each batch in a list is reported to leak exactly
these bytes per step, at the line that keeps them. For the same training without the list, and for all others
above, no leak is reported.
`
