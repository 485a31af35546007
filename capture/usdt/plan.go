package usdt

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// Probes is a set of what to watch.
type Probes uint8

const (
	// PyTorch is the caching allocator of libc10_cuda.so: blocks.
	PyTorch Probes = 1 << iota
	// Driver is libcuda.so.1: segments of any CUDA program.
	Driver
)

// Site is one place in a library where a probe is put.
type Site struct {
	// Name is the probe's or the function's.
	Name string
	// Library is the file as the watched process sees it.
	Library string
	// Offset is the instruction's place in the file and Semaphore that of the probe's counter of watchers, 0
	// for none.
	Offset, Semaphore uint64
	// Emulated says that the kernel emulates the instruction, so that a hit is cheap.
	Emulated bool

	does                              action
	path                              string // opens the file
	out                               bool   // the result is known when the function returns
	addr, size, stream, device, pitch operand
}

// planPyTorch finds the static probes of an ELF file. There is a site for each place where the compiler put a
// probe, since the arguments differ between places.
func planPyTorch(lib library) ([]Site, error) {
	file, f, err := openELF(lib)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	list, err := notes(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; reinstall torch", lib.mapped, err)
	}
	var sites []Site
	found := [2]bool{}
	for _, n := range list {
		if n.Provider != "pytorch" || n.Name != "malloc" && n.Name != "free" {
			continue
		}
		s, err := siteOf(n, f)
		if err != nil {
			return nil, fmt.Errorf("%w in %s: %s has %w; report this build of torch, and until then %s",
				ErrNoProbes, lib.mapped, n, err, instead)
		}
		s.Library, s.path = lib.mapped, lib.path
		found[s.does] = true
		sites = append(sites, s)
	}
	if !found[blockAlloc] || !found[blockFree] {
		return nil, fmt.Errorf("%w: %s has no pytorch:malloc and pytorch:free, which torch has had since "+
			"2.2 on x86-64; gmemtop attach --probes=driver "+
			"PID shows segments, and %s", ErrNoProbes, lib.mapped, instead)
	}
	return sites, nil
}

// siteOf turns a note of PyTorch's into a site: malloc(pointer, device, size, stream), free(pointer).
func siteOf(n note, f *elf.File) (s Site, err error) {
	args, err := parseOperands(n.Args)
	if err != nil {
		return Site{}, err
	}
	s = Site{Name: n.String(), does: blockFree}
	code := codeAt(f, n.PC)
	s.Emulated = len(code) > 0 && isEmulated(code)
	want := 1
	if n.Name == "malloc" {
		s.does, want = blockAlloc, 4
	}
	if len(args) < want {
		return Site{}, fmt.Errorf("%d arguments where %d were expected", len(args), want)
	}
	s.addr = args[0]
	if n.Name == "malloc" {
		s.device, s.size, s.stream = args[1], args[2], args[3]
	}
	if s.Offset, err = fileOffset(f, n.PC); err != nil {
		return Site{}, err
	}
	if n.Semaphore != 0 {
		s.Semaphore, err = fileOffset(f, n.Semaphore)
	}
	return s, err
}

// planDriver finds the driver's functions in an ELF file, each address once.
func planDriver(lib library) ([]Site, error) {
	file, f, err := openELF(lib)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("%w: %s exports nothing (%w); reinstall the driver", ErrNoProbes,
			lib.mapped, err)
	}
	address := map[string]uint64{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			address[s.Name] = s.Value
		}
	}
	var sites []Site
	probed := map[uint64]bool{}
	for _, fn := range driverFunctions {
		at, exported := address[fn.name]
		if !exported || probed[at] {
			continue
		}
		probed[at] = true
		s, err := fn.site(f, at)
		if err != nil {
			return nil, fmt.Errorf("%w: %s of %s: %w", ErrNoProbes, fn.name, lib.mapped, err)
		}
		s.Library, s.path = lib.mapped, lib.path
		sites = append(sites, s)
	}
	if len(sites) == 0 {
		return nil, fmt.Errorf("%w: %s exports none of the driver's memory functions; it is not NVIDIA's",
			ErrNoProbes, lib.mapped)
	}
	return sites, nil
}

