package pytorch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// smallDisk sends the command's output to a disk of that many bytes.
func smallDisk(t *testing.T, bytes int) (dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts a disk that is soon full")
	}
	folder(t)
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skip("needs root: mounting a disk: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	t.Setenv("XDG_STATE_HOME", dir)
	return dir
}

// TestACommandGoesOnPrintingWhenTheDiskIsFull prints twice as much as the disk holds, in lines of a hundred
// bytes.
func TestACommandGoesOnPrintingWhenTheDiskIsFull(t *testing.T) {
	const size, lines = 400 << 10, 8000
	dir := smallDisk(t, size)
	line := strings.Repeat("x", 93)
	job, err := Start(Launch{Argv: []string{"sh", "-c", fmt.Sprintf("i=10000; while [ $i -lt %d ]; do echo "+
		"$i %s || exit 9; i=$((i+1)); [ $((i%%50)) -ne 0 ] || sleep 0.02; done; exit 7", 10000+lines, line)}})
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	seen := capture.NewHistory(capture.Limits{})
	if err := job.Run(context.Background(), capture.Tee(seen, &printed{&all})); err != nil {
		t.Fatal(err)
	}
	v := seen.Snapshot()
	if v.End.Code != maybe.Known(7) || all.Len() != lines*100 ||
		!strings.HasSuffix(all.String(), fmt.Sprintln(10000+lines-1, line)) {
		t.Errorf("%+v after %d bytes", v.End, all.Len())
	}
	said := false
	for _, n := range v.Notices {
		said = said || n.Key == "room" && strings.Contains(n.Text, "the beginning of "+dir)
	}
	if !said {
		t.Errorf("%+v", v.Notices)
	}
	kept, err := os.ReadFile(job.OutputPath())
	if err != nil || !bytes.HasSuffix(all.Bytes(), bytes.TrimLeft(kept, "\x00")) ||
		len(bytes.TrimLeft(kept, "\x00")) < outputKept {
		t.Errorf("%d bytes were kept: %v", len(kept), err)
	}
}

// TestACommandIsNotStartedWithoutDiskSpaceToPrint has a disk that is full from the start.
func TestACommandIsNotStartedWithoutDiskSpaceToPrint(t *testing.T) {
	dir := smallDisk(t, 16<<10)
	_ = os.WriteFile(filepath.Join(dir, "full"), make([]byte, 16<<10), 0o600)
	begun := filepath.Join(t.TempDir(), "begun")
	_, err := Start(Launch{Argv: []string{"touch", begun}})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "XDG_STATE_HOME") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(begun); err == nil {
		t.Error("it was started")
	}
}

// printed is a sink that only takes a command's output.
type printed struct{ to *bytes.Buffer }

func (p *printed) Begin(capture.Info)         {}
func (p *printed) Step(capture.Step)          {}
func (p *printed) Window(capture.Window)      {}
func (p *printed) Notice(capture.Notice)      {}
func (p *printed) Answer(capture.Answer)      {}
func (p *printed) Lose(string, int64, string) {}
func (p *printed) Output(b []byte)            { p.to.Write(b) }
func (p *printed) End(capture.End)            {}
