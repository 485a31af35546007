package load

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/traces"
)

// Bounds of what is read of a recorded program. The names come from a recording, which anybody may have made.
const (
	mostCode      = 1 << 20 // bytes of a file: what is larger is taken for no source code
	mostCodeFiles = 200
)

// code reads the files of a recorded program from this machine's disk, each at most once. It opens only
// regular files of Python, and nothing of them is shown. Names that are not absolute are looked for beside
// the recording: programs mostly save it in the folder that they run in.
type code struct {
	folder   string    // of the recording
	recorded time.Time // the recording is no older than this

	mu    sync.Mutex
	files map[string]string // by path; "" for what may not be read
}

// AttachCode lets queries of a trace read the recorded program's files, if they are on this machine and have
// not changed since. A trace that was read from a pipe gets none: it does not say when it was recorded.
func AttachCode(t *traces.Trace) {
	info, err := os.Stat(t.Source.Path)
	if t.Source.Path == "-" || err != nil {
		return
	}
	recorded := info.ModTime() // later than the recording if the file was copied
	if times := t.Events.Time; t.Clock.Epoch > 0 && len(times) > 0 {
		if last := time.Unix(0, t.Clock.Epoch+times[len(times)-1]); last.Before(recorded) {
			recorded = last
		}
	}
	t.Code = &code{folder: filepath.Dir(t.Source.Path), recorded: recorded, files: map[string]string{}}
}

// File implements traces.Code.
func (c *code) File(path string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, known := c.files[path]
	if !known && len(c.files) < mostCodeFiles {
		text = c.read(path)
		c.files[path] = text
	}
	return text, text != ""
}

// read returns the text of a file, "" if it may not be read.
func (c *code) read(path string) string {
	if !strings.HasSuffix(path, ".py") {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.folder, path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|noWait, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > mostCode || info.ModTime().After(c.recorded) {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(f, mostCode))
	if err != nil {
		return ""
	}
	return string(text)
}
