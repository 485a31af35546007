package frames

import (
	"hash/fnv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// Hashes hashes every stack so that the same code in two recordings hashes alike even if lines were added
// above it, the two lie in different folders, or scripts of different names started them. It hashes each
// frame's function and the last two elements of its path, without the line; for frames of the script itself
// (the file of the outermost Python frame) only the function. C++ frames are left out if the stack has Python
// frames, since they differ between builds of PyTorch, and so are the wrappers of mixed precision. Calls of
// one function from several lines of another get the same hash.
func (f *Kinds) Hashes(tr *traces.Trace) []uint64 {
	type frame struct {
		full, function uint64
		file           traces.StringID
		python, left   bool
	}
	frames := make([]frame, len(tr.Frames))
	h := fnv.New64a()
	hash := func(s string) uint64 {
		h.Reset()
		h.Write([]byte(s))
		return h.Sum64()
	}
	for i := range tr.Frames {
		fn, file, _ := tr.FrameText(traces.FrameID(i))
		k := f.Frames[i]
		frames[i] = frame{
			full: hash(fn + "\x00" + PathEnd(file, 2)), function: hash(fn), file: tr.Frames[i].File,
			python: k.Has(KindPython) && !k.Has(KindModule), left: k.Has(KindAutocast),
		}
	}
	hashes := make([]uint64, tr.Stacks.Len())
	for i := range hashes {
		ids := tr.Stacks.At(traces.StackID(i))
		script := traces.StringID(-1)
		for _, f := range ids {
			if frames[f].python {
				script = frames[f].file
			}
		}
		sum := uint64(1)
		for _, id := range ids {
			switch f := &frames[id]; {
			case script < 0:
				sum = Mix(sum ^ f.full)
			case !f.python || f.left:
			case f.file == script:
				sum = Mix(sum ^ f.function)
			default:
				sum = Mix(sum ^ f.full)
			}
		}
		hashes[i] = sum
	}
	return hashes
}

// PathEnd returns the last n elements of a path from any operating system, joined by slashes.
func PathEnd(p string, n int) string {
	p = strings.ReplaceAll(p, `\`, "/")
	at := len(p)
	for range n {
		if at = strings.LastIndexByte(p[:at], '/'); at < 0 {
			return p
		}
	}
	return p[at+1:]
}

// Mix is the finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
// OOPSLA 2014).
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
