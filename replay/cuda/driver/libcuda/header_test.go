package libcuda_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// realHeader returns the folder of an installed toolkit's cuda.h, of CUDA up to 12.x.
func realHeader(t *testing.T) string {
	t.Helper()
	candidates := []string{os.Getenv("GMEMTOP_CUDA_INCLUDE"), "/usr/local/cuda/include", "/opt/cuda/include",
		"/usr/include"}
	for _, dir := range candidates {
		text, err := os.ReadFile(filepath.Join(dir, "cuda.h"))
		if dir == "" || err != nil {
			continue
		}
		if m := regexp.MustCompile(`#define CUDA_VERSION (\d+)`).FindSubmatch(text); m != nil &&
			string(m[1]) < "13000" {
			return dir
		}
	}
	t.Skip("needs GMEMTOP_CUDA_INCLUDE: a folder with the cuda.h of a CUDA toolkit up to 12.x (one was in " +
		"no usual place)")
	return ""
}

func compiler(t *testing.T) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("needs cc: headers are compared by compiling")
	}
	return cc
}

// ours is our header, and what it declares.
type ours struct {
	text       string
	values     []string // enumerators
	fields     []string // struct.field
	types      []string
	prototypes []string
}

func readOurs(t *testing.T) ours {
	t.Helper()
	data, err := os.ReadFile("include/cuda.h")
	if err != nil {
		t.Fatal(err)
	}
	o := ours{text: string(data)}
	for _, m := range regexp.MustCompile(`(?s)typedef enum \{(.*?)\} (\w+);`).FindAllStringSubmatch(o.text,
		-1) {
		o.types = append(o.types, m[2])
		for _, v := range regexp.MustCompile(`(\w+) = `).FindAllStringSubmatch(m[1], -1) {
			o.values = append(o.values, v[1])
		}
	}
	inner := regexp.MustCompile(`struct \{[^{}]*\} (\w+);`)
	for _, m := range regexp.MustCompile(
		`(?s)typedef struct \{((?:[^{}]|\{[^{}]*\})*)\} (\w+);`).FindAllStringSubmatch(o.text, -1) {
		o.types = append(o.types, m[2])
		for _, line := range strings.Split(inner.ReplaceAllString(m[1], "int $1;"), ";") {
			for _, d := range strings.Split(line, ",") {
				if f := regexp.MustCompile(`(\w+)(\[\d+\])?\s*$`).FindStringSubmatch(d); f != nil &&
					m[2] != "CUuuid" {
					o.fields = append(o.fields, m[2]+"."+f[1])
				}
			}
		}
	}
	for _, m := range regexp.MustCompile(`typedef [\w ]+[ *](CU\w+|cuuint32_t);`).FindAllStringSubmatch(
		o.text, -1) {
		o.types = append(o.types, m[1])
	}
	o.prototypes = regexp.MustCompile(`(?ms)^CUresult \w+\(.*?\);`).FindAllString(o.text, -1)
	if len(o.values) < 250 || len(o.fields) < 80 || len(o.types) < 40 || len(o.prototypes) < 170 {
		t.Fatalf("our header has %d values, %d fields, %d types and %d prototypes: it was misread",
			len(o.values), len(o.fields), len(o.types), len(o.prototypes))
	}
	return o
}

// TestTheHeaderAgreesWithARealOne prints every value, size and offset with our header and with a toolkit's,
// and lets a compiler compare every prototype with the toolkit's own.
func TestTheHeaderAgreesWithARealOne(t *testing.T) {
	cc, dir, o := compiler(t), realHeader(t), readOurs(t)
	real, err := os.ReadFile(filepath.Join(dir, "cuda.h"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, word := range regexp.MustCompile(`\w+`).FindAll(real, -1) {
		known[string(word)] = true
	}
	younger := 0
	has := func(name string) bool {
		if !known[name] {
			younger++
			t.Logf("the toolkit is older than %s", name)
		}
		return known[name]
	}
	var prog strings.Builder
	prog.WriteString("#include <cuda.h>\n#include <stdio.h>\n#include <stddef.h>\nint main(void) {\n")
	for _, v := range o.values {
		if has(v) {
			fmt.Fprintf(&prog, "printf(\"%s = %%lld\\n\", (long long)%s);\n", v, v)
		}
	}
	for _, f := range o.fields {
		s, field, _ := strings.Cut(f, ".")
		fmt.Fprintf(&prog,
			"printf(\"%s at %%zu, %%zu bytes\\n\", offsetof(%s, %s), sizeof(((%s *)0)->%s));\n", f, s, field,
			s, field)
	}
	for _, s := range o.types {
		fmt.Fprintf(&prog, "printf(\"%s has %%zu bytes\\n\", sizeof(%s));\n", s, s)
	}
	prog.WriteString("return 0; }\n")
	table := func(include string) []string {
		src, bin := filepath.Join(t.TempDir(), "table.c"), filepath.Join(t.TempDir(), "table")
		if err := os.WriteFile(src, []byte(prog.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(cc, "-I"+include, "-o", bin, src).CombinedOutput(); err != nil {
			t.Fatalf("with the header in %s: %v\n%s", include, err, out)
		}
		out, err := exec.Command(bin).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(out), "\n")
	}
	mine, theirs := table("include"), table(dir)
	for i := range mine {
		// A kernel node's parameters grew in 12.0; the function that we declare takes the older ones.
		if mine[i] != theirs[i] && !strings.HasPrefix(mine[i], "CUDA_KERNEL_NODE_PARAMS") {
			t.Errorf("ours: %s; the toolkit's: %s", mine[i], theirs[i])
		}
	}
	protos := "#include <cuda.h>\n"
	for _, p := range o.prototypes {
		if name := regexp.MustCompile(`CUresult (\w+)`).FindStringSubmatch(p)[1]; has(name) {
			protos += p + "\n"
		}
	}
	src := filepath.Join(t.TempDir(), "prototypes.c")
	if err := os.WriteFile(src, []byte(protos), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-I"+dir, "-fsyntax-only", "-Werror", src).CombinedOutput(); err != nil {
		t.Errorf("our prototypes are not the toolkit's: %v\n%s", err, out)
	}
	if younger > 12 {
		t.Errorf("%d names are unknown to the toolkit", younger)
	}
}

// TestTheTrampolinesAreThoseOfTheHeader fails if generate.go was not run.
func TestTheTrampolinesAreThoseOfTheHeader(t *testing.T) {
	o := readOurs(t)
	names, err := os.ReadFile("names.h")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile(`"(\w+)"`).FindAllSubmatch(names, -1) {
		listed = append(listed, string(m[1]))
	}
	var declared []string
	for _, p := range o.prototypes {
		if name := regexp.MustCompile(`CUresult (\w+)`).FindStringSubmatch(p)[1]; name != "cuInit" {
			declared = append(declared, name)
		}
	}
	if !slices.Equal(listed, declared) {
		t.Errorf("the header declares %d functions, but %d have trampolines: run go generate",
			len(declared), len(listed))
	}
	for _, arch := range []string{"amd64", "arm64"} {
		text, err := os.ReadFile("trampolines_" + arch + ".S")
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range declared {
			entry, offset := "\n"+name+":\n", fmt.Sprintf("libcuda_table+%d", 8*i)
			_, rest, found := strings.Cut(string(text), entry)
			if !found || !strings.Contains(strings.SplitN(rest, ".globl", 2)[0], offset) {
				t.Fatalf("%s: %s does not jump through entry %d", arch, name, i)
			}
		}
	}
}
