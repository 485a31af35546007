package bus

import "golang.org/x/sys/unix"

// userAt returns the user at the other end of a Unix socket, as the kernel knows it.
func userAt(fd int) (int, error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(c.Uid), nil
}
