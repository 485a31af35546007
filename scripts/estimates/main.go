// Command estimates sets what gmemtop estimate says with either allocator side by side, for the examples:
//
//	go run ./scripts/estimates -python PYTHON [-results DIR] [-only NAME,...]
//
// It prints the table of docs/estimate.md. Each estimate is kept in the folder of results, so that a run that
// was ended goes on where it was.
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

var examples = []string{"mlp", "vgg16", "resnet50", "vit", "gpt2"}

// The most that the two may be apart, as shares of what PyTorch's own allocator says.
const mostAllocated, mostReserved = 0.01, 0.02

type options struct {
	python, results, only string
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
	flag.StringVar(&o.only, "only", strings.Join(examples, ","), "the examples, separated by commas")
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
	return filepath.Join(o.results, name+"-"+allocator+".json")
}

func (o *options) measure(ctx context.Context) error {
	if err := os.MkdirAll(o.results, 0o777); err != nil {
		return err
	}
	gmemtop := ""
	for name := range strings.SplitSeq(o.only, ",") {
		if !slices.Contains(examples, name) {
			return fmt.Errorf("no example is called %s: they are %s", name, strings.Join(examples, ", "))
		}
		for _, allocator := range []string{"model", "real"} {
			if _, err := os.Stat(o.path(name, allocator)); err == nil {
				continue
			}
			if gmemtop == "" {
				dir, err := os.MkdirTemp("", "estimates-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(dir)
				if gmemtop, err = trial.Build(ctx, dir); err != nil {
					return err
				}
			}
			c := exec.CommandContext(ctx, gmemtop, "estimate", "--allocator", allocator, "--hardware", "h100",
				"--json", "--", o.python, filepath.Join("examples", name+".py"))
			c.Stderr = os.Stderr
			text, err := c.Output()
			if err != nil {
				return fmt.Errorf("estimate %s with --allocator %s: %w", name, allocator, err)
			}
			if err := os.WriteFile(o.path(name, allocator), text, 0o666); err != nil {
				return err
			}
		}
	}
	return nil
}

// write prints the table of the estimates that are kept.
func (o *options) write(w io.Writer) error {
	fmt.Fprint(w, "| example | allocated: real, bytes | model | off | reserved: real, bytes | model | off | "+
		"within |\n|---|---:|---:|---:|---:|---:|---:|---|\n")
	for _, name := range examples {
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
