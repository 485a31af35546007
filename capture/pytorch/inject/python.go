package inject

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
)

// module is a file that is mapped as an object: all its mappings between base and end.
type module struct {
	path      string
	dev       string
	inode     uint64
	base, end uint64
	text      []mapping // the executable ones
}

// modules groups mappings by file. A file that is merely mapped to be read has no executable part and is left
// out.
func modules(all []mapping) []module {
	var list []module
	for _, m := range all {
		if m.inode == 0 {
			continue
		}
		last := len(list) - 1
		same := last >= 0 && list[last].dev == m.dev && list[last].inode == m.inode
		if m.offset == 0 && !(same && len(list[last].text) > 0 && list[last].end == m.start) {
			list = append(list, module{path: m.path, dev: m.dev, inode: m.inode, base: m.start})
			last++
		} else if !same {
			continue
		}
		list[last].end = m.end
		if m.executable() {
			list[last].text = append(list[last].text, m)
		}
	}
	kept := list[:0]
	for _, m := range list {
		if len(m.text) > 0 {
			kept = append(kept, m)
		}
	}
	return kept
}

func (m module) name() string { return path.Base(m.path) }

func (m module) contains(addr uint64) bool {
	for _, t := range m.text {
		if addr >= t.start && addr < t.end {
			return true
		}
	}
	return false
}

// python is an interpreter found in a process, with what is needed to reach it.
type python struct {
	module       module
	minor        int    // of 3.minor; -1 unknown
	version      string // as exactly as known
	freeThreaded bool
	runtime      uint64 // address of _PyRuntime; 0 unknown
	runtimeSize  uint64

	addPending, simpleString, isInitialized uint64 // functions; 0 if not exported
	semPost                                 uint64
}

// exported says whether everything that the pending-call way needs can be found.
func (p python) exported() bool {
	return p.addPending != 0 && p.simpleString != 0 && p.isInitialized != 0
}

var errNoPython = errors.New("no Python interpreter among its mapped files")

// findPython looks for the interpreter: in the executable, then in a shared libpython, then in whatever else
// exports it (an application that embeds one).
func findPython(mem io.ReaderAt, mods []module, exe string) (python, error) {
	order := make([]module, 0, len(mods))
	for pass := range 3 {
		for _, m := range mods {
			rank := 2
			if m.path == exe {
				rank = 0
			} else if strings.HasPrefix(m.name(), "libpython") {
				rank = 1
			}
			if rank == pass {
				order = append(order, m)
			}
		}
	}
	var named *module
	for _, m := range order {
		if minorOfName.MatchString(m.name()) && named == nil {
			named = &m
		}
		im, err := openImage(mem, m.base, m.end)
		if err != nil {
			continue
		}
		p, err := inspect(mem, im, m)
		if err == nil {
			p.semPost = libc(mem, mods, "sem_post")
			return p, nil
		}
	}
	if named != nil {
		p := python{module: *named, minor: -1}
		p.nameVersion()
		return p, nil
	}
	return python{}, errNoPython
}

// inspect fills in what module m shows about an interpreter; errNoPython if it has none.
func inspect(mem io.ReaderAt, im *image, m module) (python, error) {
	p := python{module: m, minor: -1}
	function := func(name string) uint64 {
		a, err := im.lookup(name)
		if err != nil || !m.contains(a) {
			return 0
		}
		return a
	}
	p.addPending = function("Py_AddPendingCall")
	p.simpleString = function("PyRun_SimpleString")
	p.isInitialized = function("Py_IsInitialized")
	p.runtime, _ = im.lookup("_PyRuntime")
	if p.addPending == 0 && p.runtime == 0 {
		return p, errNoPython
	}
	// The version by what is exported: since 3.11 as a number, before that by functions that a minor version
	// added.
	if a, err := im.lookup("Py_Version"); err == nil && a != 0 {
		if b, err := readBytes(mem, a, 8); err == nil {
			p.setHex(binary.LittleEndian.Uint64(b))
		}
	} else {
		for _, v := range []struct {
			minor int
			added string
		}{{10, "Py_IsNone"}, {9, "PyFrame_GetCode"}, {8, "PyCode_NewWithPosOnlyArgs"}} {
			if function(v.added) != 0 {
				p.minor, p.version = v.minor, fmt.Sprintf("3.%d", v.minor)
				break
			}
		}
	}
	p.nameVersion()
	p.readOffsets(mem)
	return p, nil
}

var minorOfName = regexp.MustCompile(`^(?:lib)?python(\d)(?:\.(\d+))?(t?)`)

// nameVersion takes the version, if nothing better is known, and whether it is a free-threaded build from the
// file's name.
func (p *python) nameVersion() {
	m := minorOfName.FindStringSubmatch(p.module.name())
	if m == nil {
		return
	}
	if m[3] == "t" {
		p.freeThreaded = true
	}
	if p.minor >= 0 {
		return
	}
	p.version = m[1]
	if m[2] != "" {
		p.version += "." + m[2]
	}
	if m[1] == "3" && m[2] != "" && len(m[2]) < 4 {
		fmt.Sscan(m[2], &p.minor)
	}
}

