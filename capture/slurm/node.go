package slurm

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/procs"
)

// lookForRanks is how often a node looks for new ranks, and checks that the join file is still there. Nothing
// tells a user that a process has loaded torch, nor that another machine has removed a file of a network file
// system.
const lookForRanks = time.Second

// NodeOptions say what to watch on a node.
type NodeOptions struct {
	// Job is the number of the job.
	Job string
	// JoinFile is the join file of the hub. Once it is gone, the node detaches from the ranks.
	JoinFile string
	// Identity is the node.
	Identity fleet.Identity
	// Tell gets messages for people.
	Tell func(text string)
}

// AttachNode attaches to the ranks of this node until the join file is gone or ctx is done.
func AttachNode(ctx context.Context, o NodeOptions) error {
	if _, err := bus.ReadJoin(o.JoinFile); err != nil {
		host, _ := os.Hostname()
		return fmt.Errorf("%s cannot read the file with gmemtop's path: it is in your home, or in "+
			"XDG_CACHE_HOME, which all machines must share: %w", host, err)
	}
	j := job.New(job.NewWatch(job.Options{Totals: true}))
	defer j.Close()
	n := fleet.StartNode(j, fleet.NodeOptions{Identity: o.Identity, Join: o.JoinFile, Tell: o.Tell})
	defer n.Close()
	leaves := map[int]func() error{}
	var lister procs.Lister
	tick := time.NewTicker(lookForRanks)
	defer tick.Stop()
	for ctx.Err() == nil {
		if _, err := os.Stat(o.JoinFile); err != nil {
			break
		}
		list, err := lister.Torch(ctx)
		if err != nil {
			break
		}
		for _, p := range ranksOf(list, o.Job, environmentOf) {
			if leaves[p.PID] != nil {
				continue
			}
			found, err := job.Attachable(p.PID)
			if err != nil {
				o.Tell(fmt.Sprintf("process %d: %v", p.PID, err))
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
				o.Tell(err.Error())
			}
		})
	}
	work.Wait()
	return nil
}

func environmentOf(pid int) map[string]string { return procs.Variables("/proc/" + strconv.Itoa(pid)) }

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
