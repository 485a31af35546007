package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Found is one trace of a run.
type Found struct {
	// Path is the file's.
	Path string
	// Rank is the process's rank in the run: the trace's own or, where it has none, that of the file's name.
	Rank maybe.Int
	// Trace is the sound part of the file; it is never nil.
	Trace *traces.Trace
	// Err says what is wrong with the file, nil for nothing.
	Err error
}

const (
	maxFiles = 1 << 14 // files looked at in one folder
	maxDepth = 3       // folders below the one that was named
	maxRank  = 1 << 16 // larger numbers in names are dates or process ids
)

// OpenRun opens the traces of a run: all files that are traces in the folders among paths, and the files
// among paths. They come ordered by rank, then by path; traces without a rank come last.
//
// Files in folders that are not traces are skipped, see Options.Skipped; a file that was named must be one. A
// folder without a trace is an error. Files are read on all processors, so Options.Progress is called from
// several goroutines, but by one at a time, with done and total summed over the files begun so far.
func OpenRun(ctx context.Context, paths []string, o Options) ([]Found, error) {
	files, err := listRun(paths)
	if err != nil {
		return nil, err
	}
	found, err := openAll(ctx, files, o)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, &noTraces{strings.Join(paths, " "), len(files)}
	}
	slices.SortFunc(found, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Rank.Or(math.MaxInt64), b.Rank.Or(math.MaxInt64)),
			cmp.Compare(a.Path, b.Path))
	})
	return found, nil
}

// noTraces is the error about folders without a trace. It wraps [traces.ErrUnsupported].
type noTraces struct {
	paths string
	files int
}

// Error says what was looked at.
func (e *noTraces) Error() string {
	switch e.files {
	case 0:
		return e.paths + " has no files in it: name the folder that holds the traces"
	case 1:
		return e.paths + " holds no trace: its only file is not one; gmemtop reads " + understood()
	}
	return fmt.Sprintf("%s holds no trace: none of its %d files is one; gmemtop reads %s", e.paths, e.files,
		understood())
}

// Unwrap makes errors.Is(err, traces.ErrUnsupported) hold.
func (*noTraces) Unwrap() error { return traces.ErrUnsupported }

// runFile is a file to open; named says that the user named it.
type runFile struct {
	path  string
	named bool
}

func listRun(paths []string) ([]runFile, error) {
	var files []runFile
	for _, p := range paths {
		if p == "-" { // standard input
			files = append(files, runFile{p, true})
			continue
		}
		info, err := os.Stat(p)
		if err != nil {
			// without the name of the system call
			return nil, suggest(fmt.Errorf("%s: %w", p, errors.Unwrap(err)), p)
		}
		if !info.IsDir() {
			files = append(files, runFile{p, true})
			continue
		}
		inside, err := listFolder(p)
		if err != nil {
			return nil, err
		}
		files = append(files, inside...)
	}
	return files, nil
}

func listFolder(root string) ([]runFile, error) {
	var files []runFile
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == root && errors.Is(err, fs.ErrPermission) {
				return fmt.Errorf("load: no permission to read the folder: run as its owner or chmod a+rx "+
					"it: %w", err)
			}
			if path == root {
				return fmt.Errorf("load: %w", err)
			}
			return nil // a folder inside that cannot be read is no trace
		}
		hidden := path != root && strings.HasPrefix(d.Name(), ".")
		if d.IsDir() {
			rel, _ := filepath.Rel(root, path)
			if hidden || strings.Count(rel, string(filepath.Separator)) >= maxDepth {
				return fs.SkipDir
			}
			return nil
		}
		if info, err := os.Stat(path); hidden || err != nil || !info.Mode().IsRegular() {
			return nil
		}
		if len(files) == maxFiles {
			return fmt.Errorf("load: %s holds more than %d files: name the traces themselves", root, maxFiles)
		}
		files = append(files, runFile{path, false})
		return nil
	})
	return files, err
}

// openAll opens files on all processors. The first error of a file that was named ends it.
func openAll(ctx context.Context, files []runFile, o Options) ([]Found, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		found []Found
		next  = make(chan runFile)
		sum   = &sums{tell: o.Progress}
	)
	for range min(runtime.GOMAXPROCS(0), len(files)) {
		wg.Go(func() {
			for f := range next {
				one := o
				one.Progress = sum.of()
				t, err := Open(ctx, f.path, one)
				mu.Lock()
				switch {
				case t != nil:
					found = append(found, Found{Path: f.path, Rank: rankOf(t, f.path), Trace: t, Err: err})
				case f.named:
					cancel(err)
				case o.Skipped != nil && ctx.Err() == nil:
					o.Skipped(f.path, err)
				}
				mu.Unlock()
			}
		})
	}
	for _, f := range files {
		if ctx.Err() != nil {
			break
		}
		next <- f
	}
	close(next)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return found, nil
}

// sums adds the progress of several files up.
type sums struct {
	mu          sync.Mutex
	done, total int64
	tell        func(stage string, done, total int64)
}

// of returns the progress function of one more file.
func (s *sums) of() func(stage string, done, total int64) {
	if s.tell == nil {
		return nil
	}
	var lastDone, lastTotal int64
	return func(stage string, done, total int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done, s.total = s.done+done-lastDone, s.total+total-lastTotal
		lastDone, lastTotal = done, total
		s.tell(stage, s.done, s.total)
	}
}

// rankPatterns find the rank in a file's name, the most certain first: rank_3, rank3; _r3; trace.3.pickle. In
// a folder's name only the first counts, since a folder r3 may be the third run.
var rankPatterns = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(?:^|[^a-z])rank[-_. =]?(\d+)`),
	regexp.MustCompile(`(?i)(?:^|[-_.])r(\d+)(?:[-_.]|$)`),
	regexp.MustCompile(`\.(\d+)(?:\.(?:pickle|pkl|json|gmt|pb|gz|zst|zip|pt|trace))+$`),
}

func rankOf(t *traces.Trace, path string) maybe.Int {
	return maybe.First(t.Process.Rank, rankOfName(path))
}

// rankOfName reads the rank out of the file's name, else out of its folder's.
func rankOfName(path string) maybe.Int {
	return maybe.First(rankIn(filepath.Base(path), rankPatterns),
		rankIn(filepath.Base(filepath.Dir(path)), rankPatterns[:1]))
}

func rankIn(name string, patterns []*regexp.Regexp) maybe.Int {
	for _, p := range patterns {
		m := p.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		if n, err := strconv.ParseInt(m[1], 10, 64); err == nil && n < maxRank {
			return maybe.Known(n)
		}
	}
	return maybe.Int{}
}

// IsNoTrace reports whether err says that no reader knows the file, rather than that it is damaged.
func IsNoTrace(err error) bool { return errors.Is(err, errNoTrace) }

// IsUnknown reports whether a file is of a kind that gmemtop knows nothing about. It may be a text.
func IsUnknown(err error) bool { return errors.Is(err, errUnknown) }
