package gmt

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// childFile names the file that this test binary records into when it is run as the recorder that gets
// killed.
const childFile = "GMEMTOP_GMT_TEST_RECORD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childFile); name != "" {
		recordForever(name)
	}
	os.Exit(m.Run())
}

// killChunk is how many events the recorder flushes at once.
const killChunk = 500

// recordForever records events and prints their number after each flush, until it is killed.
func recordForever(name string) {
	f, err := os.Create(name)
	if err == nil {
		var w *Writer
		if w, err = NewWriter(f, traces.Source{}, traces.Process{}, traces.Clock{HasTime: true}); err == nil {
			dev := w.Device(traces.Device{Kind: traces.DeviceGPU})
			for n := int64(0); err == nil; {
				for range killChunk {
					frame := w.Frame(traces.Frame{Func: w.String("fn" + strconv.FormatInt(n/100, 10)),
						Line: int32(n)})
					w.Event(traces.Event{Time: n, Addr: uint64(n) << 9, Size: 512,
						Stack: w.Stack([]traces.FrameID{frame}), Device: dev, Action: traces.Alloc})
					n++
				}
				err = w.Flush()
				fmt.Println(n)
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func TestAKilledRecorderLosesAtMostTheLastChunk(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		name := filepath.Join(t.TempDir(), "run.gmt")
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), childFile+"="+name)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		flushed := int64(0)
		lines := bufio.NewScanner(out)
		for flushed < int64(killChunk*(3+17*round)) && lines.Scan() {
			flushed, _ = strconv.ParseInt(lines.Text(), 10, 64)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it flushed before the signal came
			if n, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil &&
				strings.HasSuffix(lines.Text(), "0") {
				flushed = max(flushed, n)
			}
		}
		_ = cmd.Wait()
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(data)
		if err == nil || got == nil || lossCount(got, lossCut) != 1 {
			t.Fatalf("a killed recording was read as %v", err)
		}
		n := int64(got.Events.Len())
		if n < flushed || n%killChunk != 0 {
			t.Fatalf("%d events of %d that were flushed", n, flushed)
		}
		for i := range got.Events.Len() {
			e := got.Events.At(i)
			fn, _, line := got.FrameText(got.Stacks.At(e.Stack)[0])
			if e.Time != int64(i) || e.Addr != uint64(i)<<9 || line != i || fn != "fn"+strconv.Itoa(i/100) {
				t.Fatalf("event %d is %+v at %s:%d", i, e, fn, line)
			}
		}
	}
}
