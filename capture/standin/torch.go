package standin

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Stubs. PyTorch's libraries name thousands of functions of NVIDIA's libraries, and the stand-in has
// hundreds. The dynamic linker needs all of them, and we do not know what the real libraries next to PyTorch
// would do without a driver. So every named function that the stand-in lacks gets a stub, which answers "not
// supported" in its library's code and is counted in the report. The names come from the libraries' own
// symbol tables, and from the strings by which libc10_cuda.so looks up functions of the driver and NVML.

// stubsVersion changes when the stubs for the same libraries change.
const stubsVersion = "2"

// libraries are those that get stubs: names, and the library's code for "not supported" (or the closest one).
var libraries = []struct {
	name   *regexp.Regexp
	answer int
}{
	{regexp.MustCompile(`^(cuda|__cuda)[A-Z]`), 801},    // cudaErrorNotSupported
	{regexp.MustCompile(`^cublas`), 15},                 // CUBLAS_STATUS_NOT_SUPPORTED
	{regexp.MustCompile(`^cudnn[A-Z]`), 3000},           // CUDNN_STATUS_NOT_SUPPORTED
	{regexp.MustCompile(`^p?nccl[A-Z]`), 5},             // ncclInvalidUsage
	{regexp.MustCompile(`^cusparse[A-Z]`), 10},          // CUSPARSE_STATUS_NOT_SUPPORTED
	{regexp.MustCompile(`^cusparseLt[A-Z]`), 10},        // the same
	{regexp.MustCompile(`^cusolver`), 9},                // CUSOLVER_STATUS_NOT_SUPPORTED
	{regexp.MustCompile(`^cufft[A-Z]`), 16},             // CUFFT_NOT_SUPPORTED
	{regexp.MustCompile(`^curand[A-Z]`), 999},           // CURAND_STATUS_INTERNAL_ERROR
	{regexp.MustCompile(`^nvml[A-Z]`), 3},               // NVML_ERROR_NOT_SUPPORTED
	{regexp.MustCompile(`^cu[A-Z][A-Za-z0-9_]+$`), 801}, // CUDA_ERROR_NOT_SUPPORTED
}

// left are functions that look like the driver's but belong to libraries that the stand-in leaves alone.
var left = regexp.MustCompile(`^(cuFile|cupti)`)

// answerOf returns what a stub of a function answers, and whether it gets one.
func answerOf(function string) (int, bool) {
	if left.MatchString(function) {
		return 0, false
	}
	for _, l := range libraries {
		if l.name.MatchString(function) {
			return l.answer, true
		}
	}
	return 0, false
}

// findTorch finds the libraries of an interpreter's PyTorch and the version of CUDA that it was built for. It
// imports nothing: torch/version.py says the version.
func (b *builder) findTorch(python string) error {
	const script = "import importlib.util as u, os; s = u.find_spec('torch'); " +
		"print(os.path.dirname(s.origin) if s else ''); " +
		"print(os.confstr('CS_GNU_LIBC_VERSION') if 'CS_GNU_LIBC_VERSION' in os.confstr_names else '')"
	out, err := exec.CommandContext(b.ctx, python, "-S", "-c", "import site; site.main()\n"+script).Output()
	if err != nil {
		return fmt.Errorf("ask %s where torch is: %w", python, err)
	}
	dir, libc, _ := strings.Cut(strings.TrimSuffix(string(out), "\n"), "\n")
	b.glibc = strings.TrimPrefix(libc, "glibc ")
	if dir == "" {
		return fmt.Errorf("%w: %s has no torch", ErrNoCUDATorch, python)
	}
	text, err := os.ReadFile(filepath.Join(dir, "version.py"))
	if err != nil {
		return fmt.Errorf("read torch's version: %w", err)
	}
	m := regexp.MustCompile(`(?m)^cuda\b.*=\s*['"](\d+)\.(\d+)`).FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("%w: the torch of %s is built without it", ErrNoCUDATorch, python)
	}
	if v := regexp.MustCompile(`(?m)^__version__\b.*=\s*['"]([^'"]+)`).FindSubmatch(text); v != nil {
		b.torch = string(v[1])
	}
	major, _ := strconv.Atoi(string(m[1]))
	minor, _ := strconv.Atoi(string(m[2]))
	b.cuda = major*1000 + minor*10
	paths, err := filepath.Glob(filepath.Join(dir, "lib", "lib*.so"))
	if err != nil {
		return err
	}
	for _, p := range paths {
		name := filepath.Base(p)
		if strings.HasPrefix(name, "libtorch_") || strings.HasPrefix(name, "libc10") ||
			strings.HasPrefix(name, "libcaffe2") {
			b.torchLibs = append(b.torchLibs, p)
		}
	}
	if !slices.ContainsFunc(b.torchLibs, func(p string) bool {
		return strings.HasSuffix(p, "libc10_cuda.so")
	}) {
		return fmt.Errorf("%w: %s has no libc10_cuda.so", ErrNoCUDATorch, dir)
	}
	return nil
}

// stubs returns the library of stubs for the functions that PyTorch's libraries and gmemtop's own driver
// calls name and the stand-in lacks.
func (b *builder) stubs(base []byte) ([]byte, error) {
	have, err := exported(base)
	if err != nil {
		return nil, err
	}
	want := map[string]bool{}
	for _, name := range strings.Fields(driverFunctions) {
		want[name] = true
	}
	for _, path := range b.torchLibs {
		if err := undefined(path, want); err != nil {
			return nil, err
		}
	}
	var all []stub
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if answer, ok := answerOf(name); ok && !have[name] {
			all = append(all, stub{name, answer})
		}
	}
	return stubLibrary(b.cuda, all)
}

// exported returns the functions that a library exports.
func exported(library []byte) (map[string]bool, error) {
	f, err := elf.NewFile(bytes.NewReader(library))
	if err != nil {
		return nil, fmt.Errorf("read the stand-in GPU: %w", err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("read the symbols of the stand-in GPU: %w", err)
	}
	all := map[string]bool{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			all[s.Name] = true
		}
	}
	return all, nil
}

// named finds names of functions of the driver and of NVML among a library's strings.
var named = regexp.MustCompile(`\x00((?:cu[A-Z][A-Za-z]+[A-Za-z0-9]{5,}(?:_v\d)?|nvml[A-Z][A-Za-z]+[A-Za-z0-9_]{5,}))\x00`)

// undefined adds the functions that one of PyTorch's libraries imports.
func undefined(path string, want map[string]bool) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return fmt.Errorf("read the symbols of %s: %w", path, err)
	}
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF {
			want[s.Name] = true
		}
	}
	if filepath.Base(path) != "libc10_cuda.so" {
		return nil
	}
	for _, section := range f.Sections {
		if section.Type != elf.SHT_PROGBITS || section.Flags&elf.SHF_EXECINSTR != 0 ||
			!strings.HasPrefix(section.Name, ".rodata") {
			continue
		}
		data, err := section.Data()
		if err != nil {
			return fmt.Errorf("read the strings of %s: %w", path, err)
		}
		// Strings share their separators: each match returns its last byte.
		for at := 0; ; {
			m := named.FindSubmatchIndex(data[at:])
			if m == nil {
				break
			}
			want[string(data[at+m[2]:at+m[3]])] = true
			at += m[3]
		}
	}
	return nil
}
