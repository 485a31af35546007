package standin

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
)

// The library of stubs. Each release of PyTorch names different functions, and a machine on which somebody
// asks for an estimate may have no compiler. So we write the shared library as bytes: every stub is the same
// few instructions, so the file is a table of symbols, a hash table, code, and one address that the dynamic
// linker fills in, standin_missing's. It takes time and space linear in the number of names. Rejected: one
// library with the names of all releases, since the next release has more. Source: System V ABI, AMD64
// supplement; "Dynamic Linking" in the generic ABI.

// stubsName is the library's file and soname; the stand-in is linked with it.
const stubsName = "libstandin-stubs.so"

// stub is a function that returns a number.
type stub struct {
	name   string
	answer int
}

const (
	pageSize   = 4096
	headerSize = 64
	progSize   = 56
	symSize    = 24
	relaSize   = 24
	codeSize   = 32 // of one stub
	programs   = 4
)

// firstSymbol is the number of the first stub: symbol 0 is none, 1 is standin_missing, which the library
// takes from the stand-in.
const firstSymbol = 2

// stubFile is the shared library: what is in it, where that lies in the file, and the file's bytes so far.
// Its first segment is read and executed, the second written.
type stubFile struct {
	stubs   []stub
	names   []uint32 // of the stubs, in text
	missing uint32   // standin_missing's name
	text    []byte   // names, each ended by a zero
	dynamic []elf.Dyn64

	hashAt, symAt, textAt, relaAt, codeAt, codeEnd int
	dynamicAt, slotAt, end                         int // slotAt is for standin_missing's address

	out []byte
}

// stubLibrary returns a shared library for Linux on amd64 with the stubs, each of which reports its name to
// standin_missing, and with standin_cuda_version. Names must differ; the error says that there are too many.
func stubLibrary(cuda int, stubs []stub) ([]byte, error) {
	all := append([]stub{{"standin_cuda_version", cuda}}, stubs...)
	if len(all) > 1<<20 {
		return nil, errors.New("PyTorch's libraries name more than a million functions of NVIDIA's")
	}
	f := layOutStubs(all)
	f.out = make([]byte, f.end)
	sections, sectionNames := stubSections(f.end, map[string][2]int{
		".dynsym": {f.symAt, f.symbols() * symSize}, ".dynstr": {f.textAt, len(f.text)},
		".hash": {f.hashAt, 4 * (2 + 2*f.symbols())}, ".text": {f.codeAt, f.codeEnd - f.codeAt},
		".dynamic": {f.dynamicAt, 16 * len(f.dynamic)}})
	sectionsAt := align(f.end+len(sectionNames), 8)
	f.writeHeader(sectionsAt, len(sections))
	f.writeSymbols()
	f.writeCode()
	f.put(f.textAt, f.text)
	f.put(f.relaAt, elf.Rela64{Off: uint64(f.slotAt), Info: elf.R_INFO(1, uint32(elf.R_X86_64_GLOB_DAT))})
	f.put(f.dynamicAt, f.dynamic)

	// Sections are for linkers and debuggers. The stand-in is linked with this library, and g++ finds its
	// symbols through them.
	out := append(append(f.out, sectionNames...), make([]byte, sectionsAt-f.end-len(sectionNames))...)
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, sections)
	return append(out, b.Bytes()...), nil
}

// layOutStubs decides where everything lies.
func layOutStubs(stubs []stub) *stubFile {
	f := &stubFile{stubs: stubs, text: []byte{0}}
	named := func(name string) uint32 {
		at := len(f.text)
		f.text = append(append(f.text, name...), 0)
		return uint32(at)
	}
	soname := named(stubsName)
	f.missing = named("standin_missing")
	for _, s := range stubs {
		f.names = append(f.names, named(s.name))
	}
	f.hashAt = headerSize + programs*progSize
	f.symAt = align(f.hashAt+4*(2+2*f.symbols()), 8)
	f.textAt = f.symAt + f.symbols()*symSize
	f.relaAt = align(f.textAt+len(f.text), 8)
	f.codeAt = align(f.relaAt+relaSize, codeSize)
	f.codeEnd = f.codeAt + len(stubs)*codeSize
	f.dynamicAt = align(f.codeEnd, pageSize)
	f.dynamic = []elf.Dyn64{
		{Tag: int64(elf.DT_SONAME), Val: uint64(soname)},
		{Tag: int64(elf.DT_HASH), Val: uint64(f.hashAt)},
		{Tag: int64(elf.DT_SYMTAB), Val: uint64(f.symAt)},
		{Tag: int64(elf.DT_SYMENT), Val: symSize},
		{Tag: int64(elf.DT_STRTAB), Val: uint64(f.textAt)},
		{Tag: int64(elf.DT_STRSZ), Val: uint64(len(f.text))},
		{Tag: int64(elf.DT_RELA), Val: uint64(f.relaAt)},
		{Tag: int64(elf.DT_RELASZ), Val: relaSize},
		{Tag: int64(elf.DT_RELAENT), Val: relaSize},
		{Tag: int64(elf.DT_NULL)},
	}
	f.slotAt = f.dynamicAt + 16*len(f.dynamic)
	f.end = f.slotAt + 8
	return f
}

// symbols is how many symbols there are.
func (f *stubFile) symbols() int { return firstSymbol + len(f.stubs) }

