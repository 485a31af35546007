package build

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestTheVersionOfAReleaseComesBeforeGosStamp(t *testing.T) {
	stamped := This().Version
	version = "v1.2.3"
	defer func() { version = "" }()
	if b := This(); b.Version != "v1.2.3" || !strings.HasPrefix(b.String(), "gmemtop v1.2.3, go") {
		t.Errorf("the version is %q, printed as %q", b.Version, b)
	}
	if stamped == "" || stamped == "v1.2.3" {
		t.Errorf("without a release it is %q", stamped)
	}
}

// TestTheMakefileSetsTheVersion checks the name that the Makefile gives the linker: the linker silently
// accepts a name that does not exist.
func TestTheMakefileSetsTheVersion(t *testing.T) {
	makefile, err := os.ReadFile("../../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	name := " -X " + reflect.TypeFor[Build]().PkgPath() + ".version="
	if !strings.Contains(string(makefile), name) {
		t.Errorf("the Makefile has no %q", name)
	}
}
