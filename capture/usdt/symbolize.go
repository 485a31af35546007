package usdt

import (
	"cmp"
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strconv"

	"github.com/gmemtop/gmemtop/traces"
)

// stackTable is the kernel's table of stacks: the return addresses of a stack, innermost first, zero past the
// outermost.
type stackTable interface {
	Lookup(id, addresses any) error
}

// maxFrames is the depth of the kernel's stacks.
const maxFrames = 127

// symbolizer names the frames of native stacks after the functions of the files that hold them. It reads the
// process's mappings when an address is in none of the known ones.
type symbolizer struct {
	root  string
	pid   int
	table stackTable

	maps   []mapping
	files  map[string]*symbols
	stacks map[int32][]uint64
	missed bool // the last look at the mappings found nothing new
	frames []traces.FrameID
}

type symbols struct {
	starts, sizes []uint64 // by address
	names         []string
	progs         []elf.ProgHeader
}

func newSymbolizer(root string, pid int, table stackTable) *symbolizer {
	return &symbolizer{root: root, pid: pid, table: table, files: map[string]*symbols{},
		stacks: map[int32][]uint64{}}
}

// stack returns the trace's stack for one of the kernel's. Ids are the kernel's hashes; the kernel keeps the
// first stack of each.
func (s *symbolizer) stack(b *traces.Builder, id int32) traces.StackID {
	addresses, known := s.stacks[id]
	if !known {
		var all [maxFrames]uint64
		if err := s.table.Lookup(uint32(id), &all); err == nil {
			n := slices.Index(all[:], 0)
			if n < 0 {
				n = maxFrames
			}
			addresses = slices.Clone(all[:n])
		}
		s.stacks[id] = addresses
	}
	s.frames = s.frames[:0]
	for i, a := range addresses {
		if i > 0 {
			a-- // a return address: the call is before it
		}
		s.frames = append(s.frames, b.Frame(s.frame(b, a)))
	}
	return b.Stack(s.frames)
}

func (s *symbolizer) frame(b *traces.Builder, address uint64) traces.Frame {
	m, ok := s.find(address)
	if !ok {
		return traces.Frame{Func: b.String(fmt.Sprintf("%#x", address))}
	}
	file := s.files[m.path]
	if file == nil {
		file = readSymbols(filepath.Join(s.root, strconv.Itoa(s.pid), "root", m.path))
		s.files[m.path] = file
	}
	return traces.Frame{File: b.String(m.path), Func: b.String(file.name(address - m.start + m.offset))}
}

func (s *symbolizer) find(address uint64) (mapping, bool) {
	at := func() (mapping, bool) {
		i := sort.Search(len(s.maps), func(i int) bool { return s.maps[i].end > address })
		if i < len(s.maps) && s.maps[i].start <= address {
			return s.maps[i], true
		}
		return mapping{}, false
	}
	if m, ok := at(); ok || s.missed {
		return m, ok
	}
	maps, err := readMaps(s.root, s.pid)
	// otherwise each address of generated code would read the file again
	s.missed = err != nil || len(maps) == len(s.maps)
	if err != nil {
		return mapping{}, false
	}
	s.maps = maps
	return at()
}

func readSymbols(path string) *symbols {
	out := &symbols{}
	f, err := elf.Open(path)
	if err != nil {
		return out // its frames are shown by their offset
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			out.progs = append(out.progs, p.ProgHeader)
		}
	}
	list, _ := f.Symbols() // a stripped file has only exported ones
	exported, _ := f.DynamicSymbols()
	list = append(list, exported...)
	slices.SortStableFunc(list, func(a, b elf.Symbol) int { return cmp.Compare(a.Value, b.Value) })
	for _, x := range list {
		if elf.ST_TYPE(x.Info) == elf.STT_FUNC && x.Section != elf.SHN_UNDEF &&
			(len(out.starts) == 0 || out.starts[len(out.starts)-1] != x.Value) {
			out.starts, out.sizes, out.names = append(out.starts, x.Value), append(out.sizes, x.Size),
				append(out.names, x.Name)
		}
	}
	return out
}

// name returns the function at an offset in the file, or the offset.
func (s *symbols) name(offset uint64) string {
	for _, p := range s.progs {
		if p.Off <= offset && offset-p.Off < p.Filesz {
			address := offset - p.Off + p.Vaddr
			i := sort.Search(len(s.starts), func(i int) bool { return s.starts[i] > address }) - 1
			if i >= 0 && (address-s.starts[i] < s.sizes[i] || s.sizes[i] == 0) {
				return s.names[i]
			}
		}
	}
	return fmt.Sprintf("+%#x", offset)
}