// put writes values of fixed sizes at an offset of the file.
func (f *stubFile) put(offset int, parts ...any) {
	var b bytes.Buffer
	for _, p := range parts {
		binary.Write(&b, binary.LittleEndian, p) // fixed sizes into memory
	}
	copy(f.out[offset:], b.Bytes())
}

// writeHeader writes the file's header and those of its segments.
func (f *stubFile) writeHeader(sectionsAt, sections int) {
	header := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1,
		Phoff: headerSize, Ehsize: headerSize, Phentsize: progSize, Phnum: programs,
		Shoff:     uint64(sectionsAt),
		Shentsize: 64, Shnum: uint16(sections), Shstrndx: uint16(sections - 1)}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	segment := func(kind elf.ProgType, flags elf.ProgFlag, from, to, alignment int) elf.Prog64 {
		return elf.Prog64{Type: uint32(kind), Flags: uint32(flags), Off: uint64(from), Vaddr: uint64(from),
			Paddr: uint64(from), Filesz: uint64(to - from), Memsz: uint64(to - from),
			Align: uint64(alignment)}
	}
	f.put(0, header, segment(elf.PT_LOAD, elf.PF_R|elf.PF_X, 0, f.codeEnd, pageSize),
		segment(elf.PT_LOAD, elf.PF_R|elf.PF_W, f.dynamicAt, f.end, pageSize),
		segment(elf.PT_DYNAMIC, elf.PF_R|elf.PF_W, f.dynamicAt, f.slotAt, 8),
		segment(elf.PT_GNU_STACK, elf.PF_R|elf.PF_W, 0, 0, 16))
}

// writeSymbols writes the table of symbols and the hash table over it.
func (f *stubFile) writeSymbols() {
	count := f.symbols()
	buckets, chains := make([]uint32, count), make([]uint32, count)
	symbols := make([]elf.Sym64, count)
	symbols[1] = elf.Sym64{Name: f.missing, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)}
	for i, s := range f.stubs {
		n := firstSymbol + i
		symbols[n] = elf.Sym64{Name: f.names[i], Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC),
			Shndx: textSection, Value: uint64(f.codeAt + i*codeSize), Size: codeSize}
		bucket := &buckets[symbolHash(s.name)%uint32(count)]
		chains[n], *bucket = *bucket, uint32(n)
	}
	f.put(f.hashAt, []uint32{uint32(count), uint32(count)}, buckets, chains)
	f.put(f.symAt, symbols)
}

// writeCode writes the instructions of the stubs. The first only returns its answer.
func (f *stubFile) writeCode() {
	f.put(f.codeAt, byte(0xb8), int32(f.stubs[0].answer), byte(0xc3)) // mov eax, answer; ret
	for i, s := range f.stubs[1:] {
		code := f.codeAt + (i+1)*codeSize
		f.put(code,
			[]byte{0x48, 0x83, 0xec, 0x08},                                         // sub rsp, 8
			[]byte{0x48, 0x8d, 0x3d}, int32(f.textAt+int(f.names[i+1])-(code+4+7)), // lea rdi, name
			[]byte{0xff, 0x15}, int32(f.slotAt-(code+4+7+6)), // call [slot]
			byte(0xb8), int32(s.answer), []byte{0x48, 0x83, 0xc4, 0x08}, byte(0xc3)) // answer, ret
	}
}

// textSection is the number of the section that symbols lie in.
const textSection = 4

// stubSections returns the headers of sections that lie at the given places (offset, size), and their names,
// which lie at namesAt.
func stubSections(namesAt int, places map[string][2]int) ([]elf.Section64, []byte) {
	names := []byte{0}
	all := []elf.Section64{{}}
	add := func(name string, kind elf.SectionType, flags elf.SectionFlag, link, info, entry int) {
		p := places[name]
		s := elf.Section64{Name: uint32(len(names)), Type: uint32(kind), Flags: uint64(flags),
			Addr: uint64(p[0]),
			Off:  uint64(p[0]), Size: uint64(p[1]), Link: uint32(link), Info: uint32(info), Addralign: 8,
			Entsize: uint64(entry)}
		names = append(append(names, name...), 0)
		all = append(all, s)
	}
	add(".dynsym", elf.SHT_DYNSYM, elf.SHF_ALLOC, 2, 1, symSize)
	add(".dynstr", elf.SHT_STRTAB, elf.SHF_ALLOC, 0, 0, 0)
	add(".hash", elf.SHT_HASH, elf.SHF_ALLOC, 1, 0, 4)
	add(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, 0, 0, 0)
	add(".dynamic", elf.SHT_DYNAMIC, elf.SHF_ALLOC|elf.SHF_WRITE, 2, 0, 16)
	add(".shstrtab", elf.SHT_STRTAB, 0, 0, 0, 0)
	last := &all[len(all)-1]
	last.Addr, last.Off, last.Size = 0, uint64(namesAt), uint64(len(names))
	return all, names
}

// symbolHash is the hash of the generic ABI's hash table.
func symbolHash(name string) uint32 {
	var h uint32
	for i := range len(name) {
		h = h<<4 + uint32(name[i])
		if g := h & 0xf0000000; g != 0 {
			h ^= g >> 24
			h &^= g
		}
	}
	return h
}

func align(n, to int) int { return (n + to - 1) / to * to }
