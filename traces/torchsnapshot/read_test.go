package torchsnapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/traces"
)

var update = flag.Bool("update", false, "rewrite the wanted tables of testdata/*.txtar")

func read(data []byte) (*traces.Trace, error) {
	return Read(context.Background(), bytes.NewReader(data), nil)
}

// encodings returns every form of the snapshot that a case describes: JSON as itself and as pickles of all
// protocols, with pools as tuples and as lists, shared and not; opcodes as the one pickle they are.
func encodings(t testing.TB, a *txtar.Archive) map[string][]byte {
	forms := map[string][]byte{}
	for _, f := range a.Files {
		switch f.Name {
		case "snapshot.json":
			forms["json"] = f.Data
			for protocol := byte(2); protocol <= 5; protocol++ {
				for _, tuples := range []bool{true, false} {
					for _, shared := range []bool{true, false} {
						name := fmt.Sprintf("protocol %d tuples %t shared %t", protocol, tuples, shared)
						forms[name] = pickleJSON(t, string(f.Data), protocol, tuples, shared)
					}
				}
			}
		case "opcodes":
			forms["opcodes"] = assemble(t, string(f.Data))
		}
	}
	return forms
}

func cases(t testing.TB) map[string]*txtar.Archive {
	t.Helper()
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	all := map[string]*txtar.Archive{}
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = a
	}
	return all
}

// TestCases reads each case in every encoding and compares the tables, which must not depend on the encoding.
func TestCases(t *testing.T) {
	for name, a := range cases(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			at := -1
			for i, f := range a.Files {
				if f.Name == "want" {
					at = i
				}
			}
			if at < 0 {
				a.Files = append(a.Files, txtar.File{Name: "want"})
				at = len(a.Files) - 1
			}
			for form, data := range encodings(t, a) {
				tr, err := read(data)
				got := ""
				if tr != nil {
					got = dump(tr)
				}
				if err != nil {
					got += fmt.Sprintf("error %v\n", err)
				}
				if *update {
					a.Files[at].Data = []byte(got)
					if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if want := string(a.Files[at].Data); got != want {
					t.Errorf("%s:\n%s\nwant:\n%s", form, got, want)
				}
				if err == nil && !Sniff(data[:min(len(data), 4096)]) && form != "opcodes" {
					t.Errorf("%s: not recognised", form)
				}
			}
		})
	}
}

// TestWriteThenReadGivesTheSameTrace is the round-trip law on every case that reads without error.
func TestWriteThenReadGivesTheSameTrace(t *testing.T) {
	for name, a := range cases(t) {
		for form, data := range encodings(t, a) {
			tr, err := read(data)
			if err != nil {
				continue
			}
			t.Run(filepath.Base(name)+"/"+form, func(t *testing.T) { roundTrip(t, tr) })
		}
	}
}

func roundTrip(t *testing.T, tr *traces.Trace) {
	t.Helper()
	var out bytes.Buffer
	if err := Write(context.Background(), &out, tr); err != nil {
		t.Fatal(err)
	}
	again, err := read(out.Bytes())
	if err != nil {
		t.Fatalf("read back: %v", err)
	}
	sameTables(t, tr, again)
	if !Sniff(out.Bytes()[:min(out.Len(), 4096)]) {
		t.Error("what Write made is not recognised")
	}
}

// TestTheInputMayComeInAnyPieces reads byte by byte.
func TestTheInputMayComeInAnyPieces(t *testing.T) {
	for name, a := range cases(t) {
		for form, data := range encodings(t, a) {
			want, wantErr := read(data)
			got, err := Read(context.Background(), iotest.OneByteReader(bytes.NewReader(data)), nil)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) || (got == nil) != (want == nil) {
				t.Fatalf("%s %s: %v, in one piece %v", name, form, err, wantErr)
			}
			if got != nil && dump(got) != dump(want) {
				t.Errorf("%s %s: differs in pieces", name, form)
			}
		}
	}
}

// TestEveryCutGivesTheSoundPart cuts a small snapshot at every byte: an error with the place of the cut, and
// events and segments that are a beginning of the whole.
func TestEveryCutGivesTheSoundPart(t *testing.T) {
	a, err := txtar.ParseFile("testdata/newest.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for form, data := range encodings(t, a) {
		whole, err := read(data)
		if err != nil {
			t.Fatal(err)
		}
		end := len(bytes.TrimRight(data, "\n"))
		most := 0
		for n := range end {
			tr, err := read(data[:n])
			var fe *traces.FormatError
			if !errors.As(err, &fe) || !errors.Is(err, traces.ErrFormat) {
				t.Fatalf("%s cut at %d: %v is not a FormatError", form, n, err)
			}
			if n > 0 && fe.Offset != int64(n) {
				t.Fatalf("%s cut at %d: offset %d: %v", form, n, fe.Offset, err)
			}
			if tr == nil {
				continue
			}
			if tr.Events.Len() < most || tr.Events.Len() > whole.Events.Len() {
				t.Fatalf("%s cut at %d: %d events after %d", form, n, tr.Events.Len(), most)
			}
			most = tr.Events.Len()
			for i := range most - 1 { // the last may lack keys that come later
				if got, want := tr.Events.At(i), whole.Events.At(i); got.Addr != want.Addr ||
					got.Size != want.Size || got.Action != want.Action {
					t.Fatalf("%s cut at %d: event %d is %+v, want %+v", form, n, i, got, want)
				}
			}
		}
		if most != whole.Events.Len() {
			t.Errorf("%s: the last cut has %d of %d events", form, most, whole.Events.Len())
		}
	}
}

