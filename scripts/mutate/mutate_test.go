package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const source = `package p

func F(a, b int) int {
	if a < b && a != 0 {
		return max(a, -b)
	}
	for a++; ; {
		break
	}
	return a / 2
}
`

func TestEveryPlaceIsChangedOnce(t *testing.T) {
	all, err := changesOf("p.go", "p.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range all {
		got = append(got, strings.TrimPrefix(all[i].String(), "p.go F: "))
		if text := string(all[i].apply()); strings.Count(text, "\n") != strings.Count(source, "\n") {
			t.Errorf("%v: the file is now\n%s", &all[i], text)
		}
	}
	want := []string{
		"if a < b && a != 0 { -> if a < b {",
		"if a < b && a != 0 { -> if a != 0 {",
		"if a < b && a != 0 { -> if a <= b && a != 0 {",
		"if a < b && a != 0 { -> if a < b && a == 0 {",
		"return max(a, -b) -> return a",
		"return max(a, -b) -> return -b",
		"return max(a, -b) -> return max(a, b)",
		"for a++; ; { -> for a--; ; {",
		"break -> continue",
		"return a / 2 -> return a * 2",
		"return a / 2 -> return a / (2*2)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the changes are\n%s", strings.Join(got, "\n"))
	}
}

func TestWhatNoTestNoticesSurvives(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"p.go": `package p

func Less(a, b int) bool {
	return a < b
}

func Unreached() int { return 7 }

func Twice(a int) int { return 2 * a }
`,
		"p_test.go": `package p

import "testing"

func TestP(t *testing.T) {
	if !Less(1, 2) || Twice(3) != 6 {
		t.Fail()
	}
}
`,
		"q/q_test.go": `package q

import (
	"testing"

	p "example.com/m"
)

func TestQ(t *testing.T) {
	if p.Less(1, 1) {
		t.Fail()
	}
}
`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	const survivor = "p.go Less: return a < b -> return a <= b"
	for _, c := range []struct {
		explained string
		survived  int
		word      string
	}{
		{"# nothing\n", 1, "SURVIVES "},
		{survivor + "\n\twhy\n", 0, "explained"},
	} {
		var out strings.Builder
		r := run{explained: explained(c.explained), out: &out}
		err := r.mutate(t.Context(), ".")
		want := c.word + "  " + survivor + " (line 4)\n" +
			": 2 of 3 changes killed, 1 survive, 0 do not compile; 3 places in all\n"
		if err != nil || r.survived != c.survived || out.String() != want {
			t.Errorf("%d survive, %v:\n%s", r.survived, err, out.String())
		}
	}
	var out strings.Builder
	r := run{out: &out}
	if err := r.mutate(t.Context(), ".=.,./q"); err != nil || r.survived != 0 ||
		out.String() != ": 3 of 3 changes killed, 0 survive, 0 do not compile; 3 places in all\n" {
		t.Errorf("with the tests of two packages: %d survive, %v:\n%s", r.survived, err, out.String())
	}
	out.Reset()
	r.only = "TestQ"
	if err := r.mutate(t.Context(), ".=.,./q"); err != nil ||
		out.String() != ": 1 of 1 changes killed, 0 survive, 0 do not compile; 1 places in all\n" {
		t.Errorf("with one test of two: %v:\n%s", err, out.String())
	}
}
