package pytorch

import (
	"errors"
	"os"
	"syscall"
)

// A command's output goes to a file, and the disk may fill up while it trains. Its print would then fail,
// which ends most programs. So this program reserves some space after the output. When the disk is full, it
// frees the beginning of the file, which it has read by then.

const (
	// outputRoom is how many bytes of disk are reserved after the output; while the output is read, at least
	// half of them at any time.
	outputRoom = 256 << 10
	// outputKept is how much of the file's end stays when the rest is freed, and outputPiece is how much more
	// is freed each time.
	outputKept, outputPiece = 64 << 10, 32 << 10
	// aBlock is the least that file systems allocate.
	aBlock = 4 << 10
)

// room is the disk space reserved for what a command prints to a file.
type room struct {
	file  *os.File
	until int64 // the file's size up to which there is space
	given int64 // bytes freed at its beginning
}

// hold makes sure that there is space after the file's first size bytes, all of which have been read. It
// reports whether it freed more of the beginning for that. The error wraps ENOSPC if there is still no space;
// file systems that cannot reserve space are left alone.
func (r *room) hold(size int64) (gaveUp bool, err error) {
	if r.until-size > outputRoom/2 {
		return false, nil
	}
	err = r.take(size, outputRoom/2)
	if !errors.Is(err, syscall.ENOSPC) {
		return false, nil
	}
	if n := (size - outputKept) / outputPiece * outputPiece; n > r.given && release(r.file, n) == nil {
		r.given, gaveUp = n, true
	}
	return gaveUp, r.take(size, aBlock)
}

// take reserves as much space as there is, at most outputRoom bytes and at least least.
func (r *room) take(size, least int64) (err error) {
	for n := int64(outputRoom); n >= least; n /= 2 {
		if err = allocate(r.file, size, n); !errors.Is(err, syscall.ENOSPC) {
			r.until = size + n
			return err
		}
	}
	return err
}
