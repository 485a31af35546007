package load

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
)

// Decoding a large foreign trace takes seconds, reading the same trace as a native file a twentieth of that.
// So traces that are large when decoded are also kept as native files in the user's cache folder, and the
// next Open reads that copy.
//
// A copy's name is a hash of the file's size, its modification time in nanoseconds, the file's first and last
// 64 KiB and 64 blocks of 4 KiB spread evenly between, and of the program's own size and modification time,
// so that another build never sees this one's copies. In a hit all of these are equal. A file that was
// changed between those blocks and given its old length and time would be mistaken for the old one; up to 384
// KiB every byte counts, and --no-cache reads the file itself.
//
// A goroutine writes a copy under a temporary name and renames it: readers never see half a copy, and two
// programs may write the same one. A failure of the cache is never an error of Open: it only costs time.
// Damaged input is not cached, so that its errors are shown each time. To keep the folder under 4 GiB, the
// least recently used copies are removed.
//
// Rejected: hashing the whole file, which costs as much as decoding it.

const (
	cacheVersion  = "1"
	sampleEdge    = 64 << 10
	sampleBlock   = 4 << 10
	sampleCount   = 64
	cacheFrom     = 8 << 20   // decoded bytes from which a trace is kept
	lookFrom      = 256 << 10 // stored bytes from which a copy is searched for
	cacheMost     = 4 << 30
	cacheSuffix   = ".gmt"
	partialPrefix = "partial-"
	partialAge    = 10 * time.Minute // of the last write: a writer is done within seconds
)

// cache is the place of one file's copy; path is "" without caching.
type cache struct{ path string }

var noCache = cache{}

// writes counts the copies being written.
var writes sync.WaitGroup

// partials are the files of copies being written.
var partials sync.Map

// Abandon removes the files of copies in progress, for a program that ends now.
func Abandon() {
	partials.Range(func(path, _ any) bool {
		os.Remove(path.(string))
		return true
	})
}

// Wait waits until copies in progress are complete, at most for d, and abandons the rest.
func Wait(d time.Duration) {
	done := make(chan struct{})
	go func() {
		writes.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(d):
		Abandon()
	}
}

// openCache finds the place of f's copy.
func openCache(dir string, f *os.File, info fs.FileInfo) cache {
	if info.Size() < lookFrom {
		return noCache
	}
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return noCache
		}
		dir = filepath.Join(user, "gmemtop")
	}
	sweep(dir)
	key, err := keyOf(f, info)
	if err != nil {
		return noCache
	}
	return cache{filepath.Join(dir, key+cacheSuffix)}
}

func keyOf(f io.ReaderAt, info fs.FileInfo) (string, error) {
	h := sha256.New()
	io.WriteString(h, "gmemtop cache "+cacheVersion)
	if exe, err := os.Executable(); err == nil {
		if me, err := os.Stat(exe); err == nil {
			addInts(h, me.Size(), me.ModTime().UnixNano())
		}
	}
	size := info.Size()
	addInts(h, size, info.ModTime().UnixNano())
	if size <= 2*sampleEdge+sampleCount*sampleBlock {
		if _, err := io.Copy(h, io.NewSectionReader(f, 0, size)); err != nil {
			return "", err
		}
		return hex.EncodeToString(h.Sum(nil)[:16]), nil
	}
	buf := make([]byte, sampleEdge)
	add := func(at int64, n int) error {
		if _, err := f.ReadAt(buf[:n], at); err != nil {
			return err
		}
		h.Write(buf[:n])
		return nil
	}
	if err := cmp.Or(add(0, sampleEdge), add(size-sampleEdge, sampleEdge)); err != nil {
		return "", err
	}
	between := size - 2*sampleEdge - sampleBlock
	for i := range int64(sampleCount) {
		if err := add(sampleEdge+between/sampleCount*i, sampleBlock); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

func addInts(h hash.Hash, vs ...int64) {
	for _, v := range vs {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(v)))
	}
}

// get returns the copy, nil if there is no complete one. It removes a damaged copy.
func (c cache) get(ctx context.Context, progress func(stage string, done, total int64)) *traces.Trace {
	if c.path == "" {
		return nil
	}
	f, err := os.Open(c.path)
	if err != nil {
		return nil
	}
	defer f.Close()
	t, err := gmt.Read(ctx, f, func(done, total int64) {
		if progress != nil {
			progress(StageCache, done, total)
		}
	})
	if err != nil {
		if ctx.Err() == nil {
			os.Remove(c.path)
		}
		return nil
	}
	now := time.Now()
	os.Chtimes(c.path, now, now) // the copy was used: see evict
	return t
}

// put writes a copy in the background if t is worth one.
func (c cache) put(t *traces.Trace) {
	if c.path == "" || t.Source.Format == "gmt" || decodedBytes(t) < cacheFrom {
		return
	}
	writes.Go(func() {
		if c.write(t) == nil {
			evict(filepath.Dir(c.path), cacheMost)
		}
	})
}

// decodedBytes is roughly the memory of the trace's tables.
func decodedBytes(t *traces.Trace) int64 {
	n := int64(t.Events.Len())*40 + int64(len(t.Ops))*64 + int64(len(t.Accesses))*40
	n += int64(len(t.Stacks.IDs))*4 + int64(len(t.Final.Blocks))*48
	for _, c := range t.Counters {
		n += int64(len(c.Time)) * 20
	}
	return n
}

func (c cache) write(t *traces.Trace) error {
	dir := filepath.Dir(c.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, partialPrefix)
	if err != nil {
		return err
	}
	partials.Store(f.Name(), nil)
	defer partials.Delete(f.Name())
	err = gmt.Write(context.Background(), f, t)
	if err = cmp.Or(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), c.path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// sweep removes the leftovers of killed writers.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), partialPrefix) || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > partialAge {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// evict removes the least recently used copies until at most that many bytes are left.
func evict(dir string, most int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	type copyOf struct {
		path string
		size int64
		used time.Time
	}
	var all []copyOf
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || strings.HasPrefix(e.Name(), partialPrefix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if filepath.Ext(e.Name()) == cacheSuffix {
			all = append(all, copyOf{path, info.Size(), info.ModTime()})
			total += info.Size()
		}
	}
	slices.SortFunc(all, func(a, b copyOf) int { return a.used.Compare(b.used) })
	for _, c := range all {
		if total <= most {
			return
		}
		if os.Remove(c.path) == nil {
			total -= c.size
		}
	}
}
