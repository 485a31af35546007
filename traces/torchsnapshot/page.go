package torchsnapshot

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"

	"github.com/gmemtop/gmemtop/traces"
)

// torch.cuda._memory_viz (trace_plot, segment_plot, profile_plot) writes a web page whose script holds the
// whole snapshot as a pickle in base64:
//
//	const local_files = [{"name": "snapshot.pickle", "base64": "gASV..."}]
//	add_local_files(local_files, 'Active Memory Timeline')
//
// The page is not parsed as HTML. The reader looks for the first "base64" behind local_files, decodes the
// string as a stream and has [Read] decode what comes out, so that a page takes no more memory than its
// snapshot. Source: _memory_viz_template in torch/cuda/_memory_viz.py, unchanged from torch 2.6 to 2.15.

// pageTool is Source.Tool of a trace from a page.
const pageTool = "a page of torch.cuda._memory_viz"

// maxPageHead is how far into a page its data may begin: a page that a browser saved has styles before them.
const maxPageHead = 1 << 20

// SniffPage reports whether head, the first bytes of an uncompressed input, looks like a page of
// torch.cuda._memory_viz.
func SniffPage(head []byte) bool {
	p := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	return len(p) > 0 && p[0] == '<' && dataStart(head) > 0
}

// dataStart returns where in head the page's data begin, 0 if they do not.
func dataStart(head []byte) int {
	at := 0
	for _, word := range []string{"local_files", `"base64"`, ":", `"`} {
		i := bytes.Index(head[at:], []byte(word))
		if i < 0 {
			return 0
		}
		at += i + len(word)
	}
	return at
}

// ReadPage decodes the snapshot in a page of torch.cuda._memory_viz. It behaves as [Read] does; offsets and
// progress are bytes of the page.
func ReadPage(ctx context.Context, r io.Reader, progress func(done int64)) (*traces.Trace, error) {
	in := bufio.NewReaderSize(r, maxPageHead)
	head, err := in.Peek(maxPageHead)
	start := dataStart(head)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case start == 0 && err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case start == 0:
		return nil, &traces.FormatError{Format: format, Offset: int64(len(head)),
			Reason: "the page holds no snapshot up to here",
			Advice: "write it again with python -m torch.cuda._memory_viz trace_plot"}
	}
	if _, err := in.Discard(start); err != nil {
		return nil, err
	}
	// four characters of the page are three bytes of the snapshot
	inPage := func(done int64) int64 { return int64(start) + done/3*4 + done%3 }
	tell := progress
	if progress != nil {
		tell = func(done int64) { progress(inPage(done)) }
	}
	data := &quoted{r: in, at: int64(start)}
	t, err := Read(ctx, base64.NewDecoder(base64.StdEncoding, data), tell)
	if t != nil {
		t.Source.Tool, t.Source.Bytes = pageTool, inPage(t.Source.Bytes)
	}
	var inner *traces.FormatError
	if errors.As(err, &inner) && inner.Offset >= 0 {
		e := *inner
		e.Offset = inPage(inner.Offset)
		if errors.Is(err, errNotBase64) {
			e.Offset, e.Reason, e.Err = data.at, errNotBase64.Error(), nil
			e.Advice = "write the page again; what came before is shown"
		}
		return t, &e
	}
	return t, err
}

var errNotBase64 = errors.New("the page's data are not base64")

// quoted reads base64 up to a quotation mark.
type quoted struct {
	r    io.Reader
	at   int64 // offset in the page of what is read next
	done error
}

func (q *quoted) Read(p []byte) (int, error) {
	if q.done != nil {
		return 0, q.done
	}
	n, err := q.r.Read(p)
	for i, c := range p[:n] {
		switch {
		case c == '"':
			n, q.done = i, io.EOF
		case !isBase64(c):
			n, q.done = i, errNotBase64
		}
		if q.done != nil {
			err = q.done
			break
		}
	}
	q.at += int64(n)
	return n, err
}

// isBase64 reports whether c may stand in base64; line ends may, and are skipped.
func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '+' || c == '/' || c == '=' || c == '\n' || c == '\r'
}
