package gmt

import (
	"encoding/binary"
	"errors"
)

// LZ4 frames, as Arrow compresses buffers by default: a header, blocks that are compressed or stored, an end.
// The checksums in them are optional and are not verified, since a wrong length or a wrong reference is found
// anyway, and what is decompressed is checked as columns.
// Sources: the LZ4 frame format 1.6.4 and the LZ4 block format.

const lz4Magic = 0x184D2204

// Bits of a frame's flags.
const (
	lz4BlockChecksum   = 1 << 4
	lz4ContentSize     = 1 << 3
	lz4ContentChecksum = 1 << 2
	lz4Dictionary      = 1 << 0
	lz4Stored          = 1 << 31 // of a block's length
)

var errLZ4 = errors.New("malformed LZ4")

// unpackLZ4 decompresses one frame into dst, which must have exactly its length.
func unpackLZ4(dst, src []byte) error {
	if len(src) < 7 || binary.LittleEndian.Uint32(src) != lz4Magic || src[4]>>6 != 1 ||
		src[4]&lz4Dictionary != 0 {
		return errLZ4
	}
	flags := src[4]
	head := 7
	if flags&lz4ContentSize != 0 {
		head += 8
	}
	if len(src) < head {
		return errLZ4
	}
	src = src[head:]
	out := dst[:0:len(dst)]
	for {
		if len(src) < 4 {
			return errLZ4
		}
		n := binary.LittleEndian.Uint32(src)
		src = src[4:]
		if n == 0 {
			break
		}
		size := int64(n &^ lz4Stored)
		if size > int64(len(src)) {
			return errLZ4
		}
		block := src[:size]
		src = src[size:]
		if flags&lz4BlockChecksum != 0 {
			if len(src) < 4 {
				return errLZ4
			}
			src = src[4:]
		}
		if n&lz4Stored != 0 {
			if len(block) > cap(out)-len(out) {
				return errLZ4
			}
			out = append(out, block...)
			continue
		}
		var err error
		if out, err = unpackLZ4Block(out, block); err != nil {
			return err
		}
	}
	if len(out) != len(dst) {
		return errLZ4
	}
	return nil
}

// unpackLZ4Block appends the content of one block to out, which may refer to what is there, up to its
// capacity.
func unpackLZ4Block(out, src []byte) ([]byte, error) {
	for len(src) > 0 {
		token := src[0]
		src = src[1:]
		literals, rest, ok := lz4Length(src, int(token>>4))
		if !ok || literals > len(rest) || literals > cap(out)-len(out) {
			return nil, errLZ4
		}
		out = append(out, rest[:literals]...)
		src = rest[literals:]
		if len(src) == 0 {
			return out, nil // the last sequence has no match
		}
		if len(src) < 2 {
			return nil, errLZ4
		}
		back := int(binary.LittleEndian.Uint16(src))
		match, rest, ok := lz4Length(src[2:], int(token&15))
		match += 4
		if !ok || back == 0 || back > len(out) || match > cap(out)-len(out) {
			return nil, errLZ4
		}
		src = rest
		for from := len(out) - back; match > 0; { // a match may overlap what it makes
			n := min(match, len(out)-from)
			out = append(out, out[from:from+n]...)
			match -= n
		}
	}
	return out, nil
}

// lz4Length reads the rest of a length that begins with four bits.
func lz4Length(src []byte, n int) (length int, rest []byte, ok bool) {
	if n < 15 {
		return n, src, true
	}
	for i, b := range src {
		n += int(b)
		if b != 255 {
			return n, src[i+1:], true
		}
	}
	return 0, nil, false
}
