package crew

import (
	"github.com/gmemtop/gmemtop/managers"
	mpool "github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/traces/maybe"

	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/pool"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
)

// liveRanks is a training of several processes, watched the way gmemtop run watches it.
type liveRanks struct {
	*job.Job
	t       *testing.T
	command *pytorch.Job
	hold    *hold
}

// startRanks starts a command and waits until the given number of its processes train as ranks.
func startRanks(t *testing.T, ranks int, argv ...string) *liveRanks {
	t.Helper()
	return startRanksIn(t, os.Environ(), ranks, argv...)
}

// startRanksIn is startRanks for a command with an environment of its own.
func startRanksIn(t *testing.T, env []string, ranks int, argv ...string) *liveRanks {
	t.Helper()
	j, hold := job.New(job.NewWatch(job.Options{})), newHold(t)
	command, err := pytorch.Start(pytorch.Launch{Argv: argv,
		Env:  slices.Concat(env, []string{"PYTHONDONTWRITEBYTECODE=1", "PACE=0.02", hold.environ()}),
		Each: func(s *pytorch.Session) capture.Sink { return j.Add(s.Info(), s) }})
	if err != nil {
		t.Fatal(err)
	}
	l := &liveRanks{j, t, command, hold}
	ctx, stop := context.WithCancel(context.Background())
	j.Run(ctx, command)
	t.Cleanup(func() {
		_ = command.Signal(os.Kill)
		stop()
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	l.until(ranks)
	return l
}

// crew returns the processes that train together.
func (l *liveRanks) crew() *Crew { return OfJob(l.Job, l.First(), false) }

// until waits until at least that many ranks train, and returns them all.
func (l *liveRanks) until(ranks int) []*Member {
	l.t.Helper()
	for end := time.Now().Add(torchtest.Patience(l.t)); ; time.Sleep(20 * time.Millisecond) {
		list, _ := l.crew().look(l.t.Context())
		if len(list) >= ranks && !slices.ContainsFunc(list,
			func(h *Member) bool { return len(h.History.Snapshot().Steps) < 3 }) {
			return list
		}
		if _, over := l.Over(); over || time.Now().After(end) {
			v := l.First().History.Snapshot()
			l.t.Fatalf("%d ranks train, not %d or more; %v %+v\n%s", len(list), ranks, v.Notices, v.End,
				v.Output)
		}
	}
}

// end waits for the end of the command and returns what was learnt.
func (l *liveRanks) end() string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), torchtest.Patience(l.t))
	defer cancel()
	code, err := l.command.Wait(ctx)
	for _, over := l.Over(); err == nil && !over; _, over = l.Over() {
		time.Sleep(10 * time.Millisecond)
	}
	out := l.First().History.Snapshot().Output
	if err != nil || code != 0 {
		l.t.Fatalf("it ended with code %d, %v\n%s", code, err, out)
	}
	return torchtest.Learned(out)
}

// beside carries a manager's plan out in all ranks, passes the news to f, and takes the plan away once f
// returns true.
func (l *liveRanks) beside(manager string, f func(n live.News) (content bool)) error {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), torchtest.Patience(l.t))
	defer cancel()
	off, content := context.WithCancel(ctx)
	defer content()
	w := managed(manager, anyHardware, ninety)
	err := l.crew().Train(off, w, func(n live.News) {
		l.t.Log(n.Sentence(manager, 0))
		if f(n) {
			content()
		}
	})
	if ctx.Err() != nil {
		l.t.Fatal("it never came")
	}
	return err
}

// managed returns the choice of a manager's plan for a budget.
func managed(manager string, h live.Hardware, budget func(p *plan.Problem) int64) *Choice {
	list, err := managers.Select(manager)
	if err != nil {
		panic(err) // a mistake of the test
	}
	pools := list[0].Info().Family == plan.Pooling
	if pools { // these do not lower what is alive
		budget = func(*plan.Problem) int64 { return 0 }
	}
	return &Choice{Name: manager, Hardware: h, Pools: pools,
		Eager: managers.Eager,
		Budget: func(_ context.Context, p *plan.Problem, _ maybe.Int) (int64, error) {
			return budget(p), nil
		},
		Make: func(ctx context.Context, p *plan.Problem, budget int64) (*plan.Plan, error) {
			return list[0].Plan(ctx, p, plan.Request{Seed: 1, Evaluator: sim.Simulator{}, Budget: budget})
		},
		Caching: func(ctx context.Context, p *plan.Problem) (int64, error) {
			pl, err := mpool.Baselines()[0].Plan(ctx, p, plan.Request{})
			if err != nil {
				return 0, err
			}
			m, err := replay.Simulated{}.Run(ctx, p, pl, plan.RunOptions{})
			return m.Footprint + p.Outside, err
		}}
}

// ninety is a budget of nine tenths of what a step holds at its peak.
func ninety(p *plan.Problem) int64 {
	b, _ := p.PeakLive()
	return b * 9 / 10
}

// ranked returns the state of each rank in some news.
func ranked(n live.News) string {
	var list []string
	for i := range n.Ranks {
		r := &n.Ranks[i]
		list = append(list, r.Name+" "+r.Word())
	}
	return strings.Join(list, ", ")
}

