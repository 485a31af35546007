package torchsnapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// realSnapshots returns the snapshots that others recorded, by their number: their names are not ours to
// print.
func realSnapshots(t *testing.T) map[string]string {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: recorded snapshots")
	}
	paths, err := filepath.Glob(filepath.Join(root, "torch_snapshot", "*.pickle"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no snapshots: %v", err)
	}
	named := map[string]string{}
	for i, p := range paths {
		named[fmt.Sprintf("snapshot %d", i)] = p
	}
	return named
}

// figures are what testdata/reference.py prints.
type figures struct {
	Events      []int          `json:"events"`
	Actions     map[string]int `json:"actions"`
	Bytes       int64          `json:"bytes"`
	Addresses   uint64         `json:"addresses"`
	FirstUS     int64          `json:"first_us"`
	Micros      uint64         `json:"micros"`
	Streams     int            `json:"streams"`
	WithStack   int            `json:"with_stack"`
	Frames      int            `json:"frames"`
	Stacks      int            `json:"stacks"`
	Lines       int64          `json:"lines"`
	Text        int64          `json:"text"`
	Segments    int            `json:"segments"`
	Reserved    int64          `json:"reserved"`
	Active      int64          `json:"active"`
	Blocks      int            `json:"blocks"`
	BlockBytes  int64          `json:"block_bytes"`
	Requested   int64          `json:"requested"`
	States      map[string]int `json:"states"`
	Annotations int            `json:"annotations"`
	Settings    int            `json:"settings"`
}

func figuresOf(t *traces.Trace, lists int) figures {
	f := figures{
		Events: make([]int, lists), Actions: map[string]int{}, States: map[string]int{},
		Streams: len(t.Streams), Segments: len(t.Final.Segments), Blocks: len(t.Final.Blocks),
		Settings: len(t.Settings), FirstUS: t.Clock.Epoch / 1000,
	}
	stacks := map[traces.StackID]bool{}
	for i := range t.Events.Len() {
		e := t.Events.At(i)
		f.Events[t.Devices[e.Device].Ordinal]++
		f.Actions[e.Action.String()]++
		f.Bytes += e.Size
		f.Addresses = (f.Addresses + e.Addr) % (1 << 63)
		if t.Clock.HasTime {
			f.Micros = (f.Micros + uint64((t.Clock.Epoch+e.Time)/1000)) % (1 << 63)
		}
		if e.Stack == traces.NoStack {
			continue
		}
		f.WithStack++
		stacks[e.Stack] = true
		for _, id := range t.Stacks.At(e.Stack) {
			fn, file, line := t.FrameText(id)
			f.Frames++
			f.Lines += int64(line)
			f.Text += int64(len(fn) + len(file))
		}
	}
	f.Stacks = len(stacks)
	for _, s := range t.Final.Segments {
		f.Reserved += s.TotalSize
		f.Active += s.ActiveSize
	}
	for _, b := range t.Final.Blocks {
		f.BlockBytes += b.Size
		f.Requested += b.Requested.Or(0)
		f.States[b.State.String()]++
	}
	for _, m := range t.Marks {
		for _, bound := range []int64{m.Start, m.End} {
			if bound != traces.NoTime {
				f.Annotations++
			}
		}
	}
	return f
}

// TestFiguresEqualThoseOfPython compares with Python's own decoder on every recorded snapshot.
func TestFiguresEqualThoseOfPython(t *testing.T) {
	files := realSnapshots(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3: the reference is a Python script")
	}
	for name, path := range files {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(python, "testdata/reference.py", path).Output()
			if err != nil {
				t.Fatal(err)
			}
			var want figures
			if err := json.Unmarshal(out, &want); err != nil {
				t.Fatal(err)
			}
			tr := readFile(t, path)
			got, _ := json.Marshal(figuresOf(tr, len(want.Events)))
			again, _ := json.Marshal(want)
			if !bytes.Equal(got, again) {
				t.Errorf("got  %s\nwant %s", got, again)
			}
			if len(tr.Losses) > 0 {
				t.Errorf("losses %v", tr.Losses)
			}
		})
	}
}

func readFile(t *testing.T, path string) *traces.Trace {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := Read(context.Background(), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// TestRealSnapshotsRoundTrip is the round-trip law on recorded files, table by table, and Python reads what
// Write made and finds the same.
func TestRealSnapshotsRoundTrip(t *testing.T) {
	files := realSnapshots(t)
	python, pythonErr := exec.LookPath("python3")
	for name, path := range files {
		t.Run(name, func(t *testing.T) {
			tr := readFile(t, path)
			roundTrip(t, tr)
			if pythonErr != nil {
				return
			}
			written := filepath.Join(t.TempDir(), "written.pickle")
			f, err := os.Create(written)
			if err != nil {
				t.Fatal(err)
			}
			if err := Write(context.Background(), f, tr); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			before, err1 := exec.Command(python, "testdata/reference.py", path).Output()
			after, err2 := exec.Command(python, "testdata/reference.py", written).Output()
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			var a, b figures
			if err := json.Unmarshal(before, &a); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(after, &b); err != nil {
				t.Fatal(err)
			}
			if len(a.Events) > 0 && len(b.Events) == 0 && a.Events[0] == 0 {
				b.Events = a.Events // an empty list of the last device is not written
			}
			if x, y := fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b); x != y {
				t.Errorf("Python found\n%s\nwant\n%s", y, x)
			}
		})
	}
}
