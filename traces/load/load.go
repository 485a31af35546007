package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/nsys"
	"github.com/gmemtop/gmemtop/traces/samples"
)

// The stages that Options.Progress reports.
const (
	StageRead  = "read"  // done and total are bytes of the file as stored
	StageCache = "cache" // a decoded copy is being read; done and total are the copy's
)

// Options change how Open and OpenRun work. Most callers use the zero value.
type Options struct {
	// Progress, if not nil, is called often, from the goroutine that reads; total is 0 if unknown.
	Progress func(stage string, done, total int64)
	// NoCache neither uses nor writes decoded copies.
	NoCache bool
	// cacheDir holds the decoded copies; "" is gmemtop in os.UserCacheDir.
	cacheDir string
	// MaxBytes is how much a compressed file may unpack to. 0 is the value of GMEMTOP_MAX_BYTES or, without
	// it, 64 GiB and 256 times the file's size.
	MaxBytes int64
	// Skipped, if not nil, is called by OpenRun for each file of a folder that it skips because it is not a
	// trace.
	Skipped func(path string, why error)
	// Waiting, if not nil, is called once if the file is a named pipe that no program writes to yet.
	Waiting func(path string)
	// Stdin is what the path "-" reads; nil is os.Stdin.
	Stdin io.Reader
}

// SamplePrefix is what the paths of embedded samples begin with.
const SamplePrefix = "sample:"

// Samples returns the paths of the embedded samples.
func Samples() []string {
	var paths []string
	for _, n := range samples.List() {
		paths = append(paths, SamplePrefix+n)
	}
	return paths
}

// Name returns what the file at path is called in a sentence.
func Name(path string) string {
	if path == "-" {
		return "standard input"
	}
	return filepath.Base(path)
}

// Open opens the trace at path, on standard input for "-", or embedded for one of [Samples]. Source.Path and
// Source.Bytes of the trace are set.
//
// For damaged input, Open returns the sound part with an error that wraps traces.ErrFormat; the trace is nil
// if nothing was sound. Sound input that gmemtop cannot use is traces.ErrUnsupported; os.ErrNotExist and
// os.ErrPermission are wrapped.
func Open(ctx context.Context, path string, o Options) (*traces.Trace, error) {
	lim, err := limitsOf(o)
	if err != nil {
		return nil, err
	}
	if name, ok := strings.CutPrefix(path, SamplePrefix); ok {
		return sample(ctx, path, name)
	}
	if path == "-" {
		in := o.Stdin
		if in == nil {
			in = os.Stdin
		}
		src := &source{ctx: ctx, r: in, progress: o.Progress}
		t, err := read(src, nil, lim)
		return located(t, path, src.read), err
	}
	f, info, err := openFile(ctx, path, o.Waiting)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	regular := info.Mode().IsRegular()
	c := noCache
	if regular && !o.NoCache {
		c = openCache(o.cacheDir, f, info)
	}
	if t := c.get(ctx, o.Progress); t != nil {
		return located(t, path, info.Size()), nil
	}
	src := &source{ctx: ctx, r: f, progress: o.Progress}
	var plain *os.File
	if regular {
		src.total, plain = info.Size(), f
	}
	t, err := read(src, plain, lim)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return located(t, path, src.read), fmt.Errorf("%s: %w", path, err)
	}
	located(t, path, max(src.read, src.total))
	c.put(t)
	return t, nil
}

// sample opens an embedded sample.
func sample(ctx context.Context, path, name string) (*traces.Trace, error) {
	b, err := samples.Open(name)
	if err != nil {
		return nil, err
	}
	t, err := gmt.Read(ctx, bytes.NewReader(b), nil)
	return located(t, path, int64(len(b))), err
}

func located(t *traces.Trace, path string, bytes int64) *traces.Trace {
	if t != nil {
		t.Source.Path, t.Source.Bytes = path, bytes
	}
	return t
}

// plain leaves out the call that failed: a reader of the message named the file and not the call.
func plain(err error) error {
	var call *fs.PathError
	if errors.As(err, &call) {
		return fmt.Errorf("%s: %w", call.Path, call.Err)
	}
	return err
}

// openFile opens a file for reading; its errors say what to do.
func openFile(ctx context.Context, path string, waiting func(string)) (*os.File, fs.FileInfo, error) {
	f, err := openPath(ctx, path, waiting)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, fmt.Errorf("%w: run as its owner, or chmod a+r it", plain(err))
	case err != nil:
		return nil, nil, suggest(plain(err), path)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("load: %w", err)
	}
	if info.IsDir() {
		f.Close()
		return nil, nil,
			&traces.UnsupportedError{Reason: path + " is a folder, and one file is expected",
				Advice: "gmemtop replay opens a folder as a run of one trace a rank"}
	}
	return f, info, nil
}

// read unpacks, recognises and reads; file is src's plain file, nil if there is none.
func read(src *source, file *os.File, lim limits) (*traces.Trace, error) {
	r, closeAll, err := unpack(src, file, lim)
	defer closeAll()
	if err != nil {
		return nil, err
	}
	head, err := r.Peek(headBytes)
	if err != nil && !errors.Is(err, io.EOF) && len(head) == 0 {
		return nil, unpackError(err)
	}
	f, err := recognise(head)
	if err != nil {
		return nil, err
	}
	var t *traces.Trace
	if f.file != nil && file != nil && !src.packed {
		t, err = f.file(src.ctx, file.Name())
	} else {
		t, err = f.read(src.ctx, r, nil)
	}
	if err == nil && src.packed {
		err = checksums(r)
	}
	if errors.Is(err, nsys.ErrOther) {
		other := *nsys.ErrOther
		other.Err, err = errNoTrace, &other
	}
	if err != nil {
		err = unpackError(err)
	}
	return t, err
}

// unpackError turns a decoder's error into one about the input, like the readers' own.
func unpackError(err error) error {
	if errors.Is(err, traces.ErrFormat) || errors.Is(err, traces.ErrUnsupported) ||
		errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("load: %w", err)
	}
	return &traces.FormatError{Format: "load", Offset: -1, Reason: "the compressed file is cut or damaged",
		Err:    err,
		Advice: "download it again; gmemtop read what could be unpacked"}
}
