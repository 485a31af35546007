package csv_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/csv"
	"github.com/gmemtop/gmemtop/traces/internal/tracetext"
)

func TestCases(t *testing.T) { tracetext.RunCases(t, csv.Read) }

func TestSniff(t *testing.T) {
	tracetext.RunSniff(t, csv.Sniff, map[string]bool{
		"id,lower,upper,size\n0,1,2,3":      true,
		"\xef\xbb\xbfsize,END,start,buffer": true,
		"id,lower,upper\n":                  false,
		"Malloc 0x1 2 3\n":                  false,
		"":                                  false,
		"{\"id\": 1}":                       false,
	})
}

// figures come from a Python script that reads only the rows: the largest live sum of each problem, by the
// number of buffers and the sum of their sizes.
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
		tr, err := csv.Read(t.Context(), tracetext.Open(t, file), nil)
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
	tracetext.Fuzz(f, csv.Sniff, csv.Read, func(t *testing.T, tr *traces.Trace, err error) {
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