// unplanned waits until all of some ranks have run steps without a plan.
func (l *liveRanks) unplanned(list []*Member) {
	l.t.Helper()
	for _, h := range list {
		if steps, err := h.Steps(l.t.Context(), 0, 3); err != nil || steps[0].Out+steps[0].Again > 0 {
			l.t.Errorf("%s: %v, %v", h.Name, steps, err)
		}
	}
}

func TestRanksLearnTheSameWhilePlansComeAndGo(t *testing.T) {
	torch(t)
	t.Parallel()
	for _, scenario := range []string{"ddp@130", "fsdp@110"} {
		name, count, _ := strings.Cut(scenario, "@")
		t.Run(name, func(t *testing.T) {
			if name == "fsdp" {
				torchtest.Needs(t, 207, "fully_shard on a CPU")
			}
			steps, _ := strconv.ParseInt(count, 10, 64)
			ranks := startRanks(t, 2, torch(t), scenarios, scenario)
			var work sync.WaitGroup
			// each at random steps of its own: a plan is on in both, in one or in none
			for i, h := range ranks.until(2) {
				l := &liveTraining{Member: h, t: t, hold: ranks.hold}
				work.Go(func() {
					toggles, freed, _ := l.toggle(l.plans(l.problem(), "sqrt,capuchin,vdnn-all"),
						steps*4/5-40, 5+4*i)
					t.Logf("%s: %d toggles, %d", h.Name, toggles, freed)
					if freed == 0 || toggles < 3 {
						t.Errorf("%s: %d toggles, %d bytes and nanoseconds", h.Name, toggles, freed)
					}
				})
			}
			work.Wait()
			learntTheSame(t, ranks.end(), alone(t, scenarios, scenario)[scenario])
		})
	}
}

func TestAPlanIsCarriedOutInAllRanksAndTakenAwayFromAll(t *testing.T) {
	torch(t)
	t.Parallel()
	managers := []string{"vdnn-all"}
	if _, err := pool.Build(t.Context()); err == nil { // which takes as long as a compiler does
		managers = append(managers, "smartpool")
	}
	ranks := startRanks(t, 2, torch(t), scenarios, "ddp@400")
	for _, manager := range managers {
		var last live.News
		err := ranks.beside(manager, func(n live.News) bool {
			last = n
			return ranked(n) == "rank 0 on, rank 1 on"
		})
		if err != nil {
			t.Fatal(err)
		}
		if last.Highest == "" || last.Peak <= 0 || last.Step == 0 || last.Differ != 0 ||
			last.Pooled != managed(manager, anyHardware, ninety).Pools || !last.Pooled &&
			(last.Checked == 0 ||
				last.Peak >= last.PeakBefore) {
			t.Errorf("%+v", last)
		}
		if last.Peak < last.Ranks[0].News.Peak || last.Peak < last.Ranks[1].News.Peak {
			t.Errorf("the rank reported as highest is not: %+v", last)
		}
		ranks.unplanned(ranks.until(2))
	}
	learntTheSame(t, ranks.end(), alone(t, scenarios, "ddp@400")["ddp@400"])
}

// twoOfThem starts two processes that call themselves ranks and know nothing of each other; the second waits
// for a signal. Only the first knows the hold, and pauses while torch is imported once more.
type twoOfThem struct {
	*liveRanks
	begin string // the file that starts the second
}

func startTwo(t *testing.T, first, second string) *twoOfThem {
	t.Helper()
	begin := filepath.Join(t.TempDir(), "begin")
	script := fmt.Sprintf(`RANK=0 WORLD_SIZE=2 %[1]s %[2]s %[3]s & while [ ! -e %[5]s ]; do sleep 0.05; done
HOLD= RANK=1 WORLD_SIZE=2 %[1]s %[2]s %[4]s & wait`,
		torch(t), scenarios, first, second, begin)
	return &twoOfThem{startRanks(t, 1, "sh", "-c", script), begin}
}

// second starts the second rank.
func (l *twoOfThem) second() {
	if err := os.WriteFile(l.begin, nil, 0o600); err != nil {
		l.t.Error(err)
	}
}

// both starts the second rank and returns both when they train.
func (l *twoOfThem) both() []*Member {
	l.t.Helper()
	defer l.hold.still()()
	l.second()
	return l.until(2)
}

// killSecond kills the second rank. Killing number 0 would kill this program's own process group.
func (l *liveRanks) killSecond() {
	l.t.Helper()
	list := l.Processes()
	i := slices.IndexFunc(list, func(p *job.Process) bool {
		return p.Info().Rank == maybe.Known(1) &&
			p.Info().PID > 0
	})
	if i < 0 {
		l.t.Errorf("there is no second rank among %d", len(list))
		return
	}
	if err := syscall.Kill(list[i].Info().PID, syscall.SIGKILL); err != nil {
		l.t.Error(err)
	}
}

