package parquet_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline/figure/parquet"
)

// A row that does not match the columns is an error, and no footer makes a broken table look whole.
func TestARowThatDoesNotMatchTheColumnsIsRefused(t *testing.T) {
	for want, row := range map[string]func(w *parquet.Writer){
		"1 cells for 2 columns":          func(w *parquet.Writer) { w.Text("a") },
		"more cells than the table":      func(w *parquet.Writer) { w.Text("a"); w.Int(1); w.Int(2) },
		"column a got a cell of another": func(w *parquet.Writer) { w.Int(1); w.Int(2) },
		"column a takes no nulls":        func(w *parquet.Writer) { w.Null(); w.Int(2) },
	} {
		var b bytes.Buffer
		w, err := parquet.NewWriter(&b, "t", []parquet.Column{{Name: "a"},
			{Name: "b", Kind: parquet.Int, Optional: true}})
		if err != nil {
			t.Fatal(err)
		}
		row(w)
		if err := w.Row(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("row: %v, not %q", err, want)
		}
		if err := w.Close(); err == nil || strings.HasSuffix(b.String()[4:], "PAR1") {
			t.Errorf("%s: the table was ended: %v", want, err)
		}
	}
}
