package pytorch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// sweepSockets removes the sockets in a folder that nobody holds any more: a viewer that was killed could not
// remove its own.
//
// To find out whether a socket is held, we connect a socket of another type to it. The kernel answers "wrong
// type" for a socket that is bound, listening or not, and "refused" for one that is only a name. The holder
// does not notice. Rejected: really connecting, since its viewer would take us for an agent, and
// /proc/net/unix, which does not list the sockets of other network namespaces.
func sweepSockets(dir string) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, f := range files {
		if path := filepath.Join(dir, f.Name()); strings.HasSuffix(path, ".sock") &&
			f.Type() == os.ModeSocket && abandoned(path) {
			_ = os.Remove(path)
		}
	}
}

// abandoned reports whether no process holds the socket at path.
func abandoned(path string) bool {
	s, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return false
	}
	defer func() { _ = syscall.Close(s) }()
	return errors.Is(syscall.Connect(s, &syscall.SockaddrUnix{Name: path}), syscall.ECONNREFUSED)
}
