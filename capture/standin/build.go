package standin

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Building. The stand-in is two libraries: the stand-in itself, which is the same for every PyTorch, and
// stubs for the other functions that a PyTorch names (stubs.go), which need no compiler. A program built with
// the tag packed contains the first (packed.go). Any other contains its sources, which are compiled in
// parallel; each object is cached under a hash of its source, the headers that it includes and the flags, so
// one changed file costs one compilation. Both libraries are kept under a hash of the first and of PyTorch's
// libraries (their sizes and times, since hashing a gigabyte takes seconds).

//go:embed src all:compute
var sources embed.FS

var (
	// ErrNoCompiler says that there is no C++ compiler, and that the program contains no usable stand-in.
	ErrNoCompiler = errors.New("this gmemtop carries no stand-in GPU for this machine and found no C++ " +
		"compiler: install g++, or take a gmemtop for Linux on amd64 from make build or make dist")
	// ErrPlatform says that the stand-in is not for this machine.
	ErrPlatform = errors.New("the stand-in GPU is for Linux on amd64, and this is " + runtime.GOOS + " on " +
		runtime.GOARCH)
	// ErrNoCUDATorch says that an interpreter has no PyTorch that was built for CUDA.
	ErrNoCUDATorch = errors.New("no PyTorch built for CUDA")
)

// defaultCUDA is the CUDA version reported by a library built for no PyTorch.
const defaultCUDA = 12040

// Library is a compiled stand-in.
type Library struct {
	dir    string // holds libstandin.so, also under the names of NVIDIA's libraries
	python string // a folder with the Python side
	// CUDA is the version of CUDA that it stands in for, such as 13020.
	CUDA int
	// Torch is the version of the PyTorch that it was built for, such as "2.15.0+cu132"; "" for none.
	Torch string
}

// Path returns the path of the shared library.
func (l *Library) Path() string { return filepath.Join(l.dir, "libstandin.so") }

// Dir returns the folder in which the library is also found as libcuda.so.1 and libnvidia-ml.so.1.
func (l *Library) Dir() string { return l.dir }

// Build makes the stand-in for an interpreter's PyTorch, or for none if python is "": then it has the driver,
// the runtime and NVML, and no stubs for the other functions that PyTorch's libraries name. The result is
// kept in the user's cache folder. The error wraps ErrPlatform, ErrNoCompiler or ErrNoCUDATorch, or is the
// compiler's.
func Build(ctx context.Context, python string) (*Library, error) {
	return BuildTelling(ctx, python, func() {})
}

// BuildTelling is Build, and calls compiling once before something is compiled, which takes a minute.
func BuildTelling(ctx context.Context, python string, compiling func()) (*Library, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return nil, ErrPlatform
	}
	b, err := newBuilder(ctx)
	if err != nil {
		return nil, err
	}
	b.compiling = sync.OnceFunc(compiling)
	if python != "" {
		if err := b.findTorch(python); err != nil {
			return nil, err
		}
	}
	base, err := b.base()
	if err != nil {
		return nil, err
	}
	return b.join(base)
}

type builder struct {
	ctx       context.Context
	compiling func()   // called before something is compiled
	cxx       []string // the compiler's command
	cache     string
	cuda      int
	torch     string
	torchLibs []string // those of PyTorch's libraries that name CUDA's functions
	glibc     string   // the C library that the interpreter runs on, such as "2.36"; "" for unknown
}

func newBuilder(ctx context.Context) (*builder, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find a folder for the stand-in GPU: %w", err)
	}
	return &builder{ctx: ctx, compiling: func() {}, cache: filepath.Join(cache, "gmemtop", "standin"),
		cuda: defaultCUDA}, nil
}

// flags are for every compilation. Separate sections let the linker leave out what nothing uses.
var flags = []string{"-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-ffunction-sections",
	"-fdata-sections", "-pthread", "-Wall", "-Wextra"}

// base returns the library without stubs: the one contained in the program, or a compiled one.
func (b *builder) base() ([]byte, error) {
	if len(packed) > 0 {
		data, err := unpacked(packed)
		if err != nil {
			return nil, err
		}
		if needs, err := glibcOf(data); err != nil || b.glibc == "" || AtLeast(b.glibc, needs) {
			return data, err
		}
	}
	return b.compiled()
}

