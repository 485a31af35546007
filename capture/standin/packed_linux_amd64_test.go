package standin

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A program that contains the stand-in needs no compiler, writes the library once, and writes it again if the
// file in the cache is damaged.
func TestTheStandInThatAProgramCarriesNeedsNoCompiler(t *testing.T) {
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("needs g++")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	ctx := context.Background()
	data, glibc, err := Pack(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !AtLeast(glibc, "2.2") {
		t.Errorf("it needs glibc %q", glibc)
	}
	want, err := unpacked(data)
	if err != nil {
		t.Fatal(err)
	}
	environ := os.Environ()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	if _, err := Build(ctx, ""); !errors.Is(err, ErrNoCompiler) {
		t.Errorf("without g++ and without the library: %v", err)
	}
	before := packed
	packed = data
	t.Cleanup(func() { packed = before })
	lib, err := Build(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	same := func() bool {
		got, err := os.ReadFile(lib.Path())
		return err == nil && bytes.Equal(got, want)
	}
	first, err := os.Stat(lib.Path())
	if err != nil || !same() {
		t.Fatalf("the library is not the packed one: %v", err)
	}
	if _, err := Build(ctx, ""); err != nil {
		t.Fatal(err)
	}
	if again, err := os.Stat(lib.Path()); err != nil || !os.SameFile(first, again) {
		t.Errorf("the library was written twice: %v", err)
	}
	if err := os.WriteFile(lib.Path(), want[:1000], 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Build(ctx, ""); err != nil || !same() {
		t.Errorf("a damaged library was kept: %v", err)
	}
	// cuInit is the stand-in's own, standin_cuda_version the stubs'.
	cmd := exec.Command(python, "-c", "import ctypes; c = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int(); "+
		"assert c.cuInit(0) == 0; assert c.cuDeviceGetCount(ctypes.byref(n)) == 0; "+
		"print(n.value, c.standin_cuda_version())")
	cmd.Env = lib.EnvironOf(environ, Machine{Devices: 3, Board: "private"})
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "3 12040" {
		t.Errorf("three devices of CUDA 12.4: %s (%v)", out, err)
	}
	packed = data[:len(data)/2]
	if _, err := Build(ctx, ""); err == nil {
		t.Error("half a library was unpacked")
	}
}

// debug/elf and the dynamic linker, neither of them ours, read the library of stubs.
func TestTheLibraryOfStubsHasEachNameAndItsAnswer(t *testing.T) {
	stubs := []stub{{"cudaOne", 801}, {"ncclTwo", 5}, {"cublasThree", -15},
		{strings.Repeat("cuLong", 500), 7}}
	data, err := stubLibrary(13020, stubs)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stubs {
		if !slices.ContainsFunc(symbols, func(e elf.Symbol) bool {
			return e.Name == s.name && e.Section != elf.SHN_UNDEF
		}) {
			t.Errorf("no %.20s", s.name)
		}
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, stubsName)
	missing := filepath.Join(dir, "libmissing.so")
	source := "#include <stdio.h>\n" +
		"void standin_missing(const char *f) { printf(\"%.8s \", f); fflush(stdout); }\n"
	cc := exec.Command("gcc", "-shared", "-fPIC", "-x", "c", "-o", missing, "-")
	cc.Stdin = strings.NewReader(source)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, "-c", "import ctypes, sys; "+
		"ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL); "+
		"c = ctypes.CDLL(sys.argv[2])\nfor n in sys.argv[3:]: print(getattr(c, n)(), flush=True)",
		missing, path,
		"standin_cuda_version", "cudaOne", "ncclTwo", "cublasThree", stubs[3].name).CombinedOutput()
	want := "13020\ncudaOne 801\nncclTwo 5\ncublasTh -15\ncuLongcu 7\n"
	if err != nil || string(out) != want {
		t.Errorf("%q (%v), want %q", out, err, want)
	}
}

func TestVersionsAreComparedAsNumbers(t *testing.T) {
	for _, c := range []struct {
		have, want string
		is         bool
	}{{"2.36", "2.36", true}, {"2.36", "2.4", true}, {"2.4", "2.36", false}, {"", "2.2", false},
		{"3", "2.36", true}, {"2", "2.1", false}, {"2.2.5", "2.2", true}} {
		if AtLeast(c.have, c.want) != c.is {
			t.Errorf("%q at least %q: %v", c.have, c.want, !c.is)
		}
	}
}
