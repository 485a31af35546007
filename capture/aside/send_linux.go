//go:build amd64 || arm64

package aside

import "encoding/binary"

const (
	messageSize  = 64   // struct mmsghdr: a struct msghdr, how much of it was sent, and padding
	mostMessages = 1024 // that one call of sendmmsg sends (UIO_MAXIOV)
)

// send decides on a call that may name an address to send to. A connected socket needs none.
func (w *watch) send(k kind, r *request) *decision {
	if k == sends {
		return w.connect(r, r.args[4], r.args[5])
	}
	n := uint64(1)
	if k == sendsMessages {
		n = min(r.args[2], mostMessages)
	}
	for i := range n {
		// struct msghdr begins with a pointer to the address, and the address's length in 4 bytes
		b, err := read(r.pid, r.args[1]+i*messageSize, 12)
		if err != nil || len(b) < 12 {
			return nil
		}
		if name := binary.NativeEndian.Uint64(b); name != 0 {
			if d := w.connect(r, name, uint64(binary.NativeEndian.Uint32(b[8:]))); d != nil {
				return d
			}
		}
	}
	return nil
}
