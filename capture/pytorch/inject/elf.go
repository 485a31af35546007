package inject

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Symbols of a loaded object are looked up as its dynamic linker does it: in memory, through DT_GNU_HASH or
// DT_HASH. Everything needed is in loaded segments, so no file is opened, which may be deleted, in another
// mount namespace or unreadable. The memory belongs to another process and may hold anything: each read is
// bounded, each loop counted. Source: System V ABI, chapter 5 (dynamic linking); the GNU hash section as
// binutils and glibc have it.

var errNotELF = errors.New("not a 64-bit little-endian ELF object")

const (
	maxProgramHeaders = 256
	maxDynamic        = 1024
	maxChain          = 1 << 16
	symbolSize        = 24
)

// image is an object loaded at base.
type image struct {
	mem        io.ReaderAt // addresses are offsets
	base, end  uint64
	bias       uint64 // add to a link-time address
	machine    elf.Machine
	symtab     uint64
	strtab     uint64
	strsize    uint64
	gnu, sysv  uint64
	hasDynamic bool
}

func readBytes(mem io.ReaderAt, addr uint64, n int) ([]byte, error) {
	if addr > 1<<63-1-uint64(n) {
		return nil, fmt.Errorf("address %#x is out of range", addr)
	}
	b := make([]byte, n)
	got, err := mem.ReadAt(b, int64(addr))
	if got < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read %d bytes at %#x: %w", n, addr, err)
	}
	return b, nil
}

// openImage reads the headers of the object whose first byte is mapped at base; its mappings end at end.
func openImage(mem io.ReaderAt, base, end uint64) (*image, error) {
	h, err := readBytes(mem, base, 64)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(h, []byte(elf.ELFMAG)) || h[elf.EI_CLASS] != byte(elf.ELFCLASS64) ||
		h[elf.EI_DATA] != byte(elf.ELFDATA2LSB) {
		return nil, errNotELF
	}
	le := binary.LittleEndian
	im := &image{mem: mem, base: base, end: end, machine: elf.Machine(le.Uint16(h[18:]))}
	phoff, phentsize, phnum := le.Uint64(h[32:]), le.Uint16(h[54:]), int(le.Uint16(h[56:]))
	if phentsize != 56 || phnum > maxProgramHeaders || phoff > 1<<20 {
		return nil, fmt.Errorf("%w: program headers make no sense", errNotELF)
	}
	ph, err := readBytes(mem, base+phoff, phnum*56)
	if err != nil {
		return nil, err
	}
	var dynamic, dynsize uint64
	loaded := false
	for ; len(ph) > 0; ph = ph[56:] {
		vaddr, memsz := le.Uint64(ph[16:]), le.Uint64(ph[40:])
		switch elf.ProgType(le.Uint32(ph)) {
		case elf.PT_LOAD:
			if !loaded { // the first has the lowest address
				im.bias, loaded = base-vaddr&^4095, true
			}
		case elf.PT_DYNAMIC:
			dynamic, dynsize = vaddr, memsz
		}
	}
	if !loaded {
		return nil, fmt.Errorf("%w: nothing is loaded of it", errNotELF)
	}
	if dynsize == 0 {
		return im, nil // linked statically, and exports nothing
	}
	im.hasDynamic = true
	return im, im.readDynamic(dynamic+im.bias, dynsize)
}

func (im *image) readDynamic(addr, size uint64) error {
	d, err := readBytes(im.mem, addr, int(min(size/16, maxDynamic))*16)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	for ; len(d) >= 16; d = d[16:] {
		value := le.Uint64(d[8:])
		switch elf.DynTag(le.Uint64(d)) {
		case elf.DT_NULL:
			return nil
		case elf.DT_SYMTAB:
			im.symtab = im.loaded(value)
		case elf.DT_STRTAB:
			im.strtab = im.loaded(value)
		case elf.DT_STRSZ:
			im.strsize = value
		case elf.DT_GNU_HASH:
			im.gnu = im.loaded(value)
		case elf.DT_HASH:
			im.sysv = im.loaded(value)
		}
	}
	return nil
}

