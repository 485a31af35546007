package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// captureCommand captures the same steps of several ranks.
type captureCommand struct {
	*app
	reach        reachFlags
	ranks, depth string
	dir          string
	steps        int
	wait         time.Duration
	open         bool
}

func newCaptureCommand(a *app) *cobra.Command {
	c := captureCommand{app: a}
	cmd := &cobra.Command{
		Use: "capture --join-file FILE | capture PLACE", GroupID: groupLive, Args: cobra.MaximumNArgs(1),
		Short: "Capture the same steps of several ranks, on any machines",
		Long: `Captures steps of a training whose machines send to a gmemtop hub, op by op. All chosen ranks
begin with the same step, shortly after the command; gmemtop names those that could not. The traces come
through the hub into a new folder, one file a rank: the machines need no shared folder.

--ranks names ranks (0,8-15), those unlike the others (outliers), or all. A trace takes a few MiB or
more. These steps take several times as long, and the other ranks wait for them.

It needs the join file that gmemtop hub wrote; one made by --view-file does not allow it. PLACE is
ssh://HOST/RUN, slurm:JOB or k8s://NAMESPACE/JOB, as for gmemtop view.

Exits with 3 if a rank was not captured, or began with a later step.`,
		Example: "  gmemtop capture --join-file /shared/r1.join --steps 3\n" +
			"  gmemtop capture --join-file /shared/r1.join --ranks outliers,0 --open",
		RunE: func(cmd *cobra.Command, args []string) error {
			place := strings.Join(args, "")
			if place != "" && !isPlace(place) {
				return usagef("%q: %w", place, errPlace)
			}
			return c.run(cmd.Context(), place)
		},
	}
	p := cmd.Flags()
	c.reach.add(cmd)
	p.IntVar(&c.steps, "steps", 1, "how many steps to capture")
	p.StringVar(&c.ranks, "ranks", "outliers,0", "which `ranks`: numbers, outliers, all")
	p.StringVar(&c.depth, "depth", "", "capture by ops, history or profile (default what each machine's "+
		"gmemtop run says)")
	p.StringVarP(&c.dir, "output", "o", "", "write the traces to this new `folder` (default "+
		"RUN-stepN)")
	p.BoolVar(&c.open, "open", false, "then show the traces: two of them side by side, more as a run")
	p.DurationVar(&c.wait, "wait", captureWait, "how long to wait beyond the time that the steps should take")
	p.BoolVar(&c.flags.json, "json", false, "print the answer as JSON")
	c.flags.screen(cmd)
	help.Rare(p, "depth", "wait")
	return cmd
}

// captureWait is how long to wait beyond the time that steps should take.
const captureWait = time.Minute

// Limits of what is captured unasked.
const (
	mostOutliers = 8
	mostCaptured = 1000 // steps; the agent has the same limit
)

func (c *captureCommand) run(ctx context.Context, place string) error {
	if c.steps < 1 || c.steps > mostCaptured {
		return usagef("--steps %d: name 1 to %d", c.steps, mostCaptured)
	}
	if err := checkDepth(c.depth); err != nil {
		return err
	}
	choice, err := parseRanks(c.ranks)
	if err != nil {
		return usageError{err}
	}
	if c.open && !c.HasScreen() {
		return usagef("--open: %w", errNoScreen)
	}
	reach, leave, err := c.reach.to(ctx, place, "capture", bus.Operator)
	if err != nil {
		return err
	}
	defer leave()
	join, err := reach.Join(ctx)
	if err != nil {
		return err
	}
	if join.Seeds[bus.Operator] == "" {
		return unsupportedError{fmt.Errorf("%s%s does not allow captures: use the join file that "+
			"gmemtop hub wrote with --join-file", c.reach.join, place)}
	}
	conn, join, err := reach.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	nodes, outliers, err := c.look(ctx, conn, join.Run)
	if err != nil {
		return err
	}
	done, err := fleet.Capture(ctx, conn, fleet.CaptureOptions{
		Nodes: nodes, Steps: c.steps, How: c.depth, Wait: c.wait,
		Choose: func(running []int64) ([]int64, error) { return choice.of(running, outliers) },
		Dir: func(first int64) string {
			if c.dir != "" {
				return c.dir
			}
			return fmt.Sprintf("%s-step%d", bus.Token(join.Run), first)
		},
		Tell: func(text string) { c.note("%s", text) },
	})
	if err != nil {
		return err
	}
	return c.answer(ctx, done)
}

// look returns the nodes of the run and which ranks are unlike the others.
func (c *captureCommand) look(ctx context.Context, conn *bus.Conn, run string) (nodes []string,
	outliers []int64, err error) {
	w := fleet.NewWatch(fleet.WatchOptions{})
	reading, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { w.Run(reading, conn) })
	defer func() {
		stop()
		work.Wait()
		_ = w.Close()
	}()
	if err := caughtUp(ctx, w, run); err != nil {
		return nil, nil, err
	}
	return w.Known(), outliersOf(w.Job()), nil
}

