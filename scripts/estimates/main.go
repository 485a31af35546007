// Command estimates sets what gmemtop estimate says with either allocator side by side, for the examples and
// for public training scripts, which are not changed:
//
//	go run ./scripts/estimates -python PYTHON [-packages DIR] [-sources DIR] [-results DIR] [-only NAME,...]
//
// It prints the tables of docs/estimate.md. Each estimate is kept in the folder of results, so that a run
// that was ended goes on where it was.
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
	"strings"

	"github.com/gmemtop/gmemtop/scripts/internal/trial"
)

// program is a training that is estimated.
type program struct {
	name    string
	args    []string
	modules string // the folder of the sources that its modules are imported from, "" for none
}

func example(name string) program {
	return program{name: name, args: []string{"examples/" + name + ".py"}}
}

// theirs is a public script, on made-up data. Its path begins with a folder of the sources.
func theirs(name, args string) program {
	return program{name: name, args: append([]string{"scripts/programs/cases/theirs.py"},
		strings.Fields("SOURCES/"+args)...)}
}

// lesson is a script from a fork of stanford-cs336/assignment2-systems, which makes its data itself. Its
// author published a memory snapshot of it.
func lesson(owner, modules, args string) program {
	return program{name: "assignment2-systems of " + owner,
		args: strings.Fields("SOURCES/" + owner + "/" + args), modules: owner + "/" + modules}
}

var examples = []program{example("mlp"), example("vgg16"), example("resnet50"), example("vit"),
	example("gpt2")}

// public are scripts of pytorch/examples, karpathy/nanoGPT and a course, with the settings they come with
// where these need no download.
var public = []program{
	theirs("mnist", "examples/mnist/main.py"),
	theirs("vae", "examples/vae/main.py"),
	theirs("dcgan", "examples/dcgan/main.py --dataset fake --accel --workers 0"),
	theirs("imagenet, ResNet-50", "examples/imagenet/main.py --dummy -a resnet50 -b 256 -j 0"),
	theirs("word_language_model, LSTM", "examples/word_language_model/main.py --accel --data words"),
	theirs("word_language_model, transformer",
		"examples/word_language_model/main.py --accel --data words --model Transformer"),
	theirs("nanoGPT, fp32", "nanoGPT/train.py --dataset=tokens --compile=False --dtype=float32 "+
		"--eval_iters=1 --gradient_accumulation_steps=2 --batch_size=4"),
	theirs("nanoGPT, bf16", "nanoGPT/train.py --dataset=tokens --compile=False --dtype=bfloat16 "+
		"--eval_iters=1 --gradient_accumulation_steps=2"),
	lesson("MAGMA27", "cs336-basics", "cs336_systems/benchmarking_script.py"),
	lesson("bcrafton", "", "memory_profile.py"),
	lesson("Wedsonlin", "cs336-basics", "cs336_systems/benchmark.py --pattern full-training-step"),
	lesson("NiuHuangxiaozi", "", "cs336_systems/profile_memory/profile_memory.py --mode both "+
		"--context_length 200"),
}

// The most that the two may be apart, as shares of what PyTorch's own allocator says.
const mostAllocated, mostReserved = 0.01, 0.02

type options struct {
	python, packages, sources, results, only string
}

// estimate is what gmemtop estimate --json says.
type estimate struct {
	Results []struct {
		Allocated int64 `json:"peak_allocated_bytes"`
		Reserved  int64 `json:"reserved_bytes"`
	} `json:"results"`
}

func main() {
	var o options
	flag.StringVar(&o.python, "python", os.Getenv("GMEMTOP_TORCH"), "a Python with a torch built for CUDA")
	flag.StringVar(&o.results, "results", "estimates", "the folder that estimates are kept in")
	flag.StringVar(&o.packages, "packages", "", "a folder with torchvision")
	flag.StringVar(&o.sources, "sources", "", "a folder with examples, of pytorch/examples, nanoGPT, and "+
		"assignment2-systems under its owners' names; "+
		"without it the examples here are estimated alone")
	flag.StringVar(&o.only, "only", "", "the programs, separated by semicolons (default all)")
	flag.Parse()
	ctx := context.Background()
	err := o.measure(ctx)
	if err == nil {
		err = o.write(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "estimates:", err)
		os.Exit(1)
	}
}