func (fn function) site(f *elf.File, at uint64) (s Site, err error) {
	s = Site{Name: fn.name, does: fn.does, out: fn.out}
	if s.Offset, err = fileOffset(f, at); err != nil {
		return Site{}, err
	}
	var offset int
	offset, s.Emulated = cheapOffset(codeAt(f, at))
	s.Offset += uint64(offset)
	for _, a := range []struct {
		to   *operand
		text string
	}{{&s.addr, fn.addr}, {&s.size, fn.size}, {&s.stream, fn.stream}, {&s.device, fn.device}, {&s.pitch,
		fn.pitch}} {
		list, err := parseOperands(a.text)
		if err != nil {
			return Site{}, err
		}
		if len(list) > 0 {
			*a.to = list[0]
		}
	}
	return s, nil
}

// codeAt returns the code at an address, as much as we examine; nothing if the address is not in the file.
func codeAt(f *elf.File, address uint64) []byte {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Vaddr <= address && address-p.Vaddr < p.Filesz {
			code := make([]byte, min(maxPrologue, p.Filesz-(address-p.Vaddr)))
			n, _ := p.ReadAt(code, int64(address-p.Vaddr)) // a short read is judged by what there is
			return code[:n]
		}
	}
	return nil
}

func openELF(lib library) (*os.File, *elf.File, error) {
	file, err := os.Open(lib.path)
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil, fmt.Errorf("%w: %s, which the process has loaded, may not be opened (%w): run "+
			"gmemtop with sudo; a file that was replaced "+
			"while the process runs also opens once the process is started again", ErrPermission,
			lib.mapped, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open %s, which the process has loaded: %w; run gmemtop as root, or "+
			"where the process runs", lib.mapped, err)
	}
	f, err := elf.NewFile(file)
	if err == nil && f.Machine != elf.EM_X86_64 {
		err = fmt.Errorf("%w: it is for %v and probes are supported on x86-64; %s", ErrUnsupported,
			f.Machine, instead)
	}
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("read %s: %w", lib.mapped, err)
	}
	return file, f, nil
}

// plan finds everything to probe in a process. want is what to watch, 0 for PyTorch if it is loaded and the
// driver otherwise.
func plan(root string, pid int, want Probes) ([]Site, error) {
	maps, err := readMaps(root, pid)
	if err != nil {
		return nil, err
	}
	if len(maps) == 0 {
		if starting(root, pid) {
			return nil, fmt.Errorf("%w: process %d is being started; try again, or wait", ErrNotLoaded, pid)
		}
		return nil, fmt.Errorf("%w: %d runs no program: it has ended and waits for its parent, or it is a "+
			"thread of the kernel", ErrNoProcess, pid)
	}
	torch, hasTorch := findLibrary(root, pid, maps, isPyTorch)
	driver, hasDriver := findLibrary(root, pid, maps, isDriver)
	if want == 0 {
		if want = Driver; hasTorch {
			want = PyTorch
		}
	}
	var sites []Site
	if want&PyTorch != 0 {
		if !hasTorch {
			return nil, fmt.Errorf("%w: process %d has no libc10_cuda.so: torch is not imported yet, or is "+
				"built without CUDA; wait, or watch its "+
				"driver calls: gmemtop attach --probes=driver %d; %s", ErrNotLoaded, pid, pid, instead)
		}
		if sites, err = planPyTorch(torch); err != nil {
			return nil, err
		}
	}
	if want&Driver != 0 {
		if !hasDriver {
			return nil, fmt.Errorf("%w: process %d has no libcuda.so.1: it has not used CUDA yet; wait "+
				"until it does", ErrNotLoaded, pid)
		}
		more, err := planDriver(driver)
		if err != nil {
			return nil, err
		}
		sites = append(sites, more...)
	}
	slices.SortStableFunc(sites, func(a, b Site) int { return cmp.Compare(a.does, b.does) })
	return sites, nil
}
