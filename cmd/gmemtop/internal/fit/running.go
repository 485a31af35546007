package fit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
)

// printedShown is how much of what a failed command printed is shown: a long traceback.
const printedShown = 16 << 10

// Printed keeps what a command prints in a file, which lasts until Close.
type Printed struct{ *os.File }

// NewPrinted makes the file.
func NewPrinted() (*Printed, error) {
	f, err := os.CreateTemp("", "gmemtop-estimate-")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name()) // it lasts as long as it is open
	return &Printed{f}, nil
}

// End returns the end of what was printed, in whole lines, "" if it cannot be read.
func (p *Printed) End() string {
	info, err := p.Stat()
	if err != nil {
		return ""
	}
	text := make([]byte, min(info.Size(), printedShown))
	if _, err := p.ReadAt(text, info.Size()-int64(len(text))); err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	if info.Size() > printedShown { // the first line is not whole
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return string(text)
}

// Tail keeps the end of what is written to it. It is safe for concurrent use: a process that the command left
// behind may still write.
type Tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-printedShown):]
	return len(p), nil
}

// String returns the end.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// Progress says how far a command is that has run for some time. steps is how many it is to train.
func Progress(ran time.Duration, at []estimate.Place, steps int) string {
	ran = ran.Round(time.Second)
	if len(at) == 0 {
		return fmt.Sprintf("%v: no process has imported torch yet", ran)
	}
	slowest := slices.MinFunc(at, func(a, b estimate.Place) int { return cmp.Compare(a.Steps, b.Steps) })
	if slowest.Steps == 0 && strings.Contains(slowest.Line, "sitecustomize.py") {
		return fmt.Sprintf("%v: it still imports torch", ran)
	}
	of := ""
	if len(at) > 1 {
		of = fmt.Sprintf(" (rank %d, the slowest of %d)", slowest.Rank, len(at))
	}
	return fmt.Sprintf("%v: %d of %d steps, at %s%s", ran, slowest.Steps, steps, slowest.Line, of)
}
