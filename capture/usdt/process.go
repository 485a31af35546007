package usdt

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/capture/procs"
)

// library is a file that a process has mapped.
type library struct {
	// path opens the file from here, whichever file system the process sees; mapped is the path that the
	// process sees.
	path, mapped string
}

// mapping is one executable range of a process's memory.
type mapping struct {
	start, end, offset uint64
	path               string
}

// readMaps returns the executable mappings of files of a process.
func readMaps(root string, pid int) ([]mapping, error) {
	f, err := os.Open(filepath.Join(root, strconv.Itoa(pid), "maps"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %d; gmemtop attach without a number lists those that run PyTorch",
			ErrNoProcess, pid)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: what process %d has loaded may only be read by its own user or with "+
			"CAP_SYS_PTRACE; %s", ErrPermission, pid, grant)
	case err != nil:
		return nil, fmt.Errorf("read what process %d has loaded: %w", pid, err)
	}
	defer f.Close()
	var list []mapping
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// 7f1c00000000-7f1c00021000 r-xp 00001000 08:01 1234   /path that may hold spaces
		fields := strings.SplitN(lines.Text(), " ", 6)
		if len(fields) < 6 || !strings.Contains(fields[1], "x") {
			continue
		}
		m := mapping{path: strings.TrimLeft(fields[5], " ")}
		if n, _ := fmt.Sscanf(fields[0]+" "+fields[2], "%x-%x %x", &m.start, &m.end, &m.offset); n == 3 &&
			strings.HasPrefix(m.path, "/") {
			list = append(list, m)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %d ended while it was looked at (%w)", ErrNoProcess, pid, err)
	}
	return list, nil
}

const deleted = " (deleted)"

// findLibrary returns the first library whose file name matches.
func findLibrary(root string, pid int, maps []mapping, match func(name string) bool) (library, bool) {
	for _, m := range maps {
		seen, gone := strings.CutSuffix(m.path, deleted)
		if !match(filepath.Base(seen)) {
			continue
		}
		dir := filepath.Join(root, strconv.Itoa(pid))
		lib := library{mapped: seen, path: filepath.Join(dir, "root", seen)}
		// replaced while it runs, or not reachable by its name
		if _, err := os.Stat(lib.path); gone || err != nil {
			lib.path = filepath.Join(dir, "map_files", fmt.Sprintf("%x-%x", m.start, m.end))
		}
		return lib, true
	}
	return library{}, false
}

func isPyTorch(name string) bool {
	return strings.HasPrefix(name, "libc10_cuda") && strings.Contains(name, ".so")
}

func isDriver(name string) bool {
	return name == "libcuda.so" || strings.HasPrefix(name, "libcuda.so.")
}

// starting reports whether a process that has nothing mapped is about to run a program: during an exec,
// neither the old nor the new memory is visible. A process that has ended says so in its state, and kernel
// threads have no executable file.
func starting(root string, pid int) bool {
	dir := filepath.Join(root, strconv.Itoa(pid))
	if s, err := procs.ReadStat(dir); err != nil || s.Ended() {
		return false
	}
	_, err := os.Readlink(filepath.Join(dir, "exe"))
	return err == nil
}
