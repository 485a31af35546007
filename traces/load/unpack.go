package load

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gmemtop/gmemtop/traces"
)

// A few kilobytes of gzip can unpack to gigabytes. Real traces unpack to 5 to 40 times their size, so more
// than 256 times is refused after 16 MiB, and more than 64 GiB always. The readers stream, so these limits
// bound time and what a reader keeps of its input, not a buffer.
const (
	maxRatio   = 256
	ratioFrom  = 16 << 20
	defaultMax = 64 << 30
	maxLayers  = 3       // gzip in zip in gzip
	maxMemory  = 1 << 30 // of a zip archive that does not come from a plain file
)

// MaxBytesVariable is the environment variable that overrides both limits on unpacked input: a number of
// bytes.
const MaxBytesVariable = "GMEMTOP_MAX_BYTES"

// limits of one Open.
type limits struct {
	most  int64
	ratio int64 // 0 for none
}

func limitsOf(o Options) (limits, error) {
	if o.MaxBytes > 0 {
		return limits{most: o.MaxBytes}, nil
	}
	s := os.Getenv(MaxBytesVariable)
	if s == "" {
		return limits{most: defaultMax, ratio: maxRatio}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return limits{}, fmt.Errorf("load: %s=%q is not a number of bytes", MaxBytesVariable, s)
	}
	return limits{most: n}, nil
}

// source is the stored input and counts how much of it was read.
type source struct {
	ctx      context.Context
	r        io.Reader
	read     int64
	total    int64 // 0 if unknown
	packed   bool  // some compression was found
	progress func(stage string, done, total int64)
}

func (s *source) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.r.Read(p)
	s.read += int64(n)
	if s.progress != nil {
		s.progress(StageRead, s.read, s.total)
	}
	return n, err
}

// guard limits the unpacked bytes.
type guard struct {
	r    io.Reader
	src  *source
	lim  limits
	done int64
}

func (g *guard) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	g.done += int64(n)
	if g.done > g.lim.most || g.lim.ratio > 0 && g.done > ratioFrom && g.done/g.lim.ratio > g.src.read {
		return 0, &traces.FormatError{Format: "load", Offset: g.done,
			Reason: fmt.Sprintf("the compressed file unpacks to more than %d bytes from %d", g.done,
				g.src.read),
			Advice: fmt.Sprintf("if you trust it, set %s to the number of bytes it may unpack to",
				MaxBytesVariable)}
	}
	return n, err
}

// unpack removes all layers of compression and returns the plain input with at least headBytes peekable. file
// is the plain file that src reads, nil if there is none. closeAll frees the decoders.
func unpack(src *source, file *os.File, lim limits) (r *bufio.Reader, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range closers {
			c()
		}
	}
	r = bufio.NewReaderSize(src, headBytes)
	for layer := 0; ; layer++ {
		head, err := r.Peek(4)
		if err != nil && !errors.Is(err, io.EOF) {
			return r, closeAll, unpackError(err)
		}
		if !packed(head) {
			return r, closeAll, nil
		}
		if layer == maxLayers {
			return r, closeAll, &traces.FormatError{Format: "load", Offset: 0,
				Reason: "the file is compressed more than three times over", Advice: "unpack it first"}
		}
		inner, closer, err := open(r, head, src, file, lim)
		if err != nil {
			return r, closeAll, cannotUnpack(err)
		}
		closers, src.packed = append(closers, closer), true
		r, file = bufio.NewReaderSize(&guard{r: inner, src: src, lim: lim}, headBytes), nil
	}
}

// archiveError is about a sound archive without a usable trace; the text says what to do.
type archiveError string

func (e archiveError) Error() string { return string(e) }

