package csv_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/csv"
	"github.com/gmemtop/gmemtop/traces/internal/tracetext"
)

func TestCases(t *testing.T) { tracetext.RunCases(t, csv.Read) }

func TestSniff(t *testing.T) {
	for head, want := range map[string]bool{
		"id,lower,upper,size\n0,1,2,3":      true,
		"\xef\xbb\xbfsize,END,start,buffer": true,
		"id,lower,upper\n":                  false,
		"Malloc 0x1 2 3\n":                  false,
		"":                                  false,
		"{\"id\": 1}":                       false,
	} {
		if got := csv.Sniff([]byte(head)); got != want {
			t.Errorf("Sniff(%q) = %v", head, got)
		}
	}
}

// figures are a Python script's, from the rows alone: the largest live sum of each problem, by the number of
// buffers and their sizes' sum.
var figures = map[string]int64{
	"5620 buffers of 56392198611 bytes":   15734934689,
	"316 buffers of 47348480 bytes":       1674240,
	"18692 buffers of 276636552888 bytes": 5530099775,
	"1042 buffers of 3424204028 bytes":    1515472556,
	"154 buffers of 15071232 bytes":       1048576,
	"203 buffers of 21476352 bytes":       1039360,
	"215 buffers of 25556992 bytes":       1048576,
	"308 buffers of 20795392 bytes":       1048576,
	"374 buffers of 48854016 bytes":       1048576,
	"454 buffers of 79005696 bytes":       1048576,
	"5 buffers of 20 bytes":               12,
}

func TestALineOfAnyLengthIsNotHeldInMemory(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("id,lower,upper,size\na,0,1,8\nb,"),
		strings.NewReader(strings.Repeat("9", 64<<20)))
	tr, err := csv.Read(t.Context(), endless, nil)
	var format *traces.FormatError
	if !errors.As(err, &format) || format.Line != 3 || !strings.Contains(format.Reason, "longer than 1 MiB") {
		t.Errorf("got %v, want a sentence about line 3", err)
	}
	if tr == nil || tr.Events.Len() != 2 {
		t.Errorf("the row before the long line is missing: %v", tr)
	}
}

func TestRealProblems(t *testing.T) {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: real problems")
	}
	var files []string
	for _, pattern := range []string{"minimalloc/*.csv", "dsa/*.csv", "dsa/*.csv.gz"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) != len(figures) {
		t.Errorf("%d problems found, %d known", len(files), len(figures))
	}
	for i, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var in io.Reader = f
		if strings.HasSuffix(file, ".gz") {
			if in, err = gzip.NewReader(f); err != nil {
				t.Fatal(err)
			}
		}
		tr, err := csv.Read(t.Context(), in, nil)
		if err != nil {
			t.Errorf("problem %d: %v", i, err)
			continue
		}
		live, peak, sum := int64(0), int64(0), int64(0)
		for i := range tr.Events.Len() {
			e := tr.Events.At(i)
			if e.Action == traces.Free {
				live -= e.Size
				continue
			}
			live, sum = live+e.Size, sum+e.Size
			peak = max(peak, live)
		}
		key := fmt.Sprintf("%d buffers of %d bytes", tr.Events.Len()/2, sum)
		if want, ok := figures[key]; !ok || want != peak || live != 0 {
			t.Errorf("%s: peak %d, want %d; %d live at the end", key, peak, want, live)
		}
	}
}

func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(ar.Files[0].Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		csv.Sniff(data)
		tr, err := csv.Read(t.Context(), bytes.NewReader(data), nil)
		if tr == nil && err == nil {
			t.Fatal("neither a trace nor an error")
		}
		if tr == nil {
			return
		}
		live := map[uint64]bool{}
		for i := range tr.Events.Len() {
			e := tr.Events.At(i)
			if live[e.Addr] == (e.Action == traces.Alloc) && err == nil {
				t.Fatalf("event %d: %v of address %d out of turn", i, e.Action, e.Addr)
			}
			live[e.Addr] = e.Action == traces.Alloc
		}
	})
}

func BenchmarkRead(b *testing.B) {
	var in bytes.Buffer
	in.WriteString("id,lower,upper,size\n")
	for i := range 100000 {
		fmt.Fprintf(&in, "%d,%d,%d,%d\n", i, i, i+10+i%97, 512*(1+i%1000))
	}
	b.SetBytes(int64(in.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := csv.Read(b.Context(), bytes.NewReader(in.Bytes()), nil); err != nil {
			b.Fatal(err)
		}
	}
}