// outliersOf returns the ranks unlike the others, the largest difference of each rank first.
func outliersOf(j *job.Job) []int64 {
	var peers []runs.Peer
	var ranks []int64
	for _, p := range j.Processes() {
		v := p.History.Snapshot()
		rank, known := v.Target.Rank.Value()
		if v.Ended || !known {
			continue
		}
		last := v.Steps[max(len(v.Steps)-runs.PeerSteps, 0):]
		figures := make([]runs.Peer, len(last))
		for i := range last {
			figures[i] = peerOf(&last[i])
		}
		ranks, peers = append(ranks, rank), append(peers, runs.TypicalPeer(figures))
	}
	r := runs.ComparePeers(peers)
	var list []int64
	add := func(i int) {
		if i >= 0 && i < len(ranks) && !slices.Contains(list, ranks[i]) && len(list) < mostOutliers {
			list = append(list, ranks[i])
		}
	}
	add(r.Slow)
	for _, d := range r.Differences {
		add(d.Peer)
	}
	return list
}

// peerOf returns the figures of one step in which ranks are compared, as on the screen: without a GPU,
// resident memory.
func peerOf(s *capture.Step) runs.Peer {
	return runs.Peer{Duration: maybe.Known(s.End - s.Start), Forward: s.Forward, Backward: s.Backward,
		Optimizer: s.Optimizer, Bytes: maybe.First(s.Allocated, s.RSS)}
}

// rankChoice is a parsed --ranks.
type rankChoice struct {
	outliers, all bool
	numbers       [][2]int64 // first and last
}

// mostRank is the highest rank that can be named.
const mostRank = 1 << 20

func parseRanks(text string) (c rankChoice, err error) {
	for _, word := range strings.Split(text, ",") {
		switch word = strings.TrimSpace(word); word {
		case "outliers":
			c.outliers = true
			continue
		case "all":
			c.all = true
			continue
		}
		first, last, isRange := strings.Cut(word, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.ParseInt(first, 10, 32)
		b, errB := strconv.ParseInt(last, 10, 32)
		if errA != nil || errB != nil || a < 0 || b < a || b > mostRank {
			return c, fmt.Errorf("--ranks %q: name ranks like 0,8-15, outliers, or all", text)
		}
		c.numbers = append(c.numbers, [2]int64{a, b})
	}
	return c, nil
}

// of returns the chosen ranks. A single number is chosen even if no rank has it, so that the caller can say
// so; of a range, only running ranks are.
func (c *rankChoice) of(running, outliers []int64) ([]int64, error) {
	chosen := map[int64]bool{}
	for _, r := range running {
		in := slices.ContainsFunc(c.numbers, func(n [2]int64) bool { return n[0] <= r && r <= n[1] })
		if c.all || in || c.outliers && slices.Contains(outliers, r) {
			chosen[r] = true
		}
	}
	for _, n := range c.numbers {
		if n[0] == n[1] {
			chosen[n[0]] = true
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New("no rank is unlike the others: name some, such as --ranks 0,1")
	}
	list := make([]int64, 0, len(chosen))
	for r := range chosen {
		list = append(list, r)
	}
	slices.Sort(list)
	return list, nil
}

// answer prints what was captured, and shows it.
func (c *captureCommand) answer(ctx context.Context, done fleet.Captured) error {
	type line struct {
		Rank  int64  `json:"rank"`
		Node  string `json:"node"`
		First int64  `json:"first_step"`
		Last  int64  `json:"last_step"`
		Bytes int64  `json:"bytes"`
		Path  string `json:"path"`
		Late  bool   `json:"late"`
		Why   string `json:"why_not"`
	}
	lines, paths, short := []line{}, []string{}, false
	for _, r := range done.Ranks {
		l := line{r.Rank, r.Host(), r.First, r.Last, r.Bytes, r.Path, done.Late(r), r.Why}
		if lines = append(lines, l); r.Path != "" {
			paths = append(paths, r.Path)
		}
		short = short || l.Late || r.Path == ""
	}
	err := c.write(false, func(out io.Writer) error {
		if c.flags.json {
			return report.WriteJSON(out, struct {
				First int64  `json:"first_step"`
				Last  int64  `json:"last_step"`
				Ranks []line `json:"ranks"`
			}{done.First, done.Last, lines})
		}
		t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		fmt.Fprintf(t, "rank\tnode\tsteps\tsize\ttrace\n")
		for _, l := range lines {
			steps, what := fmt.Sprintf("%d to %d", l.First, l.Last), l.Path
			size := c.flags.report.Units.Bytes(l.Bytes)
			switch {
			case l.Path == "":
				steps, size, what = "-", "-", "not captured: "+l.Why
			case l.Late:
				what += fmt.Sprintf(" (late: it was asked for step %d)", done.First)
			}
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", l.Rank, report.Printable(l.Node), steps, size,
				report.Printable(what))
		}
		return t.Flush()
	})
	if err != nil {
		return err
	}
	switch {
	case c.open && len(paths) == 2:
		err = (&replayCommand{app: c.app, paths: paths}).run(ctx)
	case c.open:
		err = (&replayCommand{app: c.app, paths: []string{done.Dir}}).run(ctx)
	case len(paths) == 2:
		c.note("gmemtop replay %s %s compares them", paths[0], paths[1])
	default:
		c.note("gmemtop replay %s shows them", done.Dir)
	}
	if err == nil && short {
		return errFinding
	}
	return err
}
