package emit

import (
	"os"
	"path/filepath"
)

// RuntimeFile is the file [Runtime] in the folder of a plan's Python file.
type RuntimeFile struct {
	Path string
	// Current says that the file is there as [RuntimeSource] has it, Changed that a file is there with
	// another text. Both are false if there is none, or something that is no regular file.
	Current, Changed bool
}

// RuntimeBeside looks for the file beside a plan's Python file.
func RuntimeBeside(path string) RuntimeFile {
	b := RuntimeFile{Path: filepath.Join(filepath.Dir(path), Runtime)}
	if info, err := os.Stat(b.Path); err != nil || !info.Mode().IsRegular() {
		return b
	}
	text, err := os.ReadFile(b.Path)
	b.Current = err == nil && string(text) == RuntimeSource()
	b.Changed = !b.Current
	return b
}