func TestALateRankJoinsThePlanAndADyingOneDoesNotEndIt(t *testing.T) {
	torch(t)
	t.Parallel()
	ranks := startTwo(t, "gpt@700", "convnet@100000")
	stage := 0
	err := ranks.beside("vdnn-all", func(n live.News) bool {
		said := ranked(n)
		switch {
		case stage == 0 && len(n.Ranks) == 0 && n.Stage == live.On:
			stage = 1
			ranks.hold.on()
			ranks.second()
		case stage == 1 && len(n.Ranks) == 2:
			stage = 2
			ranks.hold.off()
		case stage == 2 && said == "rank 0 on, rank 1 on":
			stage = 3
			ranks.killSecond()
		case stage == 3 && strings.HasPrefix(said, "rank 0 on, rank 1 has ended"):
			return n.Ranks[0].News.Steps > 100
		}
		return false
	})
	if err != nil || stage != 3 {
		t.Errorf("%v at %d", err, stage)
	}
	learntTheSame(t, ranks.end(), alone(t, scenarios, "gpt@700")["gpt@700"])
}

func TestARankThatRefusesIsNamedAndTheOthersGoOn(t *testing.T) {
	torchtest.Needs(t, 206, compiledUnseen)
	t.Parallel()
	ranks := startTwo(t, "gpt@500", "compiled@500")
	ranks.both()
	err := ranks.beside("vdnn-all", func(n live.News) bool {
		return strings.HasPrefix(ranked(n), "rank 0 on, rank 1 off: ") &&
			strings.Contains(ranked(n), "torch.compile is in use") && n.CountOn() == 1
	})
	if err != nil {
		t.Error(err)
	}
	want := alone(t, scenarios, "gpt@500", "compiled@500")
	learntTheSame(t, ranks.end(), torchtest.Learned([]byte(want["gpt@500"]+want["compiled@500"])))
}

// guestOf is another viewer of a process.
func guestOf(t *testing.T, pid int) *job.Watch {
	t.Helper()
	w := job.NewWatch(job.Options{})
	ctx, stop := context.WithCancel(context.Background())
	w.Connect(ctx, pid, 0)
	t.Cleanup(func() {
		if err := w.LetGo(); err != nil {
			t.Error(err)
		}
		stop()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	l := &liveTraining{Member: newMember(w.History, w), t: t}
	l.wait(1)
	return w
}

func TestASecondViewerOfOneRankCanTakeThePlanAwayFromAll(t *testing.T) {
	torch(t)
	t.Parallel()
	ranks := startTwo(t, "gpt@1200", "convnet@100000")
	list := ranks.both()
	guest := guestOf(t, list[1].PID)
	var screen Turns
	defer screen.Watch(func() *Crew { return OfWatch(guest) })()

	over := make(chan error, 1)
	err := ranks.beside("vdnn-all", func(n live.News) bool {
		if ranked(n) == "rank 0 on, rank 1 on" && n.CountOn() == 2 && len(over) == 0 {
			// the guest's view lags a little behind
			late := time.Now().Add(torchtest.Patience(t))
			for screen.Elsewhere() == "" && time.Now().Before(late) {
				time.Sleep(10 * time.Millisecond)
			}
			over <- screen.Use(t.Context(), func(ctx context.Context, c *Crew) error {
				return c.TakeAway(ctx)
			})
		}
		return false
	})
	if !errors.Is(err, live.ErrTakenAway) {
		t.Errorf("the viewer that asked for the plan gets %v", err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	ranks.unplanned(list)
	if said := screen.Elsewhere(); said != "" {
		t.Errorf("the plan is still shown: %s", said)
	}

	// A plan named when attaching comes and goes with the screen.
	off, taken := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- OfWatch(guest).Train(off, managed("vdnn-all", anyHardware, ninety), func(live.News) {})
	}()
	for _, h := range list {
		if err := h.until(t.Context(), func(*capture.View) (bool, error) {
			return h.under() != 0,
				nil
		}); err != nil {
			t.Error(err)
		}
	}
	taken()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	ranks.unplanned(list)

	again := 0
	target := OfWatch(guest).Target(false, live.Options{Steps: 5},
		func(ctx context.Context, p *plan.Problem, manager string, _ int64) (*plan.Plan, error) {
			again++
			m, err := managed(manager, anyHardware, ninety).Plan(ctx, p, maybe.Int{}, 0)
			return m.Plan, err
		})
	p, err := target.Problem(t.Context(), anyHardware)
	if err != nil {
		t.Fatal(err)
	}
	made, err := managed("vdnn-all", anyHardware, ninety).Plan(t.Context(), p, maybe.Int{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	m, err := target.Run(t.Context(), p, made.Plan, plan.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(m.Notes, "\n")
	if len(target.ranks) != 2 || again != 1 || !m.Verified || m.Footprint == 0 || m.StepTime == 0 ||
		!strings.HasPrefix(notes, "rank 0: ") || !strings.Contains(notes, "\nrank 1: ") {
		t.Errorf("%d ranks, %d plans again, %+v", len(target.ranks), again, m)
	}
	ranks.unplanned(ranks.until(2))
	ranks.killSecond()
	learntTheSame(t, ranks.end(), alone(t, scenarios, "gpt@1200")["gpt@1200"])
}
