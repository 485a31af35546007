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
		code int
		kind error
	}{
		{2, driver.ErrOutOfMemory}, {100, driver.ErrNoDevice}, {101, driver.ErrNoDevice},
		{46, driver.ErrBusy},
		{214, driver.ErrECC}, {222, driver.ErrTooOld}, {500, driver.ErrTooOld},
		{700, driver.ErrAccess}, {719, driver.ErrLost},
		{999, driver.ErrLost}, {201, driver.ErrLost}, {1, nil},
	} {
		err := fmt.Errorf("run: %w", driver.NewError("free memory", c.code, "CUDA_ERROR"))
		if c.kind != nil && !errors.Is(err, c.kind) || c.kind == nil && errors.Is(err, driver.ErrLost) {
			t.Errorf("%d: %v, not %v", c.code, err, c.kind)
		}
		if !strings.Contains(err.Error(), "free memory") || !strings.Contains(err.Error(), "CUDA_ERROR") {
			t.Errorf("error %d does not name the call and the driver's answer: %v", c.code, err)
		}
	}
}
