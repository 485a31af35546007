package pytorch

import (
	"errors"
	"os"
	"syscall"
)

// A command's output goes to a file, and the disk may fill up while it trains. Its print would then fail,
// which ends most programs. So this program holds some space behind the output. When the disk is full, it
// gives the beginning of the file up, which it has read by then.

const (
	// outputRoom is how many bytes of the disk are taken behind what was printed, at least half of them at
	// any time while the output is read.
	outputRoom = 256 << 10
	// outputKept is how much of the file's end stays where the rest is given up, and outputPiece by how much
	// more that is each time.
	outputKept, outputPiece = 64 << 10, 32 << 10
	// aBlock is as little as file systems give.
	aBlock = 4 << 10
)

// room is the space of a disk that is held for what a command prints to a file.
type room struct {
	file  *os.File
	until int64 // the file's size up to which there is space
	given int64 // bytes at its beginning that were given up
}

// hold sees to it that there is space behind the file's first size bytes, all of which were read. It reports
// whether more of the beginning was given up for that. The error wraps ENOSPC where there is no space even
// so; file systems that take none beforehand are left to themselves.
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

// take takes as much space as there is, at most outputRoom bytes and no less than least.
func (r *room) take(size, least int64) (err error) {
	for n := int64(outputRoom); n >= least; n /= 2 {
		if err = allocate(r.file, size, n); !errors.Is(err, syscall.ENOSPC) {
			r.until = size + n
			return err
		}
	}
	return err
}
