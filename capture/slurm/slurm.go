// Package slurm watches a running job of Slurm.
//
// srun starts gmemtop once on each of the job's nodes. That gmemtop injects the agent into the node's ranks
// and sends their steps to a hub in the process that watches. The join file is in the user's home, which the
// machines share. The nodes leave when it is removed.
package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
)

// Overlap is the variable that lets srun start a program beside the job's own. An srun before 20.11 has no
// such option, but ignores the variable.
const Overlap = "SLURM_OVERLAP=1"

var jobName = regexp.MustCompile(`^[0-9]+([_+][0-9]+)?$`)

// IsJob reports whether a word is the number of a job, of a task of an array or of a part of a job.
func IsJob(word string) bool { return jobName.MatchString(word) }

// Job is a job of Slurm that is watched.
type Job struct {
	id    string
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

// Attach attaches to a job on all of its nodes, by the gmemtop at a path that is the same on all of them.
func Attach(id, program string) (_ *Job, err error) {
	keys, err := bus.NewKeys(30 * 24 * time.Hour)
	if err != nil {
		return nil, err
	}
	s := &Job{id: id, ended: make(chan struct{}), stop: func() {}, withdraw: func() {}}
	defer func() {
		if err != nil {
			_ = s.Leave()
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
	s.srun = exec.Command("srun", "--jobid="+id, "--ntasks-per-node=1", "--input=none", "--quiet", program,
		"attach-node", "--join-file", s.join)
	s.srun.Env = append(os.Environ(), Overlap)
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
			s.watch.Job().First().Tell(capture.Notice{Key: "srun", Text: s.failed.Error()})
		}
	})
	return s, nil
}

// lastLineOf returns the last line of text.
func lastLineOf(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// Watch is what is known of the job's ranks.
func (s *Job) Watch() *fleet.Watch { return s.watch }

// Reach says how to get to the hub that the nodes send to.
func (s *Job) Reach() fleet.Reach {
	return fleet.Reach{Join: func(context.Context) (bus.Join, error) { return bus.ReadJoin(s.join) },
		Access: bus.Access{Name: "attach " + s.id}}
}

// How long nodes may take to remove their agents, and srun to end after that.
const (
	nodesLeave = 20 * time.Second
	srunEnds   = 5 * time.Second
)

// Leave removes the agents from all ranks.
func (s *Job) Leave() error {
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
