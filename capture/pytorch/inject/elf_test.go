package inject

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// memoryOf lays an ELF file out as a loader would, without relocating anything.
func memoryOf(t testing.TB, path string, base uint64) (*bytes.Reader, uint64) {
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var mem []byte
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if need := int(base + p.Vaddr + p.Memsz); need > len(mem) {
			mem = append(mem, make([]byte, need-len(mem))...)
		}
		if _, err := p.ReadAt(mem[base+p.Vaddr:base+p.Vaddr+p.Filesz], 0); err != nil &&
			!errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	return bytes.NewReader(mem), uint64(len(mem))
}

// aLibrary returns a shared object of this machine: the C library that a running process has mapped.
func aLibrary(t testing.TB) string {
	for _, pattern := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6",
		"/lib/aarch64-linux-gnu/libc.so.6", "/lib/ld-musl-x86_64.so.1"} {
		if _, err := os.Stat(pattern); err == nil {
			return pattern
		}
	}
	t.Skip("needs a C library in one of the usual places")
	return ""
}

func TestEverySymbolIsFoundWhereTheLinkerPutsIt(t *testing.T) {
	path := aLibrary(t)
	const base = 16 << 20 // above every address within the file
	mem, end := memoryOf(t, path, base)
	im, err := openImage(mem, base, end)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]map[uint64]bool{} // a name may have several versions
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF || s.Value == 0 || elf.ST_TYPE(s.Info) == elf.STT_TLS ||
			elf.ST_TYPE(s.Info) == elf.STT_GNU_IFUNC {
			continue
		}
		if places[s.Name] == nil {
			places[s.Name] = map[uint64]bool{}
		}
		places[s.Name][s.Value+base] = true
	}
	if len(places) < 100 {
		t.Fatalf("only %d symbols in %s", len(places), path)
	}
	check := func(how string) {
		for name, at := range places {
			if a, err := im.lookup(name); err != nil || !at[a] {
				t.Errorf("%s: %s is at %#x (%v), not at one of %v", how, name, a, err, at)
			}
		}
		for _, name := range []string{"", "mmap\x00", "no_such_symbol", strings.Repeat("x", 5000)} {
			if a, err := im.lookup(name); a != 0 || err != nil {
				t.Errorf("%s: %q is at %#x, %v", how, name, a, err)
			}
		}
	}
	check("GNU hash")
	if im.sysv != 0 {
		im.gnu = 0
		check("System V hash")
	}
}

func FuzzImage(f *testing.F) {
	if mem, _ := memoryOf(f, aLibrary(f), 0); mem != nil {
		b := make([]byte, 1<<16)
		n, _ := mem.ReadAt(b, 0)
		f.Add(b[:n])
	}
	f.Add([]byte(elf.ELFMAG))
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := bytes.NewReader(b)
		im, err := openImage(mem, 0, uint64(len(b)))
		if err != nil {
			return
		}
		for _, name := range []string{"mmap", "Py_AddPendingCall"} {
			if a, err := im.lookup(name); err == nil && a == 1 {
				t.Error("a symbol at 1")
			}
		}
		p := python{minor: 14, runtimeSize: uint64(len(b)), runtime: 1}
		p.readOffsets(mem)
		_ = p.findQueue(mem)
		_, _ = findRemoteDebug(mem, 0)
	})
}
