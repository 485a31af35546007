package standin

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Pack compiles the stand-in without stubs and returns it compressed, for programs with the tag packed, and
// the GNU C library that it needs, such as "2.35". The error wraps ErrNoCompiler, or is the compiler's.
func Pack(ctx context.Context) (data []byte, glibc string, err error) {
	b, err := newBuilder(ctx)
	if err != nil {
		return nil, "", err
	}
	library, err := b.compiled()
	if err != nil {
		return nil, "", err
	}
	if glibc, err = glibcOf(library); err != nil {
		return nil, "", err
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, "", err
	}
	if _, err := z.Write(library); err != nil {
		return nil, "", err
	}
	if err := z.Close(); err != nil {
		return nil, "", err
	}
	return out.Bytes(), glibc, nil
}

// unpacked returns the library contained in the program.
func unpacked(data []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("unpack the stand-in GPU: %w", err)
	}
	library, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("unpack the stand-in GPU: %w", err)
	}
	return library, nil
}

// glibcOf returns the newest version of the GNU C library that a library names, such as "2.35".
func glibcOf(library []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(library))
	if err != nil {
		return "", fmt.Errorf("read the stand-in GPU: %w", err)
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return "", fmt.Errorf("read the symbols of the stand-in GPU: %w", err)
	}
	newest := ""
	for _, s := range symbols {
		if v, ok := strings.CutPrefix(s.Version, "GLIBC_"); ok && !AtLeast(newest, v) {
			newest = v
		}
	}
	return newest, nil
}

// AtLeast reports whether one version, such as "2.36", is the same as another or newer; "" comes before all.
func AtLeast(have, want string) bool {
	h, w := strings.Split(have, "."), strings.Split(want, ".")
	for i := range w {
		if i == len(h) {
			return false
		}
		a, errA := strconv.Atoi(h[i])
		b, errB := strconv.Atoi(w[i])
		if errA != nil || errB != nil || a != b {
			return errA == nil && errB == nil && a > b
		}
	}
	return true
}
