package inject

import "io"

// system is what Check asks the machine; tests replace it.
type system struct {
	proc   string                           // mount point of procfs
	access func(pid int, addr uint64) error // may this process trace that one?
	memory func(pid int) io.ReaderAt
	alive  func(pid int) error // nil, ErrPermission or another error
	gdb    func() error        // nil if there is a gdb
	arch   string
}

// target is what the mechanisms need to know about a process.
type target struct {
	pid      int
	started  uint64
	status   status
	mappings []mapping
	modules  []module
	python   python
	proc     string // its directory in procfs
}

const startUnder = "start the program under gmemtop: gmemtop run -- COMMAND"
