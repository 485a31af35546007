package torchsnapshot

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/gmemtop/gmemtop/traces"
)

// Read decodes a snapshot, pickle or JSON, from r, which must be uncompressed. It executes nothing, keeps no
// object graph, and reads r once, from its beginning, in a separate goroutine that has ended when Read
// returns (unless ctx was cancelled).
//
// progress, which may be nil, is called now and then with the number of bytes done. When ctx is cancelled
// Read returns nil and ctx's error. For damaged, cut or hostile input Read returns a trace of the part
// before, or nil if there is none, and a *traces.FormatError with the byte offset.
func Read(ctx context.Context, r io.Reader, progress func(done int64)) (*traces.Trace, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := newWindow(ctx, r, progress)
	defer w.close()
	f := newFold(w.offset)
	at, err := decode(w, f)
	if ctxErr := ctx.Err(); ctxErr != nil {
		return nil, ctxErr
	}
	if err == nil {
		t := f.finish()
		t.Source.Bytes = w.offset()
		if progress != nil {
			progress(w.offset())
		}
		return t, nil
	}
	broken := formatError(w, at, err)
	f.cut()
	if f.events.n == 0 && len(f.segments) == 0 {
		return nil, broken
	}
	t := f.finish()
	t.Source.Bytes = at
	return t, broken
}

// decode runs the front end for the first bytes and returns where it stopped.
func decode(w *window, f *fold) (at int64, err error) {
	head := w.buf[w.pos:w.end]
	switch {
	case len(head) == 0:
		return 0, errEmpty
	case bytes.HasPrefix(head, []byte(lfsPrefix)):
		return 0, errLFS
	case head[0] == opProto:
		u := &unpickler{w: w, machine: machine{f: f}}
		err := u.run()
		return u.at, err
	case startsJSON(head):
		j := &jsonReader{w: w, f: f}
		err := j.run()
		return j.at, err
	}
	return 0, errNeither
}

var (
	errEmpty   = errors.New("the file is empty")
	errLFS     = errors.New("this is a git-lfs pointer, not the snapshot itself")
	errNeither = errors.New("the file begins like neither a pickle of protocol 2 to 5 nor JSON")
)

// advice says what to do about an error.
func advice(err error) string {
	var limit limitError
	switch {
	case errors.Is(err, errLFS):
		return "fetch the file with: git lfs pull"
	case errors.Is(err, errEmpty), errors.Is(err, errTruncated):
		return "copy or record the file again; what came before is shown"
	case errors.Is(err, errNoSnapshot), errors.Is(err, errNeither):
		return "record one with torch.cuda.memory._dump_snapshot"
	case errors.As(err, &limit):
		return "the file is damaged or was not written by PyTorch"
	}
	return ""
}

// formatError gives err its place and advice.
func formatError(w *window, at int64, err error) *traces.FormatError {
	var inner *traces.FormatError
	if errors.As(w.err, &inner) { // the unpacker knows best what is wrong
		return inner
	}
	e := &traces.FormatError{Format: format, Offset: at, Reason: err.Error(), Advice: advice(err)}
	if w.err != nil {
		e.Reason, e.Err, e.Advice = "reading stopped", w.err,
			"check the file or its compression; what came before is shown"
		if errors.Is(err, errTruncated) {
			e.Offset = w.base + int64(w.end)
		}
	}
	return e
}
