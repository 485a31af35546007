package nvml

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// processes looks processes up in the system's process table; root is /proc except in tests.
type processes struct{ root string }

// name returns the program of pid: the first word of its command line, else the kernel's short name, else "".
func (p processes) name(pid int) string {
	dir := filepath.Join(p.root, strconv.Itoa(pid))
	if line, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil {
		if first, _, _ := bytes.Cut(line, []byte{0}); len(first) > 0 {
			return string(first)
		}
	}
	comm, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(comm))
}

// start returns the start time of pid, in clock ticks since boot.
func (p processes) start(pid int) maybe.Int {
	s, err := procs.ReadStat(filepath.Join(p.root, strconv.Itoa(pid)))
	if err != nil || s.Started < 0 {
		return maybe.Int{}
	}
	return maybe.Known(s.Started)
}
