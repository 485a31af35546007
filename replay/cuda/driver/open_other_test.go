//go:build !(cuda && linux && cgo)

package driver_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

func TestAPlainBuildSaysWhatToDo(t *testing.T) {
	if _, err := driver.Open(""); !errors.Is(err, driver.ErrNotBuilt) ||
		!strings.Contains(err.Error(), "make") {
		t.Errorf("%v", err)
	}
}
