package aside

import (
	"errors"
	"strings"
	"testing"
)

// Silence would mean that nothing was written.
func TestANoteSaysWhereTheKernelCannotWatch(t *testing.T) {
	g := Guard{off: errors.New("no filters here")}
	if notes := g.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "cannot watch what libraries and "+
		"programs do (no filters here)") {
		t.Errorf("notes: %q", notes)
	}
}
