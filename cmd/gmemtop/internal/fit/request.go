package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// Values of --allocator.
const (
	Model = "model" // PyTorch's allocator is emulated
	Own   = "real"  // PyTorch's own allocator runs, on a stand-in GPU
)

// DefaultOutside is the assumed size of a CUDA context with PyTorch's kernels. Drivers and builds differ by
// some hundred MiB; --outside replaces it.
const DefaultOutside = "600MiB"

// allCards is the value of --hardware that asks for a table of cards.
const allCards = "all"

// Request is an estimate as flags ask for it. Each field is the value of the flag of its name.
type Request struct {
	// Hardware is a name, a JSON file, or "all". Budget and Outside are sizes.
	Hardware, Budget, Outside string
	Sizes                     Sizes
	MaxBatch                  bool
	Steps, WorldSize          int
	Eager, CPU                bool
	Allocator                 string
	AllocConf                 []string
	Output, Snapshot          string
	JSON                      bool
}

// Prepare checks a request for a command and finds the device that it asks for. The training's Options lack
// only the streams and the environment. The error is a mistake if another value of a flag helps.
func (r *Request) Prepare(argv []string) (*Prepared, error) {
	p := &Prepared{request: *r}
	p.Argv = argv
	if err := p.chooseDevices(); err != nil {
		return nil, err
	}
	if err := p.chooseMemory(); err != nil {
		return nil, err
	}
	if err := r.check(argv); err != nil {
		return nil, exit.AsMistake(err)
	}
	p.noteVariants()
	p.Options.CPU, p.Options.Eager = r.CPU, r.Eager
	p.Options.Steps, p.Options.Processes = r.Steps, r.WorldSize
	return p, nil
}

// check rejects flags that do not go together.
func (r *Request) check(argv []string) error {
	switch {
	case r.Steps < 1 || r.Steps > 100:
		return fmt.Errorf("--steps %d is not between 1 and 100", r.Steps)
	case r.WorldSize < 0 || r.WorldSize > 1<<16:
		return fmt.Errorf("--world-size %d is not between 1 and 65536", r.WorldSize)
	}
	if err := r.Sizes.Check(argv, r.MaxBatch); err != nil || len(r.AllocConf) < 2 {
		return err
	}
	if err := r.oneSize("several --alloc-conf"); err != nil {
		return err
	}
	if r.JSON {
		return errors.New("several --alloc-conf print a table, not JSON: leave --json out")
	}
	return nil
}

// oneSize returns an error if a table is asked for together with flags for reports of a single size.
func (r *Request) oneSize(table string) error {
	if r.MaxBatch || r.Output != "" || r.Snapshot != "" || len(r.Sizes.All()) > 1 {
		return fmt.Errorf("%s is a table of one size: leave --max-batch, -o, --snapshot and further sizes "+
			"out", table)
	}
	return nil
}

// realCards returns the cards that --hardware names for PyTorch's own allocator: one, or all of them,
// smallest first.
func (r *Request) realCards(argv []string) ([]standin.Card, error) {
	switch {
	case r.CPU:
		return nil, errors.New("--allocator real is for GPUs: leave out --cpu")
	case r.MaxBatch && !strings.Contains(strings.Join(argv, " "), batchPlace):
		return nil, errors.New("--max-batch with --allocator real needs {batch} in the command: -- python " +
			"train.py --batch-size {batch}")
	case r.Hardware == allCards && len(r.AllocConf) > 1:
		return nil, errors.New("--hardware all and several --alloc-conf are two tables: choose one")
	case r.Hardware != allCards:
		card, err := cardNamed(cmp.Or(r.Hardware, planner.DefaultHardware))
		return []standin.Card{card}, err
	case r.Budget != "":
		return nil, errors.New("--hardware all takes each card's own memory: leave --budget out")
	}
	if err := r.oneSize("--hardware all"); err != nil {
		return nil, err
	}
	cards := slices.Clone(standin.Cards())
	slices.SortStableFunc(cards, func(a, b standin.Card) int { return cmp.Compare(a.Memory, b.Memory) })
	return cards, nil
}

// Prepared is a request that can be carried out.
type Prepared struct {
	Training
	// Building is called if the stand-in GPU has to be compiled first, which takes a minute; may be nil.
	Building func()

	request Request
	cards   []standin.Card // for PyTorch's own allocator, smallest first; none if it is emulated
}

// IsTable reports whether the request is for a table of cards or settings instead of a report.
func (p *Prepared) IsTable() bool { return len(p.cards) > 1 || len(p.request.AllocConf) > 1 }

