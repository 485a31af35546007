package main

import (
	"io"
	"testing"
)

func TestOnstandinAsksForAProgram(t *testing.T) {
	for _, args := range [][]string{nil, {"python"}, {"-devices", "many", "python", "script.py"},
		{"-python", "python"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q: ran", args)
		}
	}
}