// TestNoFlippedBitPanics reads a small snapshot with each of its bits flipped (with -short, each of every
// eighth byte).
func TestNoFlippedBitPanics(t *testing.T) {
	a, err := txtar.ParseFile("testdata/newest.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for form, data := range encodings(t, a) {
		if form != "json" && form != "protocol 2 tuples false shared true" &&
			form != "protocol 4 tuples true shared true" {
			continue // alike to these
		}
		if form == "json" {
			var small bytes.Buffer
			must(json.Compact(&small, data))
			data = small.Bytes()
		}
		for i := range data {
			if testing.Short() && i%8 != 0 {
				continue
			}
			for bit := range 8 {
				bad := bytes.Clone(data)
				bad[i] ^= 1 << bit
				tr, err := read(bad)
				if err != nil && !errors.Is(err, traces.ErrFormat) {
					t.Fatalf("%s byte %d bit %d: %v", form, i, bit, err)
				}
				if tr != nil {
					checkTables(t, tr)
				}
			}
		}
	}
}

// checkTables fails where an id of the trace points outside its table.
func checkTables(t testing.TB, tr *traces.Trace) {
	t.Helper()
	dump(tr) // resolves every id
	if len(tr.Events.Addr) != tr.Events.Len() || len(tr.Events.Stack) != tr.Events.Len() ||
		tr.Events.Detail != nil && len(tr.Events.Detail) != tr.Events.Len() {
		t.Fatal("the columns have different lengths")
	}
	if n := len(tr.Final.Segments); n > 0 && int(tr.Final.Segments[n-1].EndBlock) != len(tr.Final.Blocks) {
		t.Fatal("blocks without a segment")
	}
}

// TestCancelStopsReading cancels from the progress callback.
func TestCancelStopsReading(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	data := synthetic(200_000)
	tr, err := Read(ctx, bytes.NewReader(data), func(done int64) {
		if done > int64(len(data))/4 {
			cancel()
		}
	})
	if tr != nil || !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, %v", tr, err)
	}
	if _, err := Read(ctx, bytes.NewReader(data), nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

// TestProgressRisesToTheEnd holds for a file of several windows.
func TestProgressRisesToTheEnd(t *testing.T) {
	data := synthetic(100_000)
	last, calls := int64(0), 0
	tr, err := Read(context.Background(), bytes.NewReader(data), func(done int64) {
		if done <= last || done > int64(len(data)) {
			t.Fatalf("progress %d after %d", done, last)
		}
		last, calls = done, calls+1
	})
	if err != nil || calls < 5 || tr.Source.Bytes != int64(len(data)) {
		t.Fatalf("%d calls, %v", calls, err)
	}
}

// TestAReaderThatFails gives the sound part and names the cause.
func TestAReaderThatFails(t *testing.T) {
	broken := errors.New("gzip: invalid checksum")
	data := synthetic(50_000)
	r := iotest.DataErrReader(&failing{data: data[:len(data)/2], err: broken})
	tr, err := Read(context.Background(), r, nil)
	if !errors.Is(err, broken) || !errors.Is(err, traces.ErrFormat) || tr == nil || tr.Events.Len() < 10_000 {
		t.Fatalf("got %v", err)
	}
}

type failing struct {
	data []byte
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	if len(f.data) == 0 {
		return 0, f.err
	}
	n := copy(p, f.data)
	f.data = f.data[n:]
	return n, nil
}

func TestSniffRefuses(t *testing.T) {
	for name, head := range map[string]string{
		"nothing": "", "one byte": "\x80", "a pickled list of numbers": "\x80\x04]\x94(K\x01K\x02e.",
		"a pickled dict of others": "\x80\x04}\x94\x8c\x01a\x94K\x01s.",
		"a global":                 "\x80\x04c__builtin__\neval\n",
		"a chrome trace":           `{"traceEvents": [{"name": "segments"}]}`,
		"another array":            `[1, 2, "blocks"]`, "text": "segments",
		"protocol 6": "\x80\x06}\x94\x8c\x08segments\x94", "a pointer": lfsPrefix,
		"gzip": "\x1f\x8b\x08segments",
	} {
		if Sniff([]byte(head)) {
			t.Errorf("%s was taken for a snapshot", name)
		}
	}
}