// chooseDevices finds what --hardware names: cards for PyTorch's own allocator or, for the emulated one, a
// preset.
func (p *Prepared) chooseDevices() (err error) {
	switch r := &p.request; {
	case r.Allocator == Own:
		p.cards, err = r.realCards(p.Argv)
		return exit.AsMistake(err)
	case r.Allocator != Model:
		return exit.Mistakef("--allocator %q is neither model nor real", r.Allocator)
	case r.Snapshot != "":
		return exit.Mistakef("--snapshot needs --allocator real: the emulated allocator takes none")
	}
	p.Hardware, err = p.request.device()
	return err
}

// device finds the device that --hardware names for the emulated allocator.
func (r *Request) device() (plan.Hardware, error) {
	return (&planner.Task{Hardware: r.Hardware}).ChosenHardware()
}

// chooseMemory finds the memory that the training must fit in: what --budget says, or the device's.
func (p *Prepared) chooseMemory() (err error) {
	r := &p.request
	if p.Outside, err = planner.Bytes("outside", r.Outside); err != nil {
		return err
	}
	if r.CPU && r.Outside == DefaultOutside {
		p.Outside = 0
	}
	if p.Budget, err = planner.Bytes("budget", r.Budget); err != nil {
		return err
	}
	switch {
	case p.Budget > 0:
	case len(p.cards) > 0:
		p.Budget = p.cards[0].Memory
	default:
		p.Budget = memory(&p.Hardware)
	}
	if p.Budget == 0 {
		return exit.Mistakef("the memory of %s is unknown: give --budget", p.Hardware.Name)
	}
	return nil
}

// noteVariants adds a note if the name of the hardware could mean several cards.
func (p *Prepared) noteVariants() {
	asked := p.request.Hardware
	if asked == "" && len(p.cards) == 1 {
		asked = planner.DefaultHardware
	}
	if v := variants(asked); v != "" {
		p.Notes = append(p.Notes, v)
	}
}

// way returns how to run the training: on the only one of some cards, and with the only settings, if any.
func (p *Prepared) way(cards []standin.Card) choice {
	c := choice{Building: p.Building}
	if len(cards) == 1 {
		c.Card = &cards[0]
	}
	if len(p.request.AllocConf) > 0 {
		c.AllocConf = p.request.AllocConf[0]
	}
	return c
}

// Table makes the table that was asked for. tell is called with what each row is about.
func (p *Prepared) Table(ctx context.Context, tell func(text string)) (*Table, error) {
	size, way := p.request.Sizes.All()[0], p.way(p.cards)
	if len(p.cards) > 1 {
		return p.onCards(ctx, size, p.cards, way, tell)
	}
	return p.withSettings(ctx, size, p.request.AllocConf, way, tell)
}

// Report runs the command at each size, and finds the largest batch if that was asked for. Before each run it
// calls begins, with the size if there are several, "" for a single one, and what that returns after the run.
func (p *Prepared) Report(ctx context.Context, begins func(size string) (done func())) (*Report, error) {
	p.choose(p.way(p.cards))
	r := &Report{Training: &p.Training}
	sizes := p.request.Sizes.All()
	for i, x := range sizes {
		which := ""
		if len(sizes) > 1 {
			which = fmt.Sprintf("%s, %d of %d", x, i+1, len(sizes))
		}
		p.Keep = i == 0 && (p.request.Output != "" || p.request.Snapshot != "")
		done := begins(which)
		at, err := p.At(ctx, x)
		if errors.Is(err, standin.ErrNoCUDATorch) || errors.Is(err, standin.ErrPlatform) {
			at, err = p.emulatedAt(ctx, x, err)
		}
		if done(); err != nil {
			return nil, err
		}
		r.Estimates = append(r.Estimates, at)
	}
	var err error
	if p.request.MaxBatch && !r.Unseen() {
		p.Trying = begins
		r.Largest, err = p.Largest(ctx, r.Estimates)
	}
	return r, err
}

// emulatedAt runs the command at a size that PyTorch's own allocator cannot answer for, for the given reason.
// The emulated allocator answers instead, from now on, and the report says so.
func (p *Prepared) emulatedAt(ctx context.Context, x Size, why error) (*Estimate, error) {
	hw, err := p.request.device()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", why, err)
	}
	p.Hardware = hw
	if p.request.Budget == "" && hw.MemoryBytes > 0 {
		p.Budget = memory(&hw)
	}
	p.choose(p.way(nil))
	at, err := p.At(ctx, x)
	if err == nil {
		at.Result.Notes = append([]string{fmt.Sprintf("%v: PyTorch's allocator is emulated, as with "+
			"--allocator model", why)}, at.Result.Notes...)
	}
	return at, err
}
