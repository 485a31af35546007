package estimate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/gmemtop/gmemtop/capture/aside"
)

// sparing says what a command may change: caches, as left.py does, and what is in its folder.
func sparing(env []string, folder string) aside.Options {
	o := aside.Options{Scratch: folder, Free: []string{folder}}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		switch {
		case value == "":
			continue
		case name == "HOME":
			value = filepath.Join(value, ".cache")
		case !slices.Contains(caches, name):
			continue
		}
		if path, err := filepath.Abs(value); err == nil {
			o.Free = append(o.Free, path)
		}
	}
	// the file system's clock, as for all processes of the command
	if info, err := os.Stat(filepath.Join(folder, "config.json")); err == nil {
		o.Began = info.ModTime()
	}
	return o
}

// caches are the variables that name folders of caches, in left.py too.
var caches = []string{"XDG_CACHE_HOME", "HF_HOME", "HF_DATASETS_CACHE", "TORCH_HOME", "TRITON_CACHE_DIR",
	"MPLCONFIGDIR"}

// left is a file or a folder that a script made, as left.py notes it.
type left struct {
	path           string
	folder         bool
	device, number uint64 // of a file: the file system and the number that it has there
}

// sweep removes what the processes of a command made, which has ended. A file stays if another one is at its
// place now, and a folder if something else is in it.
func sweep(folder string) (files, folders int) {
	lists, err := filepath.Glob(filepath.Join(folder, "*.left"))
	if err != nil {
		panic(err) // the pattern is ours
	}
	for _, path := range lists {
		all := readLeft(path)
		for i := len(all) - 1; i >= 0; i-- { // what is in a folder was made after it
			switch l := all[i]; {
			case l.folder && syscall.Rmdir(l.path) == nil:
				folders++
			case !l.folder && l.there() && os.Remove(l.path) == nil:
				files++
			}
		}
	}
	return files, folders
}

// removed says in notes what was removed after a command.
func removed(files, folders int) []string {
	switch {
	case files == 0 && folders == 0:
		return nil
	case folders == 0:
		return []string{fmt.Sprintf("files that the script made were removed afterwards: %d", files)}
	}
	return []string{fmt.Sprintf("files and folders that the script made were removed afterwards: %d and %d",
		files, folders)}
}

// there reports whether the file is still the one that the script made.
func (l *left) there() bool {
	info, err := os.Lstat(l.path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && uint64(stat.Dev) == l.device && stat.Ino == l.number
}

// readLeft reads what one process made, in that order. A line that is cut off ends it.
func readLeft(path string) (all []left) {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var what, at, to string
		l := left{}
		switch json.Unmarshal(lines.Bytes(), &[]any{&what}); what {
		case "file":
			err = json.Unmarshal(lines.Bytes(), &[]any{&what, &l.path, &l.device, &l.number})
		case "folder":
			l.folder = true
			err = json.Unmarshal(lines.Bytes(), &[]any{&what, &l.path})
		case "moved":
			err = json.Unmarshal(lines.Bytes(), &[]any{&what, &at, &to})
			move(all, at, to)
		}
		if err != nil || what == "" {
			return all
		}
		if l.path != "" {
			all = append(all, l)
		}
	}
	return all
}

// move gives what was at a path, or in a folder of that path, its new path.
func move(all []left, at, to string) {
	for i := range all {
		rest, in := strings.CutPrefix(all[i].path, at)
		if in && (rest == "" || rest[0] == filepath.Separator) {
			all[i].path = to + rest
		}
	}
}
