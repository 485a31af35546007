package headless

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
)

// RankFiles names the recordings of a job's further processes after the first one's: run-rank1.gmt beside
// run.gmt. Its methods are safe for concurrent use.
type RankFiles struct {
	first string

	mu    sync.Mutex
	taken map[string]bool
}

// Record records a process to a file of its own, unless that exists. options says how to record who to path.
func (f *RankFiles) Record(p *job.Process,
	options func(path, who string) (capture.RecordOptions, error)) error {
	who := p.Info()
	path := f.Path(who)
	o, err := options(path, who.Name())
	if err != nil {
		return err
	}
	err = p.Record(o)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("not written, since %s already exists: --force overwrites it", path)
	}
	return err
}

// NewRankFiles returns the names beside the first process's file.
func NewRankFiles(first string) *RankFiles { return &RankFiles{first: first, taken: map[string]bool{}} }

// Path returns the path for a process. It has the process's number if the rank is unknown or was there
// before, as when a launcher has started it again.
func (f *RankFiles) Path(who capture.Info) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ext := filepath.Ext(f.first)
	base := strings.TrimSuffix(f.first, ext)
	path := fmt.Sprintf("%s-rank%v%s", base, who.Rank, ext)
	if !who.Rank.IsKnown() || f.taken[path] {
		path = fmt.Sprintf("%s-pid%d%s", base, who.PID, ext)
	}
	f.taken[path] = true
	return path
}
