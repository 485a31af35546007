package usdt

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
)

// note is one static probe of an ELF file.
type note struct {
	Provider, Name string
	// PC is the probe's address and Semaphore that of its 16-bit counter of watchers, 0 for none: both as the
	// file's headers count addresses, corrected for a file whose sections were moved after linking.
	PC, Semaphore uint64
	// Args says where the arguments are: see operand.go.
	Args string
}

// String returns provider:name, as tools print it.
func (n note) String() string { return n.Provider + ":" + n.Name }

const (
	noteSection  = ".note.stapsdt"
	baseSection  = ".stapsdt.base"
	noteOwner    = "stapsdt"
	noteType     = 3
	maxNoteBytes = 16 << 20 // libpython, which has many, has 10 kB
)

// errDamaged is wrapped by errors about files that are not sound ELF files.
var errDamaged = errors.New("the file is damaged")

// notes returns the static probes of an ELF file in the file's order; none is no error.
func notes(f *elf.File) ([]note, error) {
	base := uint64(0)
	if s := f.Section(baseSection); s != nil {
		base = s.Addr
	}
	var list []note
	for _, s := range f.Sections {
		if s.Name != noteSection || s.Type != elf.SHT_NOTE {
			continue
		}
		if s.Size > maxNoteBytes {
			return nil, fmt.Errorf("read %s: %w: it claims %d bytes", noteSection, errDamaged, s.Size)
		}
		data, err := s.Data()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", noteSection, err)
		}
		more, err := parseNotes(data, f, base)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", noteSection, err)
		}
		list = append(list, more...)
	}
	return list, nil
}

// parseNotes reads a section of notes: each a header of three words (sizes of name and description, type),
// the two padded to four bytes. The description of a probe is three addresses (probe, base, semaphore) and
// three strings (provider, name, arguments).
func parseNotes(data []byte, f *elf.File, base uint64) ([]note, error) {
	order := f.ByteOrder
	var list []note
	for offset := 0; len(data)-offset >= 12; {
		nameSize, descSize := uint64(order.Uint32(data[offset:])), uint64(order.Uint32(data[offset+4:]))
		kind := order.Uint32(data[offset+8:])
		rest := data[offset+12:]
		name := padded(nameSize)
		if name+descSize > uint64(len(rest)) {
			return nil, fmt.Errorf("%w: the note at byte %d reaches past the section's end",
				errDamaged, offset)
		}
		owner, desc := rest[:nameSize], rest[name:name+descSize]
		if kind == noteType && string(bytes.TrimRight(owner, "\x00")) == noteOwner {
			n, err := parseNote(desc, f, base)
			if err != nil {
				return nil, fmt.Errorf("%w (the note at byte %d)", err, offset)
			}
			list = append(list, n)
		}
		offset += 12 + int(min(name+padded(descSize), uint64(len(rest))))
	}
	return list, nil
}

func padded(n uint64) uint64 { return (n + 3) &^ 3 }

func parseNote(desc []byte, f *elf.File, base uint64) (note, error) {
	word := 8
	if f.Class == elf.ELFCLASS32 {
		word = 4
	}
	if len(desc) < 3*word {
		return note{}, fmt.Errorf("%w: no room for three addresses", errDamaged)
	}
	address := func(i int) uint64 {
		if word == 4 {
			return uint64(f.ByteOrder.Uint32(desc[4*i:]))
		}
		return f.ByteOrder.Uint64(desc[8*i:])
	}
	n := note{PC: address(0), Semaphore: address(2)}
	if linked := address(1); base != 0 && linked != 0 {
		n.PC += base - linked
		if n.Semaphore != 0 {
			n.Semaphore += base - linked
		}
	}
	text := desc[3*word:]
	for _, field := range []*string{&n.Provider, &n.Name, &n.Args} {
		end := bytes.IndexByte(text, 0)
		if end < 0 {
			return note{}, fmt.Errorf("%w: a string has no end", errDamaged)
		}
		*field, text = string(text[:end]), text[end+1:]
	}
	return n, nil
}

// fileOffset returns where an address of the file's headers lies in the file: uprobes name code by file and
// offset.
func fileOffset(f *elf.File, address uint64) (uint64, error) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Vaddr <= address && address-p.Vaddr < p.Filesz {
			return address - p.Vaddr + p.Off, nil
		}
	}
	return 0, fmt.Errorf("%w: address %#x lies in no loaded part of it", errDamaged, address)
}
