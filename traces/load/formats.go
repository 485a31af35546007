package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/csv"
	"github.com/gmemtop/gmemtop/traces/described"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/kineto"
	"github.com/gmemtop/gmemtop/traces/nsys"
	"github.com/gmemtop/gmemtop/traces/paper"
	"github.com/gmemtop/gmemtop/traces/pipedream"
	"github.com/gmemtop/gmemtop/traces/pprof"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
	"github.com/gmemtop/gmemtop/traces/xla"
)

// reader is a foreign format's Read.
type reader func(ctx context.Context, r io.Reader, progress func(done int64)) (*traces.Trace, error)

// format is one reader and how its files are recognised.
type format struct {
	name  string // in the list of what is read
	sniff func(head []byte) bool
	read  reader
	file  func(ctx context.Context, path string) (*traces.Trace, error) // for a plain file, if that is better
}

// formats are tried in order: those with an unmistakable mark first.
var formats = []format{
	{"gmemtop recordings (.gmt)", gmt.Sniff, readNative(gmt.Read), nil},
	{"gmemtop recordings rewritten by Arrow", gmt.SniffArrow, readNative(gmt.ReadArrow), nil},
	{"steps recorded op by op (gmemtop describe)", described.Sniff, described.Read, nil},
	{"PyTorch memory snapshots", torchsnapshot.Sniff, torchsnapshot.Read, nil},
	{"HTML pages of PyTorch's memory_viz", torchsnapshot.SniffPage, torchsnapshot.ReadPage, nil},
	{"torch.profiler traces", kineto.Sniff, kineto.Read, nil},
	{"MiniMalloc CSV problems", csv.Sniff, csv.Read, nil},
	{"SmartPool/AutoSwap traces", paper.Sniff, paper.Read, nil},
	{"PipeDream layer profiles", pipedream.Sniff, pipedream.Read, nil},
	{"JAX device memory profiles", pprof.Sniff, pprof.Read, nil},
	{"XLA buffer assignments", xla.Sniff, xla.Read, nil},
	{"SQLite exports of Nsight Systems", nsys.Sniff, nsys.Read, nsys.ReadFile},
}

// readNative adapts a reader of the native file, which reports the bytes in all as well.
func readNative(
	read func(ctx context.Context, r io.Reader, progress func(done, total int64)) (*traces.Trace, error),
) reader {
	return func(ctx context.Context, r io.Reader, progress func(int64)) (*traces.Trace, error) {
		return read(ctx, r, func(done, _ int64) {
			if progress != nil {
				progress(done)
			}
		})
	}
}

// headBytes is how much of a file the readers' Sniffs see.
const headBytes = 64 << 10

// errNoTrace is wrapped by the error about a file that no reader knows; in a folder such files are skipped.
var errNoTrace = errors.New("not a trace that gmemtop knows")

// errUnknown is an errNoTrace about a file of which nothing is known: it may be a text.
var errUnknown = fmt.Errorf("%w", errNoTrace)

func recognise(head []byte) (format, error) {
	if len(bytes.TrimSpace(head)) == 0 && len(head) < headBytes {
		return format{}, &traces.FormatError{Offset: -1, Reason: "the file is empty", Err: errNoTrace,
			Advice: "did the program that wrote it finish?"}
	}
	if bytes.HasPrefix(head, []byte("version https://git-lfs.github.com/spec/")) {
		return format{}, &traces.FormatError{Offset: -1,
			Reason: "the file is a Git LFS pointer, not the trace itself", Err: errNoTrace,
			Advice: "run git lfs pull in its repository"}
	}
	for _, f := range formats {
		if f.sniff(head) {
			return f, nil
		}
	}
	if pickle := len(head) > 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5; pickle {
		return format{}, &traces.FormatError{Offset: -1, Err: errNoTrace,
			Reason: "the file is a Python pickle, but not a memory snapshot",
			Advice: "torch.cuda.memory._dump_snapshot writes those; checkpoints and tensors hold no " +
				"history of memory"}
	}
	if bytes.HasPrefix(head, []byte("Memory Space: ")) {
		return format{}, &traces.FormatError{Offset: -1, Err: errNoTrace,
			Reason: "the file is XLA's memory usage report, which holds rounded sums",
			Advice: "open the file beside it that ends in buffer-assignment.txt"}
	}
	if bytes.HasPrefix(head, []byte("ARROW1\x00\x00")) || bytes.HasPrefix(head, []byte("\xff\xff\xff\xff")) {
		return format{}, &traces.FormatError{Offset: -1, Err: errNoTrace,
			Reason: "the file looks like Apache Arrow, but not like a gmemtop recording",
			Advice: "if it was made from a .gmt, open that one"}
	}
	if isPage(head) {
		return format{}, &traces.FormatError{Offset: -1, Err: errNoTrace,
			Reason: "the file is a web page without a memory snapshot in it",
			Advice: "open the snapshot that the page was made from; where export_memory_timeline made it, " +
				"write .raw.json.gz instead"}
	}
	return format{}, &traces.FormatError{Offset: -1, Err: errUnknown,
		Reason: fmt.Sprintf("the file begins with %q", head[:min(len(head), 16)]),
		Advice: "gmemtop reads " + understood()}
}

// isPage reports whether head begins an HTML page.
func isPage(head []byte) bool {
	p := bytes.ToLower(bytes.TrimSpace(head[:min(len(head), 256)]))
	return bytes.HasPrefix(p, []byte("<!doctype html")) || bytes.HasPrefix(p, []byte("<html"))
}

// understood names the formats that most people have.
func understood() string {
	return "PyTorch memory snapshots, torch.profiler traces, gmemtop recordings and more (gmemtop help " +
		"formats), " +
		"plain or in gzip, zstd or zip"
}

// Formats returns what is read, most of it recognised by content alone.
func Formats() []string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.name
	}
	return names
}
