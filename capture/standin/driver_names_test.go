package standin_test

import (
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// TestQuickTheDriverHasAllThatGmemtopCalls: everything that package libcuda names is in the stand-in, as a
// function or as a stub that fails loudly.
func TestQuickTheDriverHasAllThatGmemtopCalls(t *testing.T) {
	text, err := os.ReadFile("../../replay/cuda/driver/libcuda/names.h")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`"(cu\w+)"`).FindAllSubmatch(text, -1)
	if len(names) < 150 {
		t.Fatalf("names.h has %d names: it was not read right", len(names))
	}
	path := standintest.Driver(t).Path()
	have := map[string]bool{}
	for _, path := range []string{path, filepath.Join(filepath.Dir(path), "libstandin-stubs.so")} {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		symbols, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range symbols {
			have[s.Name] = have[s.Name] || s.Section != elf.SHN_UNDEF
		}
	}
	for _, n := range names {
		if !have[string(n[1])] {
			t.Errorf("%s is not in the stand-in: add it to driverFunctions", n[1])
		}
	}
}
