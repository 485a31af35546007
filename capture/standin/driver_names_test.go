package standin_test

import (
	"debug/elf"
	"os"
	"regexp"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// TestQuickTheDriverHasAllThatGmemtopCalls: what package libcuda names is in the stand-in, as a function or
// as a stub that fails loudly.
func TestQuickTheDriverHasAllThatGmemtopCalls(t *testing.T) {
	text, err := os.ReadFile("../../replay/cuda/driver/libcuda/names.h")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`"(cu\w+)"`).FindAllSubmatch(text, -1)
	if len(names) < 150 {
		t.Fatalf("names.h has %d names: it was not read right", len(names))
	}
	f, err := elf.Open(standintest.Driver(t).Path())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, s := range symbols {
		have[s.Name] = s.Section != elf.SHN_UNDEF
	}
	for _, n := range names {
		if !have[string(n[1])] {
			t.Errorf("%s is not in the stand-in: add it to driverFunctions", n[1])
		}
	}
}
