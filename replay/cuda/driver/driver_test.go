package driver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

func TestAnswersOfTheDriverAreSentences(t *testing.T) {
	for _, c := range []struct {
		code  int
		kind  error
		fatal bool
	}{
		{2, driver.ErrOutOfMemory, false}, {100, driver.ErrNoDevice, false}, {101, driver.ErrNoDevice, false},
		{46, driver.ErrBusy, false},
		{214, driver.ErrECC, true}, {222, driver.ErrTooOld, false}, {500, driver.ErrTooOld, false},
		{700, driver.ErrAccess, true}, {719, driver.ErrLost, true},
		{999, driver.ErrLost, true}, {201, driver.ErrLost, true}, {1, nil, false},
	} {
		err := fmt.Errorf("run: %w", driver.NewError("free memory", c.code, "CUDA_ERROR"))
		if c.kind != nil && !errors.Is(err, c.kind) || driver.Fatal(err) != c.fatal {
			t.Errorf("%d: %v, fatal %t", c.code, err, driver.Fatal(err))
		}
		if !strings.Contains(err.Error(), "free memory") || !strings.Contains(err.Error(), "CUDA_ERROR") {
			t.Errorf("error %d does not name the call and the driver's answer: %v", c.code, err)
		}
	}
}
