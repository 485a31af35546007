package load

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheNearestNameIsSuggested(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"snapshot.pickle", "train.gmt", "train2.gmt", ".hidden.gmt",
		"two words.csv", "bell\a.csv", "run.pt.trace.json.gz", "Makefile"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for typed, want := range map[string]string{
		"snapsot.pickle":          "snapshot.pickle",
		"snapshot":                "snapshot.pickle",
		"snapsot":                 "snapshot.pickle",
		"snapshot.pkl":            "snapshot.pickle",
		"SNAPSHOT.PICKLE":         "snapshot.pickle",
		"tarin.gmt":               "train.gmt",
		"tran.gmt":                "train.gmt",
		"trian2.gmt":              "train2.gmt",
		"run.pt.trace.gz":         "run.pt.trace.json.gz",
		"makefile":                "Makefile",
		"hidden.gmt":              "",
		"two wrds.csv":            `"` + dir + `/two words.csv"`,
		"bell.csv":                `"` + dir + `/bell\a.csv"`,
		"something.else":          "",
		"xyz":                     "",
		"none/train.gmt":          "",
		"":                        "",
		strings.Repeat("x", 4000): "",
	} {
		if want != "" && want[0] != '"' {
			want = dir + "/" + want
		}
		if got := Near(dir + "/" + typed); got != want {
			t.Errorf("Near(%q) is %q, want %q", typed, got, want)
		}
	}
	_, err := Open(t.Context(), dir+"/tran.gmt", Options{NoCache: true})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "did you mean "+dir+"/train.gmt?") {
		t.Errorf("opening a misspelled name: %v", err)
	}
	_, err = OpenRun(t.Context(), []string{dir + "/train.gmt", dir + "/tran2.gmt"}, Options{NoCache: true})
	if !errors.Is(err, fs.ErrNotExist) ||
		!strings.HasSuffix(err.Error(), "did you mean "+dir+"/train2.gmt?") {
		t.Errorf("opening a misspelled run: %v", err)
	}
	if err := Missing(dir + "/tran.gmt"); !errors.Is(err, fs.ErrNotExist) ||
		err.Error() != dir+"/tran.gmt: no such file or directory: did you mean "+dir+"/train.gmt?" {
		t.Errorf("missing: %v", err)
	}
}
