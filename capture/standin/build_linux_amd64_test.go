//go:build !packed

package standin_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
)

// TestCompilingIsToldOnce, and not where what was compiled is still there. The compiler is one that does
// nothing, so that no library comes of it.
func TestCompilingIsToldOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("GMEMTOP_CXX", "true")
	told := 0
	for range 2 {
		if _, err := standin.BuildTelling(t.Context(), "", func() { told++ }); err == nil {
			t.Fatal("a stand-in was made without a compiler")
		}
		if told != 1 {
			t.Fatalf("it was told %d times that something is compiled, want once", told)
		}
	}
}