// loaded converts an address of the dynamic section into one in memory: glibc relocates these in place, musl
// and the vDSO do not.
func (im *image) loaded(addr uint64) uint64 {
	if addr >= im.base && addr < im.end {
		return addr
	}
	return addr + im.bias
}

// lookup returns the address of a defined function or object of that name; 0 if there is none.
func (im *image) lookup(name string) (uint64, error) {
	if im.symtab == 0 || im.strtab == 0 {
		return 0, nil
	}
	switch {
	case im.gnu != 0:
		return im.lookupGNU(name)
	case im.sysv != 0:
		return im.lookupSysV(name)
	}
	return 0, nil
}

func (im *image) lookupGNU(name string) (uint64, error) {
	h := uint32(5381)
	for i := range len(name) {
		h = h*33 + uint32(name[i])
	}
	le := binary.LittleEndian
	head, err := readBytes(im.mem, im.gnu, 16)
	if err != nil {
		return 0, err
	}
	buckets, first, bloom := le.Uint32(head), le.Uint32(head[4:]), le.Uint32(head[8:])
	if buckets == 0 {
		return 0, nil
	}
	table := im.gnu + 16 + uint64(bloom)*8
	b, err := readBytes(im.mem, table+uint64(h%buckets)*4, 4)
	if err != nil {
		return 0, err
	}
	n := le.Uint32(b)
	if n < first {
		return 0, nil // an empty bucket
	}
	chain := table + uint64(buckets)*4
	for range maxChain {
		c, err := readBytes(im.mem, chain+uint64(n-first)*4, 4)
		if err != nil {
			return 0, err
		}
		if v := le.Uint32(c); v|1 == h|1 {
			if addr, err := im.symbol(n, name); addr != 0 || err != nil {
				return addr, err
			}
		}
		if c[0]&1 != 0 {
			return 0, nil
		}
		n++
	}
	return 0, errors.New("symbol hash chain does not end")
}

func (im *image) lookupSysV(name string) (uint64, error) {
	h := uint32(0)
	for i := range len(name) {
		h = h<<4 + uint32(name[i])
		h ^= h >> 24 & 0xf0
		h &= 0x0fffffff
	}
	le := binary.LittleEndian
	head, err := readBytes(im.mem, im.sysv, 8)
	if err != nil {
		return 0, err
	}
	buckets := le.Uint32(head)
	if buckets == 0 {
		return 0, nil
	}
	at := im.sysv + 8 + uint64(h%buckets)*4
	for range maxChain {
		b, err := readBytes(im.mem, at, 4)
		if err != nil {
			return 0, err
		}
		n := le.Uint32(b)
		if n == 0 {
			return 0, nil
		}
		if addr, err := im.symbol(n, name); addr != 0 || err != nil {
			return addr, err
		}
		at = im.sysv + 8 + uint64(buckets)*4 + uint64(n)*4
	}
	return 0, errors.New("symbol hash chain does not end")
}

// symbol returns the address of symbol n if it has that name and is defined here.
func (im *image) symbol(n uint32, name string) (uint64, error) {
	s, err := readBytes(im.mem, im.symtab+uint64(n)*symbolSize, symbolSize)
	if err != nil {
		return 0, err
	}
	le := binary.LittleEndian
	at, value := uint64(le.Uint32(s)), le.Uint64(s[8:])
	switch typ := elf.ST_TYPE(s[4]); {
	case le.Uint16(s[6:]) == uint16(elf.SHN_UNDEF), value == 0, typ == elf.STT_TLS, typ == elf.STT_GNU_IFUNC:
		return 0, nil // undefined here, or its value is not an address to call
	}
	if at > im.strsize || im.strsize-at <= uint64(len(name)) {
		return 0, nil
	}
	text, err := readBytes(im.mem, im.strtab+at, len(name)+1)
	if err != nil {
		return 0, err
	}
	if string(text[:len(name)]) != name || text[len(name)] != 0 {
		return 0, nil
	}
	return value + im.bias, nil
}
