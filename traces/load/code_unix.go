//go:build unix

package load

import "syscall"

// noWait makes opening a named pipe return at once, though no program writes to it.
const noWait = syscall.O_NONBLOCK
