package console

import (
	"os"
	"path/filepath"
	"testing"
)

// A pipe and a redirected file are input that a shell put there; /dev/null and nothing are not.
func TestMessagesBreakBetweenWords(t *testing.T) {
	const long = "gmemtop: notes.txt: it begins with \"hello\": not a trace that gmemtop knows\nsee " +
		"gmemtop --help"
	want := "gmemtop: notes.txt: it\nbegins with \"hello\": not a\ntrace that gmemtop knows\nsee gmemtop " +
		"--help"
	if got := fold(long, 26); got != want {
		t.Errorf("%q", got)
	}
	if got := fold(long, 100); got != long {
		t.Errorf("with room it is %q", got)
	}
}

func TestOnlyPipesAndFilesArePiped(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "train.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, c := range []struct {
		what string
		f    *os.File
		want bool
	}{{"a pipe", r, true}, {"a file", file, true}, {os.DevNull, null, false}, {"nothing", nil, false}} {
		if got := IsPiped(c.f); got != c.want {
			t.Errorf("%s is piped: %v", c.what, got)
		}
	}
}
