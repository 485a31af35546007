// Package tracetext has what the readers' tests share: a trace as text, cases in files, fuzzing.
package tracetext

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/traces"
)

var update = flag.Bool("update", false, "rewrite the wanted sections of testdata/*.txtar")

// Reader is a reader's Read.
type Reader func(ctx context.Context, r io.Reader, progress func(done int64)) (*traces.Trace, error)

// RunCases reads the section "input" of each testdata/*.txtar and compares the trace and the error with the
// section "want".
func RunCases(t *testing.T, read Reader) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"),
			func(t *testing.T) { runCase(t, file, read) })
	}
}

// RunSniff checks a reader's Sniff on the beginnings of inputs.
func RunSniff(t *testing.T, sniff func(head []byte) bool, want map[string]bool) {
	t.Helper()
	for head, want := range want {
		if got := sniff([]byte(head)); got != want {
			t.Errorf("Sniff(%q) = %v", head, got)
		}
	}
}

// Fuzz fuzzes a reader, beginning with the inputs of its cases: it returns a trace, an error or both. check,
// if not nil, checks each trace.
func Fuzz(f *testing.F, sniff func(head []byte) bool, read Reader,
	check func(t *testing.T, tr *traces.Trace, err error)) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no cases in testdata: %v", err)
	}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(ar.Files[0].Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sniff(data)
		tr, err := read(t.Context(), bytes.NewReader(data), nil)
		if tr == nil && err == nil {
			t.Fatal("neither a trace nor an error")
		}
		if tr != nil && check != nil {
			check(t, tr, err)
		}
	})
}

// Open opens a file, compressed if its name ends in .gz, until the test ends.
func Open(t *testing.T, file string) io.Reader {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if !strings.HasSuffix(file, ".gz") {
		return f
	}
	in, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func runCase(t *testing.T, file string, read Reader) {
	t.Helper()
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	section := func(name string) *txtar.File {
		for i := range ar.Files {
			if ar.Files[i].Name == name {
				return &ar.Files[i]
			}
		}
		ar.Files = append(ar.Files, txtar.File{Name: name})
		return &ar.Files[len(ar.Files)-1]
	}
	tr, err := read(t.Context(), bytes.NewReader(section("input").Data), nil)
	var out bytes.Buffer
	if err != nil {
		fmt.Fprintf(&out, "error: %v\n", err)
	}
	if tr != nil {
		Write(&out, tr)
	}
	want := section("want")
	if *update {
		want.Data = out.Bytes()
		if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := out.String(); got != string(want.Data) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want.Data)
	}
}

// Write prints all tables of t that are not empty, one row a line.
func Write(w io.Writer, t *traces.Trace) {
	fmt.Fprintf(w, "source %s tool=%q synthetic=%v kind=%v\n", t.Source.Format, t.Source.Tool,
		t.Source.SyntheticAddresses, t.Kind())
	fmt.Fprintf(w, "process pid=%d rank=%d world=%d host=%q\n", t.Process.PID.Or(-1), t.Process.Rank.Or(-1),
		t.Process.WorldSize.Or(-1), t.Process.Host)
	fmt.Fprintf(w, "clock time=%v resolution=%d epoch=%d\n", t.Clock.HasTime, t.Clock.Resolution,
		t.Clock.Epoch)
	for i, d := range t.Devices {
		fmt.Fprintf(w, "device %d %v:%d name=%q total=%d\n", i, d.Kind, d.Ordinal, d.Name, d.TotalBytes)
	}
	for i := range t.Events.Len() {
		e := t.Events.At(i)
		fmt.Fprintf(w, "event %d t=%d %v device=%d stream=%d addr=%#x size=%d%s\n",
			i, e.Time, e.Action, e.Device, e.Stream, e.Addr, e.Size, detail(t, i))
		stack(w, t, "stack", e.Stack)
		stack(w, t, "forward", t.DetailOf(i).ForwardStack)
	}
	for i, o := range t.Ops {
		fmt.Fprintf(w, "op %d t=%d+%d %q parent=%d thread=%d stream=%d device=%d phase=%v rerunnable=%v "+
			"module=%q\n", i, o.Start,
			o.Duration, t.Text(o.Name), o.Parent, o.Thread, t.Streams[o.Stream], o.Device, o.Phase,
			o.Rerunnable, t.Text(o.Module))
		if o.Again {
			fmt.Fprintln(w, "  again")
		}
		if o.NoGrad {
			fmt.Fprintln(w, "  nograd")
		}
		stack(w, t, "stack", o.Stack)
	}
	for _, a := range t.Accesses {
		fmt.Fprintf(w, "access t=%d before=%d op=%d %v addr=%#x size=%d device=%d\n", a.Time, a.Event, a.Op,
			a.Mode, a.Addr, a.Size, a.Device)
	}
	for _, m := range t.Marks {
		fmt.Fprintf(w, "mark %d..%d kind=%d phase=%v device=%d %q\n", m.Start, m.End, m.Kind, m.Phase,
			m.Device, t.Text(m.Name))
	}
	for _, c := range t.Counters {
		fmt.Fprintf(w, "counter %s device=%d t=%v value=%v event=%v\n", t.Text(c.Name), c.Device, c.Time,
			c.Value, c.Event)
	}
	writeFinal(w, t)
	for _, s := range t.Settings {
		fmt.Fprintf(w, "setting %s=%s\n", s.Key, s.Value)
	}
	for _, s := range t.Extra {
		fmt.Fprintf(w, "extra %s=%s\n", s.Key, s.Value)
	}
	for _, l := range t.Losses {
		fmt.Fprintf(w, "loss %s %v %d: %s\n", l.Name, l.Severity, l.Count, l.Detail)
	}
}

func writeFinal(w io.Writer, t *traces.Trace) {
	if !t.Final.Known {
		return
	}
	for _, s := range t.Final.Segments {
		fmt.Fprintf(w,
			"segment device=%d addr=%#x total=%d allocated=%d active=%d wanted=%d blocks=[%d,%d)\n", s.Device,
			s.Address, s.TotalSize, s.AllocatedSize, s.ActiveSize, s.Wanted, s.FirstBlock, s.EndBlock)
	}
	for _, b := range t.Final.Blocks {
		fmt.Fprintf(w, "block addr=%#x size=%d requested=%d count=%d %v extra=%s\n",
			b.Address, b.Size, b.Requested.Or(-1), b.Count, b.State, t.Text(b.Extra))
		stack(w, t, "stack", b.Stack)
	}
}

func detail(t *traces.Trace, i int) string {
	d, s := t.DetailOf(i), ""
	if d.Op != 0 {
		s += fmt.Sprintf(" op=%q", t.Text(d.Op))
	}
	if d.Category != 0 {
		s += fmt.Sprintf(" category=%q", t.Text(d.Category))
	}
	if d.UserMetadata != 0 {
		s += fmt.Sprintf(" user=%q", t.Text(d.UserMetadata))
	}
	return s
}

func stack(w io.Writer, t *traces.Trace, label string, id traces.StackID) {
	if id == traces.NoStack {
		return
	}
	frames := make([]string, 0, 8)
	for _, f := range t.Stacks.At(id) {
		fn, file, line := t.FrameText(f)
		if file != "" {
			fn = fmt.Sprintf("%s (%s:%d)", fn, file, line)
		}
		frames = append(frames, fn)
	}
	fmt.Fprintf(w, "  %s: %s\n", label, strings.Join(frames, " < "))
}
