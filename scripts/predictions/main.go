// Command predictions compares the predictions for plans with what PyTorch took under them, in virtual time
// on the stand-in GPU:
//
//	go run ./scripts/predictions -python PYTHON [-packages DIR] [-sources DIR] [-results DIR] \
//		[-only NAME,...] [-budgets PERCENT,...] [-managers NAME,...] [-page FILE] > docs/predictions.md
//
// Each program trains on the stand-in, and gmemtop compare --target live: carries plans out in it at each
// budget, while counted.py records the figures of PyTorch's allocator and of the stand-in's events. Each
// comparison is kept in the folder of results, so that an interrupted run continues where it was; -table only
// writes the page again. All programs are compared at the first budget before any at the second, so that a
// run that ends early has covered every program.
package main

import (
	"context"
	"encoding/json"
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

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/scripts/internal/trial"
)

// machine is the one that programs train on: no card, but of an H100's order. Times are in nanoseconds, rates
// in bytes a nanosecond.
var machine = struct {
	launch, event, kernel, copies, driver    int64
	together, arithmetic, bandwidth, out, in float64
}{launch: 6000, event: 1000, kernel: 2000, copies: 9000, driver: 100_000,
	together: 0.85, arithmetic: 0.55, bandwidth: 0.75, out: 52, in: 53}

// rates are the machine in the words of the stand-in's clock.
func rates() string {
	m := &machine
	return fmt.Sprintf("launch=%d,event=%d,kernel=%d,copy=%d,driver=%d,"+
		"together=%g,arithmetic=%g,bandwidth=%g,"+
		"out=%g,in=%g", m.launch, m.event, m.kernel, m.copies, m.driver,
		m.together, m.arithmetic, m.bandwidth,
		m.out, m.in)
}

// hardware is the machine as plans are made for it: what a calibration of its link would say. What kernels
// take is in the description of a step.
func hardware() plan.Hardware {
	m := &machine
	return plan.Hardware{Name: "the stand-in", Origin: "the rates of the stand-in's clock",
		D2H:      plan.Link{BytesPerSecond: m.out * 1e9, Latency: m.copies},
		H2D:      plan.Link{BytesPerSecond: m.in * 1e9, Latency: m.copies},
		Together: m.together, LaunchGap: m.launch, MallocTime: m.driver, FreeTime: m.driver}
}

type program struct {
	name string
	args []string
	// A network of a public repository comes from a folder of the sources, which has to be at this commit.
	folder, commit string
}

var programs = []program{
	{name: "mlp", args: []string{"examples/mlp.py", "--steps", "1000000"}},
	{name: "vgg16", args: []string{"examples/vgg16.py", "--steps", "1000000"}},
	{name: "gpt2", args: []string{"examples/gpt2.py", "--steps", "1000000"}},
	{name: "resnet50", args: []string{"examples/resnet50.py", "--steps", "1000000"}},
	{name: "vit", args: []string{"examples/vit.py", "--steps", "1000000"}},
	{name: "transformers-gpt2", args: []string{"scripts/predictions/library.py", "gpt2"}},
	{name: "transformers-bert", args: []string{"scripts/predictions/library.py", "bert"}},
	{name: "torchvision-resnet18", args: []string{"scripts/predictions/library.py", "resnet18"}},
	{name: "timm-convnext", args: []string{"scripts/predictions/library.py", "convnext"}},
	{name: "timm-mixer", args: []string{"scripts/predictions/library.py", "mixer"}},
	{"milesial-unet", []string{"scripts/predictions/library.py", "unet"}, "Pytorch-UNet", "21d7850f"},
	{"kuangliu-cifar", []string{"scripts/predictions/library.py", "cifar"}, "pytorch-cifar", "49b7aa97"},
}

var budgets = []string{"80", "60", "40"}

// methods are the managers that are compared: one of each published method that a training can carry out, and
// ours.
const methods = "vdnn-all,autoswap,sqrt,rotor,dtr,checkmate,capuchin,delta,home,joint"

type options struct {
	python, packages, sources, results, only, budgets, managers, page, gmemtop string

	limit, planning time.Duration
	table           bool
}

