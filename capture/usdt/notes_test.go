package usdt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// makeELF returns an ELF file of one loaded part and the sections that probes need: what a linker would
// write, and small enough for a fuzzer. The loaded part maps file offset 0 to address 0x10000.
func makeELF(machine elf.Machine, noteData []byte, base uint64) []byte {
	names := "\x00" + noteSection + "\x00" + baseSection + "\x00.shstrtab\x00"
	const header, programs, section = 64, 56, 64
	notesAt := uint64(header + programs)
	namesAt := notesAt + uint64(len(noteData))
	sectionsAt := (namesAt + uint64(len(names)) + 7) &^ 7
	var b bytes.Buffer
	put := func(v any) { binary.Write(&b, binary.LittleEndian, v) }
	put(elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_DYN),
		Machine: uint16(machine), Version: 1, Phoff: header,
		Shoff: sectionsAt, Ehsize: header, Phentsize: programs, Phnum: 1, Shentsize: section, Shnum: 4,
		Shstrndx: 3})
	put(elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: 0x10000,
		Filesz: 0x1000, Memsz: 0x1000})
	b.Write(noteData)
	b.WriteString(names)
	b.Write(make([]byte, sectionsAt-uint64(b.Len())))
	at := func(name string) uint32 { return uint32(strings.Index(names, name)) }
	put(elf.Section64{})
	put(elf.Section64{Name: at(noteSection), Type: uint32(elf.SHT_NOTE), Off: notesAt,
		Size: uint64(len(noteData)), Addralign: 4})
	put(elf.Section64{Name: at(baseSection), Type: uint32(elf.SHT_PROGBITS), Addr: base, Addralign: 1})
	put(elf.Section64{Name: at(".shstrtab"), Type: uint32(elf.SHT_STRTAB), Off: namesAt,
		Size: uint64(len(names)), Addralign: 1})
	return b.Bytes()
}

// makeNote returns one note as SystemTap's header writes it.
func makeNote(n note, base uint64) []byte {
	var desc []byte
	for _, a := range []uint64{n.PC, base, n.Semaphore} {
		desc = binary.LittleEndian.AppendUint64(desc, a)
	}
	desc = append(desc, n.Provider+"\x00"+n.Name+"\x00"+n.Args+"\x00"...)
	var b []byte
	for _, v := range []uint32{8, uint32(len(desc)), noteType} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	b = append(b, noteOwner+"\x00"...)
	b = append(b, desc...)
	return append(b, make([]byte, -len(b)&3)...)
}

func TestNotesAreReadAsTheyWereWritten(t *testing.T) {
	want := []note{
		{Provider: "pytorch", Name: "malloc", PC: 0x10100, Semaphore: 0x10200,
			Args: "-8@%rax -1@%dl -8@%r14 -8@-104(%rbp)"},
		{Provider: "pytorch", Name: "free", PC: 0x10105, Args: "-8@%rdi"},
		{Provider: "libc", Name: "x", PC: 0x10107, Semaphore: 0x10202},
	}
	var data []byte
	for i, n := range want {
		data = append(data, makeNote(n, 0x10800)...)
		if i == 0 { // another owner's note between them
			other := makeNote(n, 0)
			copy(other[12:], "GNU\x00GNU\x00")
			data = append(data, other...)
		}
	}
	got, err := readNotes(bytes.NewReader(makeELF(elf.EM_X86_64, data, 0x10800)))
	if err != nil || len(got) != len(want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("note %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	if got[0].String() != "pytorch:malloc" {
		t.Errorf("%s", got[0])
	}
	// A file that was moved after linking: the section says by how much.
	moved, err := readNotes(bytes.NewReader(makeELF(elf.EM_X86_64, data, 0x10900)))
	if err != nil || moved[0].PC != 0x10200 || moved[0].Semaphore != 0x10300 || moved[1].Semaphore != 0 {
		t.Errorf("%+v, %v", moved, err)
	}
}

func TestDamagedNotesAreAnError(t *testing.T) {
	good := makeNote(note{Provider: "pytorch", Name: "free", PC: 0x10100, Args: "-8@%rdi"}, 0)
	for name, change := range map[string]func([]byte) []byte{
		"cut":           func(b []byte) []byte { return b[:len(b)-8] },
		"a long name":   func(b []byte) []byte { b[0] = 0xff; return b },
		"a huge length": func(b []byte) []byte { copy(b[4:], "\xff\xff\xff\xff"); return b },
		"huge both":     func(b []byte) []byte { copy(b, "\xff\xff\xff\xff\xff\xff\xff\xff"); return b },
		"a short note":  func(b []byte) []byte { b[4] = 9; return b },
		"an endless text": func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("rdi\x00"), []byte("rdix"))
		},
		"no strings at all": func(b []byte) []byte { b[4] = 24; return b[:12+8+24] },
	} {
		data := change(bytes.Clone(good))
		list, err := readNotes(bytes.NewReader(makeELF(elf.EM_X86_64, data, 0)))
		if !errors.Is(err, errDamaged) {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
	if _, err := readNotes(strings.NewReader("not an ELF file")); err == nil {
		t.Error("plain text was read as ELF")
	}
	if list, err := readNotes(bytes.NewReader(makeELF(elf.EM_X86_64, nil, 0))); err != nil || len(list) != 0 {
		t.Errorf("no notes: %v, %v", list, err)
	}
}

// readNotes reads the static probes of a file.
func readNotes(r io.ReaderAt) ([]note, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("read ELF header: %w", err)
	}
	return notes(f)
}

func FuzzNotes(f *testing.F) {
	f.Add(makeNote(note{Provider: "pytorch", Name: "malloc", PC: 0x10100, Semaphore: 0x10200,
		Args: "-8@%rax"}, 0))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := readNotes(bytes.NewReader(makeELF(elf.EM_X86_64, data, 0)))
		if err != nil {
			return
		}
		if len(list) > len(data)/(12+8+24) {
			t.Errorf("%d notes in %d bytes", len(list), len(data))
		}
	})
}

func FuzzELF(f *testing.F) {
	f.Add(makeELF(elf.EM_X86_64, makeNote(note{Provider: "pytorch", Name: "malloc", PC: 0x10100}, 0), 0x10))
	f.Fuzz(func(t *testing.T, data []byte) { readNotes(bytes.NewReader(data)) })
}