// setHex takes a PY_VERSION_HEX.
func (p *python) setHex(hex uint64) {
	if hex>>24 != 3 {
		return
	}
	p.minor = int(hex >> 16 & 0xff)
	p.version = fmt.Sprintf("3.%d.%d", p.minor, hex>>8&0xff)
	switch level := hex >> 4 & 15; level {
	case 10, 11, 12:
		p.version += fmt.Sprintf("%s%d", [...]string{"a", "b", "rc"}[level-10], hex&15)
	}
}

// debugCookie is what _Py_DebugOffsets begins with.
const debugCookie = "xdebugpy"

// readOffsets reads the beginning of _PyRuntime, which from 3.13 on describes the interpreter for debuggers.
func (p *python) readOffsets(mem io.ReaderAt) {
	if p.runtime == 0 {
		return
	}
	b, err := readBytes(mem, p.runtime, 32)
	if err != nil || string(b[:8]) != debugCookie {
		return
	}
	le := binary.LittleEndian
	p.setHex(le.Uint64(b[8:]))
	p.freeThreaded = p.freeThreaded || le.Uint64(b[16:]) != 0
	if size := le.Uint64(b[24:]); size < 16<<20 {
		p.runtimeSize = size
	}
}

// libc returns the address of a function of the C library.
func libc(mem io.ReaderAt, mods []module, function string) uint64 {
	for _, m := range mods {
		n := m.name()
		if !strings.HasPrefix(n, "libc.so") && !strings.HasPrefix(n, "libc-") &&
			!strings.HasPrefix(n, "libpthread") &&
			!strings.HasPrefix(n, "ld-musl") && !strings.HasPrefix(n, "libc.musl") {
			continue
		}
		im, err := openImage(mem, m.base, m.end)
		if err != nil {
			continue
		}
		if a, err := im.lookup(function); err == nil && m.contains(a) {
			return a
		}
	}
	return 0
}

// The queue of pending calls of the main thread, as CPython 3.13 and 3.14 lay it out within _PyRuntime.
const (
	queueMutex   = 8  // one byte, 0 while free
	queuePending = 12 // int32
	queueMax     = 16 // int32, 32 for the main thread's queue
	queueLoop    = 20 // int32, 0 for the main thread's queue
	queueFirst   = 24 + 300*24
	queueSize    = queueFirst + 8
)

// findQueue returns the address of the main thread's queue of pending calls in _PyRuntime, or 0 if its shape
// is not found there exactly once. Only its lock is of interest, and only to read it.
func (p python) findQueue(mem io.ReaderAt) uint64 {
	if p.minor < 13 || p.runtime == 0 || p.runtimeSize < queueSize {
		return 0
	}
	b, err := readBytes(mem, p.runtime, int(p.runtimeSize))
	if err != nil {
		return 0
	}
	le := binary.LittleEndian
	found := uint64(0)
	for at := 0; at+queueSize <= len(b); at += 8 {
		q := b[at:]
		if le.Uint32(q[queueMax:]) != 32 || le.Uint32(q[queueLoop:]) != 0 || q[queueMutex] > 3 {
			continue
		}
		n, first, next := le.Uint32(q[queuePending:]), le.Uint32(q[queueFirst:]), le.Uint32(q[queueFirst+4:])
		if n > 32 || first >= 300 || next >= 300 || (first+n)%300 != next {
			continue
		}
		if found != 0 {
			return 0
		}
		found = p.runtime + uint64(at)
	}
	return found
}

// returned is the address of the variable that a function without arguments returns, if it does nothing else,
// on amd64; 0 if it does more. We can read the variable without the process's help.
func returned(mem io.ReaderAt, function uint64) uint64 {
	const longest = 4 + 7 + 6 + 1
	b, err := readBytes(mem, function, longest)
	if err != nil {
		return 0
	}
	code := bytes.TrimPrefix(b, []byte{0xf3, 0x0f, 0x1e, 0xfa}) // endbr64
	next := function + uint64(longest-len(code))
	at := func(i int) uint64 { return uint64(int64(int32(binary.LittleEndian.Uint32(code[i:])))) }
	const ret = 0xc3
	switch {
	case bytes.HasPrefix(code, []byte{0x8b, 0x05}) && code[6] == ret: // mov eax, [rip + ...]
		return next + 6 + at(2)
	case bytes.HasPrefix(code, []byte{0x48, 0x8b, 0x05}):
		// mov rax, [rip + ...], and then mov eax, [rax + ...]
		base, err := readBytes(mem, next+7+at(3), 8)
		if err != nil {
			return 0
		}
		variable := binary.LittleEndian.Uint64(base)
		switch code = code[7:]; {
		case code[0] == 0x8b && code[1] == 0x40 && code[3] == ret:
			return variable + uint64(int64(int8(code[2])))
		case code[0] == 0x8b && code[1] == 0x80 && code[6] == ret:
			return variable + at(2)
		}
	}
	return 0
}
