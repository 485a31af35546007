package tui

import (
	"testing"

	"github.com/gmemtop/gmemtop/tui/leaf"
)

// The sentences call some blocks the logits, a word that is in none of their stacks. Searching for it finds
// the blocks that the Overview counts.
func TestTheLogitsAreFoundByTheirName(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(sample(t, "gpt-cpu")), View: leaf.Overview}, 120, 40)
	d.wants("logits, 500 MiB in 4 blocks")
	d.press("/")
	d.typeText("logits live")
	d.press("enter", "6")
	d.wants("4 of 5,168 allocations match logits, alive at the peak: 500 MiB in all")
}
