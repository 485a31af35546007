package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
)

func newCompareCommand(a *app) *cobra.Command {
	var f planFlags
	var d deviceFlags
	var names string
	var limit time.Duration
	var notes, maxBatch bool
	c := &cobra.Command{
		Use: "compare FILE [FILE ...]", GroupID: groupReport,
		Args: func(cmd *cobra.Command, args []string) error {
			if d.live() {
				return cobra.NoArgs(cmd, args)
			}
			return f.tracesOrNetwork(4)(cmd, args)
		},
		Short: "What each memory manager would make of this training, side by side",
		Long: "Plans one iteration of a trace with memory managers (pooling, swapping, recompute and their combinations), checks every\n" +
			"plan, simulates it, and says which is the fastest that fits. What the recording cannot serve is listed with the reason.\n" +
			"Managers: " + strings.Join(managers.Names(), ", ") + ".\n" +
			"With --target cuda every plan is also carried out on a GPU, with real memory, real copies and kernels that do as much work as\n" +
			"the recorded ones: checked byte for byte, then timed, and shown beside what was simulated.\n" +
			"With --target live:PID a running training is described, and what eager PyTorch can carry out of the plans is carried out in it,\n" +
			"one after the other, each measured between steps without a plan; it learns the same, and is left as it was. Managers that only\n" +
			"choose addresses (smartpool, stalloc, exact) are carried out where they are named, in a table of their own.\n" +
			"Exits with 3 where nothing can fit in the budget, with 5 where there is no GPU to measure on.",
		Example: "  gmemtop compare snapshot.pickle\n  gmemtop compare trace.gmt --budget 12GiB --managers all\n" +
			"  gmemtop compare trace.gmt --budget 50% --hardware h100 --managers autoswap,vdnn-*,joint --json\n" +
			"  gmemtop compare trace.gmt --budget 12GiB --target cuda\n" +
			"  gmemtop compare --target live:4242 --budget 80%\n" +
			"  gmemtop compare --network vgg16 --batch 256 --hardware titan-x --budget 12GiB\n" +
			"  gmemtop compare b32.gmt b64.gmt --batch 32,64 --budget 24GiB --max-batch\n" +
			"  gmemtop compare a.gmt b.gmt c.gmt --batch 8,16,8 --sequence 512,512,1024 --at-sequence 2048 --budget 24GiB --max-batch",
		RunE: func(cmd *cobra.Command, args []string) error {
			o := comparing{names: names, devices: &d, limit: limit, notes: notes, maxBatch: maxBatch}
			if d.live() {
				return a.compareLive(cmd.Context(), &f, o)
			}
			return a.compare(cmd.Context(), args, &f, o)
		},
	}
	p := c.Flags()
	p.StringVar(&names, "managers", "", "names separated by commas, with * at the end for all that begin so, or all (default a dozen)")
	f.add(c)
	d.add(c)
	p.DurationVar(&limit, "limit", 0, "the most time for planning with one manager; it then gives the best it has (default none)")
	p.BoolVar(&maxBatch, "max-batch", false, "also find the largest batch that fits in the budget; sizes grow as --batch of one recording says, as two at different\n"+
		"batches show (--batch 32,64), or as three or four do that also differ in --sequence")
	p.IntVar(&f.atSequence, "at-sequence", 0, "the sequence length that --max-batch is looked for at (default that of the first file)")
	p.BoolVar(&notes, "notes", false, "print what should be known about each result")
	a.flags.reading(c)
	a.flags.reporting(c)
	return c
}

// comparing are the flags of compare alone.
type comparing struct {
	names    string
	devices  *deviceFlags
	live     live.Options // where a training is the target
	limit    time.Duration
	notes    bool
	maxBatch bool
}

