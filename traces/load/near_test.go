package load

import (
	"errors"
	"io/fs"
	"math/rand/v2"
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

// The distance within its band is that of the whole table.
func TestDistanceCountsWrongLetters(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		b := make([]byte, r.IntN(9))
		for i := range b {
			b[i] = "abc"[r.IntN(3)]
		}
		return string(b)
	}
	for range 5000 {
		a, b, most := word(), word(), 1+r.IntN(nearWrong)
		want := whole(a, b)
		if want > most {
			want = nearWrong + 1
		}
		if got := distance(a, b, most); got != want {
			t.Fatalf("distance(%q, %q, %d) is %d, want %d", a, b, most, got, want)
		}
	}
}

func whole(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	if a[0] == b[0] {
		return whole(a[1:], b[1:])
	}
	least := min(whole(a[1:], b[1:]), whole(a[1:], b), whole(a, b[1:]))
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		least = min(least, whole(a[2:], b[2:]))
	}
	return 1 + least
}