// cannotUnpack says why a decoder did not start.
func cannotUnpack(err error) error {
	var archive archiveError
	switch {
	case errors.As(err, &archive):
		reason, advice, _ := strings.Cut(archive.Error(), ": ")
		return &traces.FormatError{Offset: -1, Reason: reason, Err: errNoTrace, Advice: advice}
	case errors.Is(err, zip.ErrAlgorithm):
		return &traces.UnsupportedError{Reason: "the archive uses a compression that gmemtop cannot unpack",
			Advice: "unpack it, and open what was in it"}
	}
	return &traces.FormatError{Format: "load", Offset: 0, Reason: "the file cannot be unpacked", Err: err,
		Advice: "the copy may be incomplete: download it again"}
}

// checksums reads the rest of a compressed input, so that the checksum at its end is verified: a trace may
// end before it.
func checksums(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

func packed(head []byte) bool {
	return bytes.HasPrefix(head, []byte("\x1f\x8b")) || bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")) ||
		bytes.HasPrefix(head, []byte("PK\x03\x04"))
}

// open starts the decoder that head asks for.
func open(r *bufio.Reader, head []byte, src *source, file *os.File, lim limits) (io.Reader, func(), error) {
	switch head[0] {
	case 0x1f:
		z, err := gzip.NewReader(r)
		return z, func() {}, err
	case 0x28:
		z, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(128<<20), zstd.WithDecoderConcurrency(2))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return openZip(r, src, file, lim)
}

// openZip finds the one trace in an archive. The directory is at the archive's end, so input that is not a
// plain file is read into memory first.
func openZip(r *bufio.Reader, src *source, file *os.File, lim limits) (io.Reader, func(), error) {
	var at io.ReaderAt = file
	size := src.total
	if file == nil {
		data, err := io.ReadAll(io.LimitReader(r, maxMemory+1))
		if err != nil {
			return nil, nil, err
		}
		if len(data) > maxMemory {
			return nil, nil, archiveError(fmt.Sprintf("the archive is larger than %d MiB: unpack it first",
				maxMemory>>20))
		}
		at, size = bytes.NewReader(data), int64(len(data))
	}
	z, err := zip.NewReader(at, size)
	if err != nil {
		return nil, nil, err
	}
	src.read = max(src.read, size) // the whole archive is available
	var found []*zip.File
	for _, m := range z.File {
		if ok, err := isTrace(m); err != nil {
			return nil, nil, err
		} else if ok {
			found = append(found, m)
		}
	}
	switch {
	case len(found) == 0 && slices.ContainsFunc(z.File, func(m *zip.File) bool {
		return path.Base(m.Name) == "data.pkl"
	}):
		return nil, nil, archiveError("the file holds tensors, as torch.save writes them, and no history " +
			"of memory: torch.cuda.memory._dump_snapshot writes a snapshot, which has it")
	case len(found) == 0:
		return nil, nil, archiveError("the archive holds no trace: gmemtop reads " + understood())
	case len(found) > 1:
		return nil, nil, archiveError(fmt.Sprintf("the archive holds %d traces where one is expected: "+
			"unpack it and open the folder with gmemtop replay", len(found)))
	case lim.ratio == 0 && found[0].UncompressedSize64 > uint64(lim.most):
		return nil, nil, archiveError("the trace in the archive is larger than " + MaxBytesVariable +
			" allows")
	}
	m, err := found[0].Open()
	if err != nil {
		return nil, nil, err
	}
	return m, func() { m.Close() }, nil
}

// isTrace reports whether an archive's member is a trace, or packed itself.
func isTrace(m *zip.File) (bool, error) {
	if m.FileInfo().IsDir() || strings.HasPrefix(m.Name, "__MACOSX/") ||
		strings.HasPrefix(path.Base(m.Name), ".") {
		return false, nil
	}
	r, err := m.Open()
	if err != nil {
		return false, err
	}
	defer r.Close()
	head := make([]byte, headBytes)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	if packed(head[:n]) {
		return true, nil
	}
	_, err = recognise(head[:n])
	return err == nil, nil
}
