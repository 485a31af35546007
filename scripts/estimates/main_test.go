package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTheTableSaysWhatIsTooFarOff from estimates that are kept.
func TestTheTableSaysWhatIsTooFarOff(t *testing.T) {
	o := options{results: t.TempDir(), sources: "theirs"}
	for name, sizes := range map[string][4]int64{ // allocated and reserved: real, then model
		"mlp":   {1000, 2000, 1010, 1960},
		"vgg16": {1000, 2000, 989, 2000},
		"vit":   {1000, 2000, 1000, 2041},

		"imagenet, ResNet-50": {1000, 2000, 1000, 2000},
	} {
		for k, allocator := range []string{"real", "model"} {
			text := fmt.Sprintf(`{"results":[{"peak_allocated_bytes":%d,"reserved_bytes":%d}]}`, sizes[2*k],
				sizes[2*k+1])
			if err := os.WriteFile(o.path(name, allocator), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	var table strings.Builder
	if err := o.write(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| mlp | 1000 | 1010 | +1.00 % | 2000 | 1960 | -2.00 % | yes |\n",
		"| vgg16 | 1000 | 989 | -1.10 % | 2000 | 2000 | +0.00 % | no |\n",
		"| vit | 1000 | 1000 | +0.00 % | 2000 | 2041 | +2.05 % | no |\n",
		"| gpt2 | not measured |", "\n\n| script | allocated",
		"| imagenet, ResNet-50 | 1000 | 1000 | +0.00 % |", "| mnist | not measured |",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	if err := os.WriteFile(o.path("gpt2", "real"), []byte(`{"results":[]}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := o.write(&table); err == nil || !strings.Contains(err.Error(), "0 estimates") {
		t.Error(err)
	}
}
