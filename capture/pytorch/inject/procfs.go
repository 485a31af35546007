package inject

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// mapping is one line of /proc/PID/maps: [start, end) of a file from offset on.
type mapping struct {
	start, end, offset uint64
	perms              string
	dev                string
	inode              uint64
	path               string // "" for anonymous memory; " (deleted)" is cut off
}

func (m mapping) executable() bool { return len(m.perms) > 2 && m.perms[2] == 'x' }

// maxMappings bounds what is read of a maps file; the kernel's own default limit is 65530.
const maxMappings = 1 << 20

// parseMaps reads /proc/PID/maps.
func parseMaps(r io.Reader) ([]mapping, error) {
	var all []mapping
	br := bufio.NewReaderSize(r, 1<<16) // a path has at most 4096 bytes, each escaped to four
	for {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("maps line %d is longer than %d bytes", len(all)+1, br.Size())
		}
		if len(bytes.TrimSpace(line)) > 0 {
			m, perr := parseMapping(strings.TrimRight(string(line), "\n"))
			if perr != nil {
				return nil, fmt.Errorf("maps line %d: %w", len(all)+1, perr)
			}
			if len(all) == maxMappings {
				return nil, fmt.Errorf("more than %d mappings", maxMappings)
			}
			all = append(all, m)
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func parseMapping(line string) (mapping, error) {
	var m mapping
	rest := line
	next := func() string {
		rest = strings.TrimLeft(rest, " ")
		var f string
		f, rest, _ = strings.Cut(rest, " ")
		return f
	}
	from, to, ok := strings.Cut(next(), "-")
	if !ok {
		return m, errors.New("no address range")
	}
	var err [4]error
	m.start, err[0] = strconv.ParseUint(from, 16, 64)
	m.end, err[1] = strconv.ParseUint(to, 16, 64)
	m.perms = next()
	m.offset, err[2] = strconv.ParseUint(next(), 16, 64)
	m.dev = next()
	m.inode, err[3] = strconv.ParseUint(next(), 10, 64)
	if e := errors.Join(err[:]...); e != nil {
		return m, e
	}
	if m.end < m.start {
		return m, errors.New("address range ends before it starts")
	}
	m.path = strings.TrimSuffix(strings.TrimLeft(rest, " "), " (deleted)")
	return m, nil
}

// status is what Check reads of /proc/PID/status.
type status struct {
	name           string
	tgid, ppid     int
	tracer         int
	uid            [4]int // real, effective, saved, file system
	gid            [4]int
	seccomp        int
	capEff         uint64
	threads        int
	vmSize         bool // has memory of its own: not a kernel thread
	shadowStack    bool
	sigBlk, sigIgn uint64
}

func parseStatus(text string) status {
	var s status
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		number := func() int { n, _ := strconv.Atoi(value); return n }
		ids := func(to *[4]int) {
			for i, f := range strings.Fields(value) {
				if i < len(to) {
					to[i], _ = strconv.Atoi(f)
				}
			}
		}
		switch key {
		case "Name":
			s.name = value
		case "Tgid":
			s.tgid = number()
		case "PPid":
			s.ppid = number()
		case "TracerPid":
			s.tracer = number()
		case "Uid":
			ids(&s.uid)
		case "Gid":
			ids(&s.gid)
		case "Seccomp":
			s.seccomp = number()
		case "Threads":
			s.threads = number()
		case "VmSize":
			s.vmSize = true
		case "CapEff":
			s.capEff, _ = strconv.ParseUint(value, 16, 64)
		case "SigBlk":
			s.sigBlk, _ = strconv.ParseUint(value, 16, 64)
		case "SigIgn":
			s.sigIgn, _ = strconv.ParseUint(value, 16, 64)
		case "x86_Thread_features":
			s.shadowStack = strings.Contains(value, "shstk")
		}
	}
	return s
}
