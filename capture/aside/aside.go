// Package aside runs a command so that it changes no file that was there before, and reaches neither another
// machine nor a server on this one.
//
// A script that runs on made-up values writes in many ways: Python's own functions, libraries in other
// languages, programs that it starts. So the kernel asks us before each call that opens a file for writing,
// removes or renames one, or connects (seccomp's user notification). The command cannot tell: what it writes
// to a file that was there goes to a copy, and removing that file does nothing. Files that it makes are
// removed afterwards.
//
// This is no protection against a hostile program, which could change a path while we look at it. Where the
// kernel offers nothing of the kind, the command runs as it is, and a note says so.
//
// Rejected: replacing functions of the C library, which programs in Go do not call. Rejected: a file system
// laid over the real one, which needs privileges and cannot be relied on in containers.
package aside

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Options say what a command may change.
type Options struct {
	// Free are folders in which it may change everything, such as caches.
	Free []string
	// Scratch is the folder for copies of the files that it writes to.
	Scratch string
	// Began separates the files that were there, which are older, from those of the command.
	Began time.Time
}

// free reports whether the command may change what is at a path. Compiled modules of Python are a cache.
func (o *Options) free(path string) bool {
	if strings.Contains(path, "/__pycache__/") {
		return true
	}
	for _, folder := range o.Free {
		if rest, ok := strings.CutPrefix(path, folder); ok && (rest == "" || rest[0] == filepath.Separator) {
			return true
		}
	}
	return false
}

// Guard watches one command.
type Guard struct {
	watch *watch // nil where the kernel cannot ask
	off   error  // why it cannot
	kept  []string
	lost  []string
	hosts []string
}

// named is how many files or addresses a note names.
const named = 6

// Notes say, in sentences, what the command was kept from. The command must have ended.
func (g *Guard) Notes() []string {
	var notes []string
	if g.off != nil {
		notes = append(notes, fmt.Sprintf("this system cannot watch what libraries and programs do (%v): "+
			"only what Python's own functions and torch wrote was caught", g.off))
	}
	say := func(what string, all []string) {
		if len(all) == 0 {
			return
		}
		what += ": " + strings.Join(all[:min(len(all), named)], ", ")
		if more := len(all) - named; more > 0 {
			what += fmt.Sprintf(" and %d more", more)
		}
		notes = append(notes, what)
	}
	say("libraries or programs wrote to existing files, and what they wrote was thrown away", g.lost)
	say("libraries or programs tried to remove or rename existing files, which stay as they are", g.kept)
	say("connections were refused, since an estimate uses no network", g.hosts)
	return notes
}
