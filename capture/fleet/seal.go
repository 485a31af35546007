package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/job"
)

// Sealed is what Seal wrote.
type Sealed struct {
	// Files are the recordings, one for each process.
	Files []string
	// Steps is how many steps they hold, Summed how many more are only part of a minute's sums. Lost is how
	// many the nodes could not send, Gone how many the hub no longer had.
	Steps, Summed, Lost, Gone int64
}

// Seal writes everything that the hub has of a run to a new folder: a recording for each process, which opens
// as any other. The folder appears only when it is complete.
func Seal(ctx context.Context, c *bus.Conn, dir string) (s Sealed, err error) {
	if _, err := os.Lstat(dir); err == nil {
		return s, fmt.Errorf("seal the run: %s exists already: name a new folder", dir)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), ".gmemtop-seal-*")
	if err != nil {
		return s, fmt.Errorf("seal the run: %w", err)
	}
	defer os.RemoveAll(scratch)
	var names []string
	w := NewWatch(WatchOptions{Record: func(p *job.Process, attempt int) error {
		name := nameOf(p.Info(), attempt)
		for k := 2; ; k++ {
			if _, err := os.Lstat(filepath.Join(scratch, name+".gmt")); err != nil {
				break
			}
			name = fmt.Sprintf("%s-%d", nameOf(p.Info(), attempt), k)
		}
		names = append(names, name+".gmt")
		return p.Record(capture.RecordOptions{Path: filepath.Join(scratch, name+".gmt")})
	}})
	reading, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { w.Run(reading, c) })
	select {
	case <-w.summed:
	case <-ctx.Done():
	}
	stop()
	work.Wait()
	w.settle()
	for _, p := range w.Job().Processes() {
		v := p.History.Snapshot()
		for _, l := range v.Losses {
			if l.Name == "steps" {
				s.Lost += l.Count
			}
		}
	}
	w.mu.Lock()
	err = w.unsealed
	for _, n := range w.nodes {
		for _, m := range n.ranks {
			s.Steps, s.Summed, s.Gone = s.Steps+m.taken, s.Summed+m.summed, s.Gone+m.gone()
		}
	}
	w.mu.Unlock()
	if err := errors.Join(err, ctx.Err(), w.Close()); err != nil {
		return s, fmt.Errorf("seal the run: %w", err)
	}
	if len(names) == 0 {
		return s, errors.New("seal the run: the hub has received no training step")
	}
	if err := errors.Join(os.Chmod(scratch, 0o755), os.Rename(scratch, dir)); err != nil {
		return s, fmt.Errorf("seal the run: %w", err)
	}
	for _, n := range names {
		s.Files = append(s.Files, filepath.Join(dir, n))
	}
	return s, nil
}

// nameOf names the recording of a process, so that names sort by rank.
func nameOf(t capture.Info, attempt int) string {
	name := fmt.Sprintf("%s-pid%d", bus.Token(t.Host), t.PID)
	if r, ok := t.Rank.Value(); ok {
		name = fmt.Sprintf("rank%04d", r)
	}
	if attempt > 0 {
		name += fmt.Sprintf("-attempt%d", attempt)
	}
	return name
}