// managers are those that were named, and those that only a device can carry out where one is asked and nobody said which.
func (o *comparing) managers() ([]plan.Manager, error) {
	ordinals, err := o.devices.ordinals()
	if err != nil || len(ordinals) == 0 {
		return managers.Select(o.names)
	}
	words := strings.Split(o.names, ",")
	var there []plan.Manager
	for _, m := range managers.OnDevices() {
		k := slices.Index(words, m.Info().Name)
		if k >= 0 || o.names == "" || o.names == "all" {
			there = append(there, m)
		}
		if k >= 0 {
			words = slices.Delete(words, k, k+1)
		}
	}
	if len(words) == 0 {
		return there, nil
	}
	list, err := managers.Select(strings.Join(words, ","))
	return append(list, there...), err
}

func (a *app) compare(ctx context.Context, paths []string, f *planFlags, o comparing) error {
	if err := a.mayWrite(a.flags.output); err != nil {
		return err
	}
	list, err := o.managers()
	if err != nil {
		return usageError{err}
	}
	if f.atSequence != 0 && !o.maxBatch && f.network == "" {
		return usageError{errors.New("--at-sequence is for --max-batch: a recording is planned at the length that it was made with")}
	}
	if len(paths) > 1 && !o.maxBatch {
		return usageError{fmt.Errorf("one file is compared: %q and those after it are for --max-batch, which they tell how sizes grow", paths[1])}
	}
	devices, deviceErr := o.devices.devices(ctx)
	if deviceErr != nil && !stillSimulated(deviceErr) {
		return deviceErr
	}
	if len(devices) > 0 && f.hardware == "" {
		h, err := a.calibrated(ctx, &devices[0], o.devices.calibrate)
		if err != nil {
			return err
		}
		f.measured = &h
	}
	p, readErr, err := a.problem(ctx, paths, f)
	if p == nil {
		return err
	}
	opt := replay.Options{Seed: f.seed, Work: f.work, Limit: o.limit, Eager: managers.Eager}
	if opt.Budget, err = f.budgetBytes(ctx, p); err != nil {
		return err
	}
	if opt.Margin, err = optionalBytes("margin", f.margin); err != nil {
		return err
	}
	if o.maxBatch && opt.Budget == 0 {
		return usageError{errors.New("--max-batch needs --budget: the memory that the batch has to fit in")}
	}
	for i := range devices {
		opt.Devices = append(opt.Devices, replay.Device{Target: devices[i].target, About: aboutDevice(devices[i].info)})
	}
	for i := range devices {
		if d := &devices[i]; opt.Budget > d.info.Total {
			a.note("the budget is above the %s of %s: what takes more is simulated and not measured there", a.flags.report.Units.Bytes(d.info.Total), d.target.Name())
		}
	}
	c, err := a.compared(ctx, p, list, opt)
	if err != nil {
		return err
	}
	if o.maxBatch {
		if err := a.maxBatches(ctx, c, list, paths, f, opt); err != nil {
			return err
		}
	}
	if p.Source != nil {
		if c.Fidelity, err = replay.Prove(ctx, p.Source); err != nil {
			return err
		}
	}
	return firstError(a.writeComparison(o.notes, c), readErr, deviceErr, unmeasured(c))
}

// writeComparison answers with comparisons, one below the other; as JSON with the first.
func (a *app) writeComparison(notes bool, list ...*replay.Comparison) error {
	if a.flags.json {
		return a.write(false, func(w io.Writer) error { return list[0].WriteJSON(w, a.flags.report.Units) })
	}
	return a.answer(func(w io.Writer) error {
		for _, c := range list {
			if err := c.WriteText(w, replay.TextOptions{Units: a.flags.report.Units, Width: a.width(), ASCII: a.flags.ascii, Notes: notes}); err != nil {
				return err
			}
		}
		return nil
	})
}

// width is that of the terminal that the report goes to, 0 where it goes anywhere else.
func (a *app) width() int {
	if a.flags.output != "" || !isTerminal(a.out) {
		return 0
	}
	w, _, err := term.GetSize(a.out.Fd())
	if err != nil {
		return 0
	}
	return w
}
