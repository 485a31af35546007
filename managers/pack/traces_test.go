package pack

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tracesFiles returns the files that match a pattern under the folder of real problems, or skips.
func tracesFiles(t testing.TB, pattern string) []string {
	t.Helper()
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: real problems recorded by others")
	}
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s under GMEMTOP_TRACES (%v)", pattern, err)
	}
	return files
}

// readProblem reads one file, decompressing where its name says so.
func readProblem(t testing.TB, path string) *Table {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r io.Reader = bytes.NewReader(data)
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(r); err != nil {
			t.Fatal(err)
		}
	}
	table, err := ReadCSV(r)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestSmartPoolsRuleGivesItsKnownFootprintsOnTheChallengingProblems(t *testing.T) {
	want := map[string]float64{"A": 1.311, "C": 1.352, "E": 1.401, "G": 1.332, "I": 1.410, "K": 1.327}
	const capacity = 1048576
	for _, f := range tracesFiles(t, "minimalloc/*.1048576.csv") {
		table := readProblem(t, f)
		res, err := BestFit(t.Context(), &table.Problem)
		if err != nil {
			t.Fatal(err)
		}
		if err := Validate(&table.Problem, res.Offsets); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(f, ".1048576.csv")
		name = name[len(name)-1:]
		got := float64(int64(float64(res.Top)/capacity*1000+0.5)) / 1000
		if got != want[name] {
			t.Errorf("problem %s: footprint / capacity is %.3f, want %.3f", name, got, want[name])
		}
	}
}

func TestEveryChallengingProblemMeetsItsCapacity(t *testing.T) {
	for _, f := range tracesFiles(t, "minimalloc/*.1048576.csv") {
		table := readProblem(t, f)
		res, err := Exact(t.Context(), &table.Problem, Options{Capacity: 1048576})
		checkResult(t, &table.Problem, res, err)
		if res.Top > 1048576 {
			t.Errorf("%d items: %s %d", len(table.Items), res.Status, res.Top)
		}
		res, err = Exact(t.Context(), &table.Problem, Options{})
		checkResult(t, &table.Problem, res, err)
		if res.Status != Optimal || res.Top != LowerBound(&table.Problem) {
			t.Errorf("%d items, minimised: %s %d over %d", len(table.Items), res.Status, res.Top,
				res.LowerBound)
		}
	}
}

func TestTheExampleOfTwelveIsPacked(t *testing.T) {
	for _, f := range tracesFiles(t, "minimalloc/*input.12.csv") {
		table := readProblem(t, f)
		res, err := Exact(t.Context(), &table.Problem, Options{Capacity: 12})
		checkResult(t, &table.Problem, res, err)
		if res.Top > 12 || res.Status == Unknown {
			t.Errorf("%s %d", res.Status, res.Top)
		}
	}
}

func TestCompilersProblemsArePackedAtTheirBound(t *testing.T) {
	for _, f := range tracesFiles(t, "dsa/*") {
		table := readProblem(t, f)
		res, err := Exact(t.Context(), &table.Problem, Options{})
		checkResult(t, &table.Problem, res, err)
		if res.Status != Optimal {
			t.Errorf("%d items: %s, %.4f of the bound", len(table.Items), res.Status,
				float64(res.Top)/float64(res.LowerBound))
		}
	}
}

func BenchmarkChallenging(b *testing.B) {
	for _, f := range tracesFiles(b, "minimalloc/*.1048576.csv") {
		table := readProblem(b, f)
		b.Run(fmt.Sprintf("items=%d", len(table.Items)), func(b *testing.B) {
			for b.Loop() {
				if res, err := Exact(b.Context(), &table.Problem, Options{Capacity: 1048576}); err != nil ||
					res.Top > 1048576 {
					b.Fatal(res.Top, err)
				}
			}
		})
	}
}
