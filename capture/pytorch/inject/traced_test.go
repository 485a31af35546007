package inject

import (
	"os"
	"path/filepath"
	"testing"
)

func TestATracerIsADebuggerOrAnotherGmemtop(t *testing.T) {
	proc := t.TempDir()
	for of, comm := range map[string]string{
		"self": "gmt", "10": "gdb", "11": "gmemtop", "12": "gmt", "13": "g\x1b[2Jx",
	} {
		dir := filepath.Join(proc, of)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "comm"), []byte(comm+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const detach = ": detach that debugger, or end it"
	for tracer, want := range map[int]string{
		10: "process 7: it is being traced already, by process 10 (gdb)" + detach,
		11: "process 7: another gmemtop (process 11) is attaching to it: try again",
		12: "process 7: another gmemtop (process 12) is attaching to it: try again",
		13: "process 7: it is being traced already, by process 13 (" + printable("g\x1b[2Jx") + ")" + detach,
		14: "process 7: it is being traced already, by process 14 (another process)" + detach,
	} {
		e := traced(proc, 7, tracer)
		if e.Error() != want || e.Attaching != (tracer == 11 || tracer == 12) {
			t.Errorf("%d: %q, attaching %t; want %q", tracer, e, e.Attaching, want)
		}
	}
}
