package pack

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the expected parts of testdata/*.txtar")

// drawing shows a packing with offsets upwards and time to the right, one letter an item, in the problem's
// order, "." where nothing is. Times and addresses are taken as they are, so it is for small problems.
func drawing(p *Problem, res Result) string {
	var last int64
	for _, it := range p.Items {
		last = max(last, it.End, it.End2)
	}
	var b strings.Builder
	for a := res.Top - 1; a >= 0; a-- {
		fmt.Fprintf(&b, "%3d ", a)
		for t := range last {
			mark := byte('.')
			for i, it := range p.Items {
				alive := it.Start <= t && t < it.End || it.Start2 <= t && t < it.End2
				if alive && res.Offsets[i] <= a && a < res.Offsets[i]+it.Size {
					mark = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[i]
				}
			}
			b.WriteByte(mark)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "top %d, bound %d, %s\n", res.Top, res.LowerBound, res.Status)
	return b.String()
}

// TestCases runs testdata/*.txtar: a problem.csv, whose offset column gives fixed offsets, and the drawings
// of what each solver makes of it. The comment may hold lines "align n" and "capacity n".
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			table, err := ReadCSV(bytes.NewReader(ar.Files[0].Data))
			if err != nil {
				t.Fatal(err)
			}
			p := &table.Problem
			p.Fixed = table.Offsets
			var opts Options
			for line := range strings.Lines(string(ar.Comment)) {
				if v, ok := strings.CutPrefix(line, "align "); ok {
					p.Align, err = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
				} else if v, ok := strings.CutPrefix(line, "capacity "); ok {
					opts.Capacity, err = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for k := 1; k < len(ar.Files); k++ {
				var res Result
				switch ar.Files[k].Name {
				case "bestfit":
					res, err = BestFit(t.Context(), p)
				case "firstfit":
					res, err = FirstFit(t.Context(), p)
				case "exact":
					res, err = Exact(t.Context(), p, opts)
				default:
					t.Fatalf("nothing is called %s", ar.Files[k].Name)
				}
				checkResult(t, p, res, err)
				got := drawing(p, res)
				if *update {
					ar.Files[k].Data = []byte(got)
				} else if got != string(ar.Files[k].Data) {
					t.Errorf("%s:\n%swant\n%s", ar.Files[k].Name, got, ar.Files[k].Data)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestACSVReadAndWrittenIsTheSame(t *testing.T) {
	table := &Table{Problem: Problem{Items: []Item{{0, 3, 0, 0, 4}, {3, 9, 12, 14, 5}, {-4, 9, 0, 0, 0}}},
		IDs: []string{"b1", "a,\"b\"", "7"}, Offsets: []int64{4, -1, 0}}
	var b bytes.Buffer
	if err := WriteCSV(&b, table); err != nil {
		t.Fatal(err)
	}
	const want = "id,lower,upper,size,offset,lower2,upper2\nb1,0,3,4,4,,\n\"a,\"\"b\"\"\",3,9,5,,12,14\n7,-4,9,0,0,,\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	back, err := ReadCSV(&b)
	if err != nil || fmt.Sprint(back) != fmt.Sprint(table) {
		t.Errorf("got %v, %v, want %v", back, err, table)
	}
}

func TestColumnsStandInAnyOrderAndDialect(t *testing.T) {
	for _, text := range []string{
		"id,lower,upper,size\nx,1,5,8\n",
		"\ufeffsize, upper ,ID,note,lower\n8,5,x,hello,1\n",
		"buffer_id,start,end,size\nx,1,4,8\n",
		"buffer,begin,upper,size,offset,alignment,gaps\r\nx,1,5,8,-1,1,\r\n",
	} {
		table, err := ReadCSV(strings.NewReader(text))
		if err != nil || len(table.Items) != 1 || table.Items[0] != (Item{Start: 1, End: 5, Size: 8}) ||
			table.IDs[0] != "x" {
			t.Errorf("%q: %+v, %v", text, table, err)
		}
	}
}

func TestAMalformedCSVNamesItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"": "line 1: there is no header; the first line has to name the columns " +
			"id, lower, upper, size",
		"id,lower,size\n": "line 1: the header lacks one of the columns " +
			"id, lower, upper, size",
		"id,lower,start,upper,size\n": `line 1: the header names the ` +
			`column "start" a second time`,
		"id,lower,upper,size\na,0,1,2\nb,0,x,3\n": `line 3: the upper "x" is not a whole number below 2^62`,
		"id,lower,upper,size\na,0\n":              `line 2: the upper "" is not a whole number below 2^62`,
		"id,lower,upper,size\n\na,4,4,1\n": "line 3: its lifetime [4, 4) is empty; the end has " +
			"to come after the start",
		"id,lower,upper,size\n\"a,0,1,2\n": "line 2: extraneous or missing \" in quoted-field",
		"id,lower,upper,size,gaps\na,0,9,1,2-3\n": `line 2: gaps in a lifetime ("2-3") are not supported; ` +
			`use lower2 and upper2 for one`,
	} {
		_, err := ReadCSV(strings.NewReader(text))
		var parse *ParseError
		if err == nil || err.Error() != want || !errors.As(err, &parse) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	if _, err := ReadCSV(strings.NewReader("id,lower,upper,size\n" + strings.Repeat("x", 2<<20))); err == nil {
		t.Error("a line of 2 MiB passes")
	}
}

func FuzzReadCSV(f *testing.F) {
	f.Add([]byte("id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\n"))
	f.Add([]byte("id,lower,upper,size,offset,lower2,upper2\nb1,0,3,4,0,5,6\n"))
	f.Add([]byte("size,end,begin,buffer\n1,2,0,\"q\"\"\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := ReadCSV(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := WriteCSV(&b, table); err != nil {
			t.Fatal(err)
		}
		back, err := ReadCSV(&b)
		if err != nil || fmt.Sprint(back) != fmt.Sprint(table) {
			t.Fatalf("read back %v, %v, want %v", back, err, table)
		}
		if len(table.Items) <= 64 {
			res, err := BestFit(t.Context(), &table.Problem)
			checkResult(t, &table.Problem, res, err)
		}
	})
}
