package fit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// printedShown is how much of what a failed command printed is shown: a long traceback.
const printedShown = 16 << 10

// Printed is what a command prints. Most of it means nothing, since its values are made up, so it is shown
// only if the command fails.
type Printed struct {
	file  *os.File // nil if everything is shown at once
	shown tail     // the end of its standard error, then
}

// KeepPrinted keeps what the command prints in a file, which lasts until Close.
func KeepPrinted(o *estimate.Options) (*Printed, error) {
	f, err := os.CreateTemp("", "gmemtop-estimate-")
	if err != nil {
		return nil, fmt.Errorf("no file for what the command prints: %w; --verbose needs none", err)
	}
	_ = os.Remove(f.Name()) // it lasts as long as it is open
	o.Stdout, o.Stderr = f, f
	return &Printed{file: f}, nil
}

// ShowPrinted shows what the command prints at once, on w.
func ShowPrinted(o *estimate.Options, w *os.File) *Printed {
	p := &Printed{}
	o.Stdout, o.Stderr = w, io.MultiWriter(w, &p.shown)
	return p
}

// Close removes the file.
func (p *Printed) Close() error {
	if p.file == nil {
		return nil
	}
	return p.file.Close()
}

// Explain writes the end of what a failed command printed to w, unless it was shown at once, and returns it.
func (p *Printed) Explain(w io.Writer) string {
	if p.file == nil {
		return p.shown.String()
	}
	text := p.end()
	for line := range strings.Lines(text) {
		fmt.Fprintln(w, report.Printable(strings.TrimRight(line, "\r\n")))
	}
	return text
}

// end returns the end of what is in the file, in whole lines, "" if it cannot be read.
func (p *Printed) end() string {
	info, err := p.file.Stat()
	if err != nil {
		return ""
	}
	text := make([]byte, min(info.Size(), printedShown))
	_, err = p.file.ReadAt(text, info.Size()-int64(len(text)))
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	if info.Size() > printedShown { // the first line is not whole
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return string(text)
}

// tail keeps the end of what is written to it. It is safe for concurrent use: a process that the command left
// behind may still write.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-printedShown):]
	return len(p), nil
}

// String returns the end.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