// compiled compiles the sources and links them with nothing but the names of the library of stubs.
func (b *builder) compiled() ([]byte, error) {
	if b.cxx = strings.Fields(os.Getenv("GMEMTOP_CXX")); len(b.cxx) == 0 {
		path, err := exec.LookPath("g++")
		if err != nil {
			return nil, ErrNoCompiler
		}
		b.cxx = []string{path}
	}
	src, objects := filepath.Join(b.cache, "src"), filepath.Join(b.cache, "objects")
	units, err := b.unpack(src)
	if err != nil {
		return nil, fmt.Errorf("unpack the stand-in GPU's sources: %w", err)
	}
	if err := os.MkdirAll(objects, 0o777); err != nil {
		return nil, fmt.Errorf("build the stand-in GPU: %w", err)
	}
	paths := make([]string, len(units))
	errs := make([]error, len(units))
	var wait sync.WaitGroup
	turn := make(chan struct{}, max(1, runtime.NumCPU()))
	for i, u := range units {
		wait.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			paths[i], errs[i] = b.compile(u, objects)
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("compile the stand-in GPU: %w", err)
	}
	return b.link(paths, objects)
}

// unit is a source file: its path, and the hash of everything that its object depends on.
type unit struct{ path, hash string }

var included = regexp.MustCompile(`(?m)^#include "([\w.]+)"`)

// unpack writes the sources where the compiler and a debugger find them.
func (b *builder) unpack(dir string) ([]unit, error) {
	entries, err := fs.ReadDir(sources, "src")
	if err != nil {
		return nil, err
	}
	texts := map[string][]byte{}
	all := sha256.New()
	for _, e := range entries {
		data, err := sources.ReadFile("src/" + e.Name())
		if err != nil {
			return nil, err
		}
		texts[e.Name()] = data
		fmt.Fprintf(all, "%s %d\n", e.Name(), len(data))
		all.Write(data)
	}
	dir = filepath.Join(dir, hex.EncodeToString(all.Sum(nil))[:16])
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	var units []unit
	for _, e := range entries {
		name := e.Name()
		if err := writeOnce(filepath.Join(dir, name), texts[name]); err != nil {
			return nil, err
		}
		if !strings.HasSuffix(name, ".cpp") {
			continue
		}
		u := unit{path: filepath.Join(dir, name)}
		key := sha256.New()
		// A source and the headers that it includes, directly or not, in the order found.
		met := []string{name}
		for i := 0; i < len(met); i++ {
			text := texts[met[i]]
			fmt.Fprintf(key, "%s %d\n", met[i], len(text))
			key.Write(text)
			for _, m := range included.FindAllSubmatch(text, -1) {
				if h := string(m[1]); !slices.Contains(met, h) {
					met = append(met, h)
				}
			}
		}
		u.hash = hex.EncodeToString(key.Sum(nil))
		units = append(units, u)
	}
	return units, nil
}

// writeOnce writes a file whose name identifies its content, atomically, unless it exists.
func writeOnce(path string, data []byte) error {
	if have, err := os.ReadFile(path); err == nil && slices.Equal(have, data) {
		return nil
	}
	return replace(path, func(partial string) error { return os.WriteFile(partial, data, 0o666) })
}

// replace makes a file under another name first, so that a concurrent build never sees half a file.
func replace(path string, make func(partial string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".partial-*")
	if err != nil {
		return err
	}
	partial := f.Name()
	defer os.Remove(partial)
	if err := errors.Join(f.Close(), make(partial)); err != nil {
		return err
	}
	return os.Rename(partial, path)
}

func (b *builder) compile(u unit, objects string) (string, error) {
	sum := sha256.Sum256([]byte(strings.Join(append(slices.Concat(flags, b.cxx), u.hash), "\n")))
	name := strings.TrimSuffix(filepath.Base(u.path), ".cpp")
	object := filepath.Join(objects, name+"-"+hex.EncodeToString(sum[:])[:16]+".o")
	if _, err := os.Stat(object); err == nil {
		return object, nil
	}
	b.compiling()
	return object, replace(object, func(partial string) error {
		return b.run(append(slices.Clone(flags), "-c", "-x", "c++", "-o", partial, u.path)...)
	})
}