func (o *options) path(name, allocator string) string {
	name = strings.ReplaceAll(strings.ReplaceAll(name, ", ", "-"), " ", "-")
	return filepath.Join(o.results, name+"-"+allocator+".json")
}

// chosen are the programs that are to be estimated.
func (o *options) chosen() ([]program, error) {
	all := slices.Clone(examples)
	if o.sources != "" {
		all = append(all, public...)
	}
	if o.only == "" {
		return all, nil
	}
	var some []program
	for name := range strings.SplitSeq(o.only, ";") {
		k := slices.IndexFunc(all, func(p program) bool { return p.name == name })
		if k < 0 {
			return nil, fmt.Errorf("no program is called %q; public scripts need -sources", name)
		}
		some = append(some, all[k])
	}
	return some, nil
}

func (o *options) measure(ctx context.Context) error {
	if err := os.MkdirAll(o.results, 0o777); err != nil {
		return err
	}
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "estimates-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	gmemtop := ""
	for _, p := range chosen {
		for _, allocator := range []string{"model", "real"} {
			if _, err := os.Stat(o.path(p.name, allocator)); err == nil {
				continue
			}
			if gmemtop == "" {
				if gmemtop, err = trial.Build(ctx, dir); err != nil {
					return err
				}
			}
			if err := o.estimate(ctx, gmemtop, &p, allocator); err != nil {
				// the others are still worth their estimates; the table says what is missing
				fmt.Fprintf(os.Stderr, "estimates: %s with --allocator %s: %v\n", p.name, allocator, err)
			}
		}
	}
	return nil
}

func (o *options) estimate(ctx context.Context, gmemtop string, p *program, allocator string) error {
	argv := []string{"estimate", "--allocator", allocator, "--hardware", "h100", "--json", "--", o.python}
	for _, a := range p.args {
		argv = append(argv, strings.ReplaceAll(a, "SOURCES", o.sources))
	}
	c := exec.CommandContext(ctx, gmemtop, argv...)
	path := o.packages
	if p.modules != "" {
		path += string(os.PathListSeparator) + filepath.Join(o.sources, p.modules)
	}
	c.Env = append(os.Environ(), "PYTHONPATH="+path)
	c.Stderr = os.Stderr
	text, err := c.Output()
	if err != nil {
		return err
	}
	return os.WriteFile(o.path(p.name, allocator), text, 0o666)
}

// write prints the tables of the estimates that are kept.
func (o *options) write(w io.Writer) error {
	if err := o.table(w, "example", examples); err != nil || o.sources == "" {
		return err
	}
	fmt.Fprintln(w)
	return o.table(w, "script", public)
}

func (o *options) table(w io.Writer, kind string, programs []program) error {
	fmt.Fprintf(w, "| %s | allocated: real, bytes | model | off | reserved: real, bytes | model | off | "+
		"within |\n|---|---:|---:|---:|---:|---:|---:|---|\n", kind)
	for _, p := range programs {
		name := p.name
		var e [2]estimate
		missing := false
		for k, allocator := range []string{"real", "model"} {
			text, err := os.ReadFile(o.path(name, allocator))
			if os.IsNotExist(err) {
				missing = true
				continue
			}
			if err != nil {
				return err
			}
			if err := json.Unmarshal(text, &e[k]); err != nil {
				return fmt.Errorf("read %s: %w", o.path(name, allocator), err)
			}
			if len(e[k].Results) != 1 {
				return fmt.Errorf("read %s: it holds %d estimates: delete it to estimate again",
					o.path(name, allocator), len(e[k].Results))
			}
		}
		if missing {
			fmt.Fprintf(w, "| %s | not measured | | | | | | |\n", name)
			continue
		}
		real, model := &e[0].Results[0], &e[1].Results[0]
		allocated := off(model.Allocated, real.Allocated)
		reserved := off(model.Reserved, real.Reserved)
		within := "yes"
		if max(allocated, -allocated) > mostAllocated || max(reserved, -reserved) > mostReserved {
			within = "no"
		}
		fmt.Fprintf(w, "| %s | %d | %d | %+.2f %% | %d | %d | %+.2f %% | %s |\n", name, real.Allocated,
			model.Allocated, 100*allocated, real.Reserved, model.Reserved, 100*reserved, within)
	}
	return nil
}

// off is by what share of the second the first is above it.
func off(got, want int64) float64 { return float64(got-want) / float64(want) }
