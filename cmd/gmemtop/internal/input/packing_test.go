package input_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/input"
	"github.com/gmemtop/gmemtop/traces"
)

func TestAPackingProblemIsReadFromAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "problem.csv")
	reader := input.Reader{Bar: func() (input.Progress, func()) {
		return func(string, int64, int64) {}, func() {}
	}}
	for text, want := range map[string]string{
		"id,lower,upper,size\na,0,3,4\nb,3,9,4\n":                                    "",
		"id,lower,upper,size\na,0,3,4\nb,0,x,4\n":                                    "line 3",
		"id,lower,upper,size\na,5,3,4\n":                                             "problem.csv",
		"id,lower,upper,size\n" + strings.Repeat("a,0,1,281474976710656\n", 1<<14+1): "add up to more",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := reader.Packing(t.Context(), path)
		switch {
		case want == "" && (err != nil || len(p.Problem.Items) != 2):
			t.Errorf("%.60q: %+v, %v", text, p, err)
		case want != "" && (!errors.Is(err, traces.ErrFormat) || !strings.Contains(err.Error(), want)):
			t.Errorf("%.60q: %v", text, err)
		}
	}
	_, err := reader.Packing(t.Context(), path+".gone")
	if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, traces.ErrFormat) {
		t.Errorf("no file: %v", err)
	}
}