func main() {
	var o options
	flag.StringVar(&o.python, "python", os.Getenv("GMEMTOP_TORCH"), "a Python with a torch built for CUDA")
	flag.StringVar(&o.packages, "packages", "", "a folder with transformers, timm and torchvision")
	flag.StringVar(&o.sources, "sources", "", "a folder with checkouts of Pytorch-UNet and pytorch-cifar")
	flag.StringVar(&o.results, "results", "predictions", "the folder that comparisons are kept in")
	flag.StringVar(&o.only, "only", "", "the programs to run, separated by commas (default all)")
	flag.StringVar(&o.budgets, "budgets", "60,80,40", "the budgets to run at, in this order")
	flag.StringVar(&o.managers, "managers", methods, "as compare --managers")
	flag.StringVar(&o.gmemtop, "gmemtop", "", "a gmemtop that is built already")
	flag.DurationVar(&o.planning, "planning", 2*time.Minute, "the most time for planning with one manager")
	flag.DurationVar(&o.limit, "limit", 20*time.Minute, "the most time for one comparison")
	flag.StringVar(&o.page, "page", "", "a copy of an earlier page, for the comparisons that are not kept")
	flag.BoolVar(&o.table, "table", false, "run nothing: write the page from what is kept")
	flag.Parse()
	if err := o.run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "predictions:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context, w io.Writer) error {
	if !o.table {
		if err := o.measure(ctx); err != nil {
			return err
		}
	}
	return o.write(w)
}

func (o *options) path(p program, budget string) string {
	return filepath.Join(o.results, p.name+"-"+budget+".json")
}

// hardware is the file that describes the machine to gmemtop.
func (o *options) hardware() string { return filepath.Join(o.results, "hardware.json") }

func (o *options) measure(ctx context.Context) error {
	lib, err := standin.Build(ctx, o.python)
	if err != nil {
		return fmt.Errorf("build the stand-in: %w", err)
	}
	if err := os.MkdirAll(o.results, 0o777); err != nil {
		return err
	}
	h, err := json.Marshal(hardware())
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.hardware(), h, 0o666); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "predictions-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	gmemtop := o.gmemtop
	if gmemtop == "" {
		if gmemtop, err = trial.Build(ctx, dir); err != nil {
			return err
		}
	}
	for budget := range strings.SplitSeq(o.budgets, ",") {
		for _, p := range programs {
			if o.only != "" && !slices.Contains(strings.Split(o.only, ","), p.name) {
				continue
			}
			if _, err := os.Stat(o.path(p, budget)); err == nil {
				continue
			}
			began := time.Now()
			if err := o.compare(ctx, lib, dir, gmemtop, p, budget); err != nil {
				fmt.Fprintf(os.Stderr, "%s at %s %%: %v\n", p.name, budget, err)
				continue
			}
			fmt.Fprintf(os.Stderr, "%s at %s %%: %v\n", p.name, budget, time.Since(began).Round(time.Second))
		}
	}
	return nil
}

// compare carries plans out in a separate training, which a plan may end.
func (o *options) compare(ctx context.Context, lib *standin.Library, dir, gmemtop string, p program,
	budget string) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	modules, err := o.modules(ctx, p)
	if err != nil {
		return err
	}
	m := standin.Machine{Clock: standin.Program, Hollow: "1MiB", Rates: rates(),
		Board: filepath.Join(dir, "board")}
	counted := filepath.Join(dir, p.name+"-"+budget+".counted")
	training := exec.CommandContext(ctx, o.python,
		append([]string{"scripts/predictions/counted.py", counted}, p.args...)...)
	training.Env = lib.EnvironOf(append(os.Environ(), "PYTHONPATH="+modules, "OMP_NUM_THREADS=1"), m)
	training.Stderr = os.Stderr
	t, err := trial.Start(training)
	if err != nil {
		return err
	}
	defer t.End()
	if err := t.Await(ctx, 3); err != nil {
		return err
	}
	text, err := trial.Compare(ctx, gmemtop, t, "--budget", budget+"%", "--iterations", strconv.Itoa(timed),
		"--results", "any", "--hardware", o.hardware(), "--limit", o.planning.String(),
		"--managers", o.managers)
	if err != nil {
		return err
	}
	return keep(o.path(p, budget), text, counted)
}

// modules is where a program's Python finds packages.
func (o *options) modules(ctx context.Context, p program) (string, error) {
	if p.folder == "" {
		return o.packages, nil
	}
	at := filepath.Join(o.sources, p.folder)
	head, err := exec.CommandContext(ctx, "git", "-C", at, "rev-parse", "HEAD").Output()
	if err != nil || !strings.HasPrefix(string(head), p.commit) {
		return "", fmt.Errorf("%s is no checkout at %s: %s, %w", at, p.commit, head, err)
	}
	return o.packages + string(filepath.ListSeparator) + at, nil
}
