//go:build !linux

package pytorch

import (
	"net"
	"os"
	"syscall"
)

// peer does not know the other end here: the agent's own word counts.
func peer(net.Conn) int { return 0 }

// alive reports whether process pid runs; when it started is not known here.
func alive(pid int, _ int64) bool {
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}

// descendants, environOf and awaitEnd serve to attach to what the environment does not reach, which is done on Linux only.
func descendants(int) []int          { return nil }
func environOf(int) ([]string, bool) { return nil, false }
func awaitEnd(int)                   {}

func ownerOf(int) int { return os.Getuid() }

func owner(info os.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}
