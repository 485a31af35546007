package usdt

import (
	"encoding/hex"
	"strings"
	"testing"
)

func TestTheProbeIsOnTheFirstInstructionThatTheKernelEmulates(t *testing.T) {
	for _, c := range []struct {
		name, code string
		offset     int
		emulated   bool
	}{
		{"libcuda's beginning", "81 3d 86 7f 2d 04 00 ba 1c 32 74 3e 41 57", 10, true},
		{"with endbr64", "f3 0f 1e fa 81 3d 86 7f 2d 04 00 ba 1c 32 74 3e", 14, true},
		{"a far jump", "83 3d 00 00 00 00 01 0f 84 00 01 00 00", 7, true},
		{"push", "55 48 89 e5", 0, true},
		{"push of a new register", "41 57 41 56", 0, true},
		{"endbr64 and push", "f3 0f 1e fa 55 48 89 e5", 4, true},
		{"nop", "90 c3", 0, true},
		{"a jump elsewhere", "e9 00 00 00 00", 0, true},
		{"flag in a register", "8b 05 00 00 00 00 85 c0 75 10", 8, true},
		{"an argument changes first", "48 89 fb 74 10", 0, false},
		{"the stack moves first", "48 83 ec 18 74 10", 0, false},
		{"an instruction of another form", "81 3c 24 00 ba 1c 32 74 3e", 0, false},
		{"one that is in no list", "c5 f8 77 74 10", 0, false},
		{"cut in the comparison", "81 3d 86 7f", 0, false},
		{"cut before the jump", "81 3d 86 7f 2d 04 00 ba 1c 32", 0, false},
		{"a jump cut in half", "81 3d 86 7f 2d 04 00 ba 1c 32 74", 0, false},
		{"nothing", "", 0, false},
		{"harmless without end", strings.Repeat("31 c0 ", 100), 0, false},
	} {
		code, err := hex.DecodeString(strings.ReplaceAll(c.code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if offset, emulated := cheapOffset(code); offset != c.offset || emulated != c.emulated {
			t.Errorf("%s: offset %d, emulated %v, want %d, %v", c.name, offset, emulated, c.offset,
				c.emulated)
		}
	}
}

func TestEachFunctionOfTheDriverHasArgumentsThatCanBeRead(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range driverFunctions {
		for _, text := range []string{f.addr, f.size, f.pitch, f.stream, f.device} {
			if list, err := parseOperands(text); err != nil || len(list) > 1 {
				t.Errorf("%s %q: %v, %v", f.name, text, list, err)
			}
		}
		if f.addr == "" || seen[f.name] {
			t.Errorf("%s has no address or stands twice", f.name)
		}
		seen[f.name] = true
	}
}
