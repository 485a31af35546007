package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// To watch a running job, srun starts gmemtop once on each of its nodes. That gmemtop injects the agent into
// the node's ranks and sends their steps to a hub in the process with the screen. The join file is in the
// user's home, which the machines share. The nodes leave when it is removed.

// slurmJob is a job of Slurm that is watched.
type slurmJob struct {
	watch *fleet.Watch
	hub   *bus.Hub
	join  string
	srun  *exec.Cmd
	said  bytes.Buffer // by srun
	ended chan struct{}

	failed error // why srun ended, once ended is closed
	stop   context.CancelFunc
	work   sync.WaitGroup

	withdraw func()
	conn     *bus.Conn
}

// attachSlurm shows a running job of Slurm.
func (c *attachCommand) attachSlurm(ctx context.Context, place string) error {
	if !c.HasScreen() {
		return usageError{errNoScreen}
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	id := strings.TrimPrefix(place, "slurm:")
	s, err := watchSlurm(place, own)
	if err != nil {
		return err
	}
	reach := fleet.Reach{Join: func(context.Context) (bus.Join, error) { return bus.ReadJoin(s.join) },
		Access: bus.Access{Name: "attach " + id}}
	shown := (&viewCommand{app: c.app}).show(ctx, s.watch.Job(), "for the ranks of "+report.Printable(place),
		capturing(s.watch, func(ctx context.Context) (fleet.Reach, func(), error) {
			return (&reachFlags{}).orders(ctx, "", reach)
		}))
	return errors.Join(shown, s.leave())
}

// watchSlurm attaches to a job on all of its nodes, by the gmemtop at a path that is the same on all of them.
func watchSlurm(place, own string) (_ *slurmJob, err error) {
	id := strings.TrimPrefix(place, "slurm:")
	if !slurmJobName.MatchString(id) {
		return nil, usagef("%q: write slurm:JOB, such as slurm:4242", place)
	}
	keys, err := bus.NewKeys(30 * 24 * time.Hour)
	if err != nil {
		return nil, err
	}
	s := &slurmJob{ended: make(chan struct{}), stop: func() {}, withdraw: func() {}}
	defer func() {
		if err != nil {
			_ = s.leave()
		}
	}()
	// The hub may listen on all addresses, since a connection needs the keys. Only the nodes know which
	// address they can reach.
	if s.hub, err = bus.OpenHub(bus.HubOptions{Run: id, Listen: ":0", Keys: keys}); err != nil {
		return nil, err
	}
	dir, err := fleet.Places()
	if err != nil {
		return nil, err
	}
	s.join = filepath.Join(dir, fmt.Sprintf(".attach-%s-%d.join", id, os.Getpid()))
	if err := s.hub.Join().Write(s.join); err != nil {
		return nil, err
	}
	// gmemtop capture slurm:JOB finds it so.
	withdraw, err := fleet.Announce(id, s.join)
	if err != nil {
		return nil, err
	}
	s.withdraw = withdraw
	s.srun = exec.Command("srun", "--jobid="+id, "--ntasks-per-node=1", "--input=none", "--quiet", own,
		"attach-node", "--join-file", s.join)
	s.srun.Env = append(os.Environ(), "SLURM_OVERLAP=1") // an srun before 20.11 has no such option
	s.srun.Stdout, s.srun.Stderr = io.Discard, &s.said
	if err := s.srun.Start(); err != nil {
		return nil, err
	}
	if s.conn, err = s.hub.Dial(bus.Viewer); err != nil {
		return nil, err
	}
	s.watch = fleet.NewWatch(fleet.WatchOptions{})
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.work.Go(func() { s.watch.Run(ctx, s.conn) })
	s.work.Go(func() {
		defer close(s.ended)
		if err := s.srun.Wait(); err != nil {
			s.failed = fmt.Errorf("srun ended: %w: %s", err, lastLineOf(s.said.String()))
			s.watch.Job().First().Tell(capture.Notice{Key: "srun", Text: report.Printable(s.failed.Error())})
		}
	})
	return s, nil
}

// lastLineOf returns the last line of text.
func lastLineOf(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// How long nodes may take to remove their agents, and srun to end after that.
const (
	nodesLeave = 20 * time.Second
	srunEnds   = 5 * time.Second
)

// leave removes the agents from all ranks.
func (s *slurmJob) leave() error {
	var err error
	select {
	case <-s.ended:
		err = s.failed // nobody asked it to end
	default:
	}
	s.withdraw()
	_ = os.Remove(s.join)
	if s.watch != nil {
		select {
		case <-s.ended:
		case <-time.After(nodesLeave):
			err = fmt.Errorf("srun did not end within %s: the agents leave once their nodes notice",
				nodesLeave)
			_ = s.srun.Process.Signal(syscall.SIGTERM)
			select {
			case <-s.ended:
			case <-time.After(srunEnds):
				_ = s.srun.Process.Kill()
			}
		}
	} else if s.srun != nil && s.srun.Process != nil {
		_ = s.srun.Process.Kill()
		_ = s.srun.Wait()
	}
	s.stop()
	s.work.Wait()
	if s.conn != nil {
		s.conn.Close()
	}
	if s.hub != nil {
		s.hub.Close()
	}
	if s.watch != nil {
		err = errors.Join(err, s.watch.Close())
	}
	return err
}

// newAttachNodeCommand is the part of attach slurm:JOB that runs on each node. People do not type it.
func newAttachNodeCommand(a *app) *cobra.Command {
	join := ""
	cmd := &cobra.Command{
		Use: "attach-node --join-file FILE", Hidden: true, GroupID: groupLive, Args: cobra.NoArgs,
		Short: "Attach to the ranks of a Slurm job on this node",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return attachNode(cmd.Context(), a, join)
		},
	}
	cmd.Flags().StringVar(&join, "join-file", "", "the `file` of the hub; without it, the ranks are left")
	return cmd
}

// lookForRanks is how often a node looks for new ranks, and checks that the join file is still there.
const lookForRanks = time.Second

// attachNode attaches to this node's ranks until the join file is gone or a signal arrives.
func attachNode(ctx context.Context, a *app, join string) error {
	id := a.Env("SLURM_JOB_ID")
	if id == "" || join == "" {
		return usagef("this is a part of gmemtop attach slurm:JOB, which starts it by srun")
	}
	if _, err := bus.ReadJoin(join); err != nil {
		host, _ := os.Hostname()
		return fmt.Errorf("%s cannot read the file with gmemtop's path: it is in your home, or in "+
			"XDG_CACHE_HOME, which all machines must share: %w", host, err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a.signals(func(os.Signal) { stop() })
	j := job.New(job.NewWatch(job.Options{Totals: true}))
	defer j.Close()
	n := fleet.StartNode(j, fleet.NodeOptions{Identity: fleet.Identify(a.Env), Join: join,
		Tell: func(text string) { a.note("%s", text) }})
	defer n.Close()
	leaves := map[int]func() error{}
	var lister procs.Lister
	tick := time.NewTicker(lookForRanks)
	defer tick.Stop()
	for ctx.Err() == nil {
		if _, err := os.Stat(join); err != nil {
			break
		}
		list, err := lister.Torch(ctx)
		if err != nil {
			break
		}
		for _, p := range ranksOf(list, id, environment) {
			if leaves[p.PID] != nil {
				continue
			}
			found, err := job.Attachable(p.PID)
			if err != nil {
				a.note("process %d: %v", p.PID, err)
				leaves[p.PID] = func() error { return nil }
				continue
			}
			_, leaves[p.PID] = j.Attach(context.WithoutCancel(ctx), p.PID, found.Started)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	var work sync.WaitGroup
	for _, leave := range leaves {
		work.Go(func() {
			if err := leave(); err != nil {
				a.note("%v", err)
			}
		})
	}
	work.Wait()
	return nil
}

// mostEnvironment is how much of a process's environment is read.
const mostEnvironment = 1 << 20

// environment returns the environment that a process was started with.
func environment(pid int) map[string]string {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, mostEnvironment))
	env := map[string]string{}
	for entry := range strings.SplitSeq(string(text), "\x00") {
		if k, v, ok := strings.Cut(entry, "="); ok {
			env[k] = v
		}
	}
	return env
}

// ranksOf returns the processes of list that train in a job of Slurm. It leaves out launchers, and data
// loader workers, which have the environment of their rank.
func ranksOf(list []procs.Process, id string, environ func(pid int) map[string]string) []procs.Process {
	type member struct {
		procs.Process
		rank, task string
	}
	in := map[int]*member{}
	for _, p := range list {
		if env := environ(p.PID); p.Torch && env["SLURM_JOB_ID"] == id {
			in[p.PID] = &member{p, env["RANK"], env["SLURM_PROCID"]}
		}
	}
	launches := map[int]bool{}
	for _, m := range in {
		if parent := in[m.Parent]; parent != nil && parent.rank != m.rank {
			launches[parent.PID] = true
		}
	}
	var ranks []procs.Process
	for _, p := range list {
		m := in[p.PID]
		if m == nil || launches[p.PID] {
			continue
		}
		if parent := in[m.Parent]; parent != nil && !launches[parent.PID] {
			continue // a worker
		}
		ranks = append(ranks, p)
	}
	return ranks
}
