//go:build standin

package standin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// CUB chooses its tuning by the version of the binary that a card runs and refuses a version that PyTorch was
// not compiled for. A card of capability 8.9 runs binaries for 8.6.
func TestQuickSortsRunOnCardsWithoutABinaryOfTheirOwn(t *testing.T) {
	out := standintest.Python(t, standin.Machine{Model: "rtx4090"}, `
import torch
x = torch.zeros(4, device="cuda")
x.index_put_((torch.tensor([3, 1, 3], device="cuda"),), torch.ones(3, device="cuda"), accumulate=True)
print(torch.cuda.get_device_capability(), x.shape)
`)
	if want := "(8, 9) torch.Size([4])"; strings.TrimSpace(out) != want {
		t.Errorf("got %s, want %s", out, want)
	}
}

// Go and the library list the same cards: torch sees the figures in Go's list.
func TestGoAndTheLibraryListTheSameCards(t *testing.T) {
	for _, c := range standin.Cards() {
		out := standintest.Python(t, standin.Machine{Model: c.Model}, `
import torch
p = torch.cuda.get_device_properties(0)
print(p.name, p.total_memory, p.major, p.minor, p.multi_processor_count)
`)
		want := fmt.Sprint(c.Name, " ", c.Memory, c.Capability[0], c.Capability[1], c.Processors)
		if strings.TrimSpace(out) != want {
			t.Errorf("%s: torch sees %s, the list says %s", c.Model, strings.TrimSpace(out), want)
		}
	}
	if n := len(standin.Cards()); n != 17 {
		t.Errorf("%d cards are listed, want 17", n)
	}
}