func (b *builder) run(args ...string) error {
	out, err := exec.CommandContext(b.ctx, b.cxx[0], slices.Concat(b.cxx[1:], args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// exports names what a process finds in the library. The library is preloaded, so any other name that it
// showed, such as those of its C++ library, would replace the process's own.
const exports = `{
	global: cu*; __cuda*; nv*; nccl*; standin*; pthread_mutex_lock;
	local: *;
};
`

// link links the objects into the library.
func (b *builder) link(objects []string, folder string) ([]byte, error) {
	stubs, err := stubLibrary(b.cuda, nil)
	if err != nil {
		return nil, err
	}
	script := filepath.Join(folder, "exports-"+hashOf([]byte(exports))+".map")
	options := append([]string{"-shared", "-s", "-pthread", "-static-libstdc++", "-static-libgcc",
		"-Wl,--gc-sections", "-Wl,--version-script=" + script, "-Wl,-Bsymbolic", "-Wl,-soname,libstandin.so",
		"-Wl,-rpath,$ORIGIN", "-Wl,-z,defs"}, objects...)
	key := hashOf([]byte(strings.Join(slices.Concat(b.cxx, options, []string{exports}), "\n")))
	path := filepath.Join(folder, "libstandin-"+key+".so")
	if data, err := os.ReadFile(path); err == nil {
		return data, nil
	}
	beside := filepath.Join(folder, stubsName)
	if err := errors.Join(writeOnce(beside, stubs), writeOnce(script, []byte(exports))); err != nil {
		return nil, fmt.Errorf("link the stand-in GPU: %w", err)
	}
	options = append(options, "-Wl,--no-as-needed", beside, "-Wl,--as-needed", "-ldl", "-lrt")
	err = replace(path, func(partial string) error { return b.run(append(options, "-o", partial)...) })
	if err != nil {
		return nil, fmt.Errorf("link the stand-in GPU: %w", err)
	}
	return os.ReadFile(path)
}

// join puts the library into a folder with the stubs for a PyTorch.
func (b *builder) join(base []byte) (*Library, error) {
	key := sha256.New()
	fmt.Fprintln(key, b.cuda, stubsVersion)
	key.Write(base)
	for _, path := range b.torchLibs {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("look at PyTorch's libraries: %w", err)
		}
		fmt.Fprintln(key, path, info.Size(), info.ModTime().UnixNano())
	}
	dir := filepath.Join(b.cache, fmt.Sprintf("cuda%d-%s", b.cuda/1000,
		hex.EncodeToString(key.Sum(nil))[:16]))
	l := &Library{dir: dir, CUDA: b.cuda, Torch: b.torch}
	if err := l.unpackPython(b.cache); err != nil {
		return nil, fmt.Errorf("unpack the stand-in GPU's Python side: %w", err)
	}
	// The names under which programs open NVIDIA's libraries by themselves. What PyTorch's libraries are
	// linked with is preloaded.
	names := []string{"libcuda.so.1", "libnvidia-ml.so.1", fmt.Sprintf("libnvrtc.so.%d", b.cuda/1000)}
	if _, err := os.Stat(filepath.Join(dir, names[len(names)-1])); err == nil {
		return l, writeOnce(l.Path(), base)
	}
	stubs, err := b.stubs(base)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("build the stand-in GPU: %w", err)
	}
	err = errors.Join(writeOnce(filepath.Join(dir, stubsName), stubs), writeOnce(l.Path(), base))
	if err != nil {
		return nil, fmt.Errorf("build the stand-in GPU: %w", err)
	}
	for _, name := range names {
		if err := os.Symlink("libstandin.so", filepath.Join(dir, name)); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("build the stand-in GPU: %w", err)
		}
	}
	return l, nil
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:16]
}

// unpackPython writes the Python side to its own folder, named after its content.
func (l *Library) unpackPython(cache string) error {
	key := sha256.New()
	var names []string
	err := fs.WalkDir(sources, "compute", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".py") {
			return err
		}
		data, err := sources.ReadFile(path)
		fmt.Fprintf(key, "%s %d\n", path, len(data))
		key.Write(data)
		names = append(names, path)
		return err
	})
	if err != nil {
		return err
	}
	l.python = filepath.Join(cache, "python-"+hex.EncodeToString(key.Sum(nil))[:16])
	for _, name := range names {
		path := filepath.Join(l.python, strings.TrimPrefix(name, "compute/"))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		data, err := sources.ReadFile(name)
		if err != nil {
			return err
		}
		if err := writeOnce(path, data); err != nil {
			return err
		}
	}
	return nil
}
