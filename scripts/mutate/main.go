// Command mutate tests the tests of packages: it changes one place of their code at a time and runs their
// tests, which must fail. A change that no test notices survives. It must be explained in survivors.txt, or
// the run fails.
//
//	go run ./scripts/mutate [-n 20] [-seed 1] ./replay/sim ./managers/pack
//
// PACKAGE=TESTS changes one package and runs the tests of others, one after another until one fails:
// ./timeline/autopsy=./timeline/autopsy,./timeline. -run leaves out tests that take long.
//
// It changes only places that the tests reach, n in each package, drawn by the seed; -n 0 takes all. The
// working tree is not touched: go's -overlay replaces the file with the changed one.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "embed"

	"golang.org/x/tools/cover"
)

//go:embed survivors.txt
var survivors string

func main() {
	n := flag.Int("n", 20, "changes of each package; 0 for all")
	seed := flag.Uint64("seed", 1, "draws the changes")
	only := flag.String("run", "", "run only the tests that match, as go test's -run does")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := run{n: *n, seed: *seed, only: *only, explained: explained(survivors), out: os.Stdout}
	for _, path := range flag.Args() {
		if err := r.mutate(ctx, path); err != nil {
			fmt.Fprintln(os.Stderr, "mutate:", err)
			os.Exit(1)
		}
	}
	if r.survived > 0 {
		fmt.Fprintf(os.Stderr, "mutate: %d changes survive: %s\n", r.survived,
			"write a test, or explain them in scripts/mutate/survivors.txt")
		os.Exit(1)
	}
}

// explained returns the survivors that a text lists: its lines that are neither comments nor indented. The
// indented lines below one say why it survives.
func explained(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if line != "" && line[0] != '#' && line[0] != '\t' {
			all[line] = true
		}
	}
	return all
}

// run is one run over some packages.
type run struct {
	n         int
	seed      uint64
	only      string // the tests to run, "" for all
	explained map[string]bool
	out       io.Writer
	survived  int // and not explained
}

// pkg is what go list says about a package.
type pkg struct {
	Dir, ImportPath string
	GoFiles         []string
	Module          struct{ Path, Dir string }
}

// mutate changes one package: "./sim", or "./sim=./sim,./replay" if the tests of replay reach it too.
func (r *run) mutate(ctx context.Context, path string) error {
	path, by, _ := strings.Cut(path, "=")
	p, err := list(ctx, path)
	if err != nil {
		return err
	}
	var tested []pkg
	for one := range strings.SplitSeq(cmp.Or(by, path), ",") {
		q, err := list(ctx, one)
		if err != nil {
			return err
		}
		tested = append(tested, q)
	}
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	t := tests{of: p, pkgs: tested, only: r.only, scratch: scratch}
	began := time.Now()
	reached, err := t.reached(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", p.ImportPath, err)
	}
	t.limit = 3*time.Since(began) + 10*time.Second
	all, err := changes(p, reached)
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(r.seed, 0))
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var count [outcomes]int
	for i := range all {
		if r.n > 0 && count[killed]+count[survived] == r.n {
			break
		}
		outcome, err := t.run(ctx, &all[i])
		if err != nil {
			return err
		}
		count[outcome]++
		if outcome != survived {
			continue
		}
		said := "SURVIVES "
		if r.explained[all[i].String()] {
			said = "explained"
		} else {
			r.survived++
		}
		fmt.Fprintf(r.out, "%s  %v (line %d)\n", said, &all[i], all[i].line)
	}
	fmt.Fprintf(r.out, "%s: %d of %d changes killed, %d survive, %d do not compile; %d places in all\n",
		p.rel(), count[killed], count[killed]+count[survived], count[survived], count[broken], len(all))
	return nil
}

// rel is the package's path within its module.
func (p pkg) rel() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
}

func list(ctx context.Context, path string) (p pkg, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-json=Dir,ImportPath,GoFiles,Module", path).Output()
	if err != nil {
		return p, fmt.Errorf("list %s: %w", path, err)
	}
	return p, json.Unmarshal(out, &p)
}

// outcome is the result of a change.
type outcome int

const (
	killed   outcome = iota // a test failed, or ran out of time or memory
	survived                // the tests passed
	broken                  // it does not compile
	outcomes
)

func (o outcome) String() string { return [...]string{"killed", "survived", "broken"}[o] }

// tests runs the tests of packages while package of changes.
type tests struct {
	of      pkg
	pkgs    []pkg
	only    string
	scratch string
	limit   time.Duration // for those of one package
}

// memory limits the address space of tests, in KiB: a change may make a loop endless.
const memory = 12 << 20

// reached runs the tests without a change, which must pass, and returns the code that they reach, by file.
func (t *tests) reached(ctx context.Context) (map[string][]cover.ProfileBlock, error) {
	t.limit = 10 * time.Minute
	path, all := filepath.Join(t.scratch, "cover"), map[string][]cover.ProfileBlock{}
	for _, p := range t.pkgs {
		outcome, err := t.test(ctx, p, []string{"-coverpkg", t.of.ImportPath}, "-test.coverprofile", path)
		if err != nil {
			return nil, err
		}
		if outcome != survived {
			return nil, fmt.Errorf("the tests of %s do not pass without a change: %v", p.ImportPath, outcome)
		}
		profiles, err := cover.ParseProfiles(path)
		if err != nil {
			return nil, err
		}
		for _, f := range profiles {
			name := filepath.Base(f.FileName)
			all[name] = append(all[name], f.Blocks...)
		}
	}
	return all, nil
}

// run runs the tests with a change, until one package's notice it.
func (t *tests) run(ctx context.Context, c *change) (outcome, error) {
	overlay, err := t.overlay(c)
	if err != nil {
		return broken, err
	}
	for _, p := range t.pkgs {
		outcome, err := t.test(ctx, p, []string{"-vet=off", "-overlay", overlay})
		if err != nil || outcome != survived {
			return outcome, err
		}
	}
	return survived, nil
}

// test builds and runs the tests of one package.
func (t *tests) test(ctx context.Context, p pkg, build []string, args ...string) (outcome, error) {
	binary := filepath.Join(t.scratch, "test")
	build = slices.Concat([]string{"test", "-c", "-o", binary}, build, []string{p.ImportPath})
	if err := exec.CommandContext(ctx, "go", build...).Run(); err != nil {
		return broken, ctx.Err()
	}
	limited, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	begin := []string{"-c", fmt.Sprintf(`ulimit -v %d; exec "$@"`, memory), "sh", binary}
	cmd := exec.CommandContext(limited, "sh",
		slices.Concat(begin, []string{"-test.short", "-test.failfast", "-test.run", t.only}, args)...)
	cmd.Dir, cmd.WaitDelay = p.Dir, time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return killed, ctx.Err()
	case err == nil:
		return survived, nil
	case errors.As(err, &exit), errors.Is(err, context.DeadlineExceeded), errors.Is(err, exec.ErrWaitDelay):
		return killed, nil
	}
	return killed, fmt.Errorf("run the tests of %s: %w", p.ImportPath, err)
}

// overlay writes the changed file and returns the overlay that replaces the original with it.
func (t *tests) overlay(c *change) (string, error) {
	file, path := filepath.Join(t.scratch, "changed.go"), filepath.Join(t.scratch, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {c.path: file}})
	if err != nil {
		return "", err
	}
	return path, errors.Join(os.WriteFile(file, c.apply(), 0o600), os.WriteFile(path, text, 0o600))
}
