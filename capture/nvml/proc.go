package nvml

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// processes looks processes up in the system's process table; root is /proc but in tests.
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

// start returns the start time of pid: field 22 of its stat line. The second field is the name in
// parentheses, which may itself hold spaces and parentheses, so counting begins at the last one.
func (p processes) start(pid int) Figure {
	line, err := os.ReadFile(filepath.Join(p.root, strconv.Itoa(pid), "stat"))
	if err != nil {
		return Figure{}
	}
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return Figure{}
	}
	fields := bytes.Fields(line[end+1:])
	const startTime = 22 - 3 // the field after the name is the third
	if len(fields) <= startTime {
		return Figure{}
	}
	v, err := strconv.ParseInt(string(fields[startTime]), 10, 64)
	if err != nil || v < 0 {
		return Figure{}
	}
	return Known(v)
}
