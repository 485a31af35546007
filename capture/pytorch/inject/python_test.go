package inject

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
)

// TestTheVariableThatAFunctionReturnsIsFound uses functions of Pythons as built for an executable, for a
// library, and with a landing pad.
func TestTheVariableThatAFunctionReturnsIsFound(t *testing.T) {
	const function, table = 0x1000, 0x2000
	for _, c := range []struct {
		name, code string
		want       uint64
	}{
		{"an executable's", "8b 05 f0 01 00 00 c3", 0x1000 + 6 + 0x1f0},
		{"one before it", "8b 05 f0 ff ff ff c3", 0x1000 + 6 - 0x10},
		{"with a landing pad", "f3 0f 1e fa 8b 05 f0 01 00 00 c3", 0x1000 + 10 + 0x1f0},
		{"a library's", "48 8b 05 f9 0f 00 00 8b 40 10 c3", 0x5000 + 0x10},
		{"a library's, far in", "48 8b 05 f9 0f 00 00 8b 80 58 02 00 00 c3", 0x5000 + 0x258},
		{"a library's with a landing pad", "f3 0f 1e fa 48 8b 05 f5 0f 00 00 8b 80 58 02 00 00 c3",
			0x5000 + 0x258},
		{"one that does more", "8b 05 f0 01 00 00 ff c0 c3", 0},
		{"a library's that does more", "48 8b 05 f9 0f 00 00 8b 40 10 ff c0 c3", 0},
		{"one that calls", "e8 00 00 00 00 c3", 0},
		{"nothing that can be read", "", 0},
	} {
		code, err := hex.DecodeString(strings.ReplaceAll(c.code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		at := uint64(function)
		if c.code == "" {
			at = 1 << 40
		}
		memory := make([]byte, 0x3000)
		copy(memory[function:], code)
		binary.LittleEndian.PutUint64(memory[table:], 0x5000)
		if got := returned(bytes.NewReader(memory), at); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}

// TestTheFlagOfEveryPythonIsReadOrAskedFor: whichever it is, the source runs.
func TestTheFlagOfEveryPythonIsReadOrAskedFor(t *testing.T) {
	each(t, func(t *testing.T, p interpreter) {
		run := start(t, p.command("compute"))
		tg, f := examine(host(), run.pid)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		mem := host().memory(run.pid)
		at := returned(mem, tg.python.isInitialized)
		if at != 0 {
			if b, err := readBytes(mem, at, 4); err != nil || binary.LittleEndian.Uint32(b) != 1 {
				t.Errorf("the flag at %#x is %x, %v", at, b, err)
			}
		}
		t.Logf("flag at %#x", at)
		run.finish(Ptrace)
	})
}
