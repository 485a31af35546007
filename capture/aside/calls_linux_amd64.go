package aside

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_X86_64

// olderCalls are those that newer architectures have only in the forms that name a folder.
var olderCalls = map[int]call{
	unix.SYS_OPEN:      {kind: opens, path: 0, flags: 1},
	unix.SYS_CREAT:     {kind: creates, path: 0},
	unix.SYS_UNLINK:    {kind: removes, path: 0},
	unix.SYS_RMDIR:     {kind: removes, path: 0},
	unix.SYS_RENAME:    {kind: renames, path: 0, to: 1},
	unix.SYS_MKDIR:     {kind: makesFolder, path: 0},
	unix.SYS_LINK:      {kind: makesLink, path: 1},
	unix.SYS_SYMLINK:   {kind: makesLink, path: 1},
	unix.SYS_CHMOD:     {kind: changes, path: 0},
	unix.SYS_UTIME:     {kind: changes, path: 0},
	unix.SYS_UTIMES:    {kind: changes, path: 0},
	unix.SYS_FUTIMESAT: {kind: changes, at: true, path: 1},
}
