package load

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces/near"
)

const (
	nearNames = 10_000 // names looked at in one folder
	longName  = 255    // bytes; no file's name is longer
)

// Missing returns the error for a path that names nothing. It asks for the file of that folder whose name is
// nearest, if one is near.
func Missing(path string) error {
	return suggest(fmt.Errorf("%s: %w", path, errMissing), path)
}

// errMissing is [fs.ErrNotExist] in the words that the system has for it.
var errMissing error = missing{}

type missing struct{}

func (missing) Error() string        { return "no such file or directory" }
func (missing) Is(target error) bool { return target == fs.ErrNotExist }

// suggest adds the nearest name to an error if it says that path names nothing.
func suggest(err error, path string) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if name := Near(path); name != "" {
		return fmt.Errorf("%w: did you mean %s?", err, name)
	}
	return err
}

// Near returns the path in the folder of the given one whose name is most like it, "" if none is like it. It
// looks at a bounded number of names. A name that a terminal would not show as it is, or a shell would take
// apart, is quoted.
func Near(path string) string {
	dir, typed := filepath.Split(path)
	if typed == "" || len(typed) > longName {
		return ""
	}
	in := dir
	if in == "" {
		in = "."
	}
	f, err := os.Open(in)
	if err != nil {
		return ""
	}
	defer f.Close()
	names, _ := f.Readdirnames(nearNames) // what was read before an error is as good
	best, least := "", near.Wrong+1
	for _, name := range names {
		if name[0] == '.' && typed[0] != '.' {
			continue
		}
		if d := unlike(typed, name); d < least || d == least && d <= near.Wrong && name < best {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	best = dir + best
	quoted := strconv.Quote(best)
	if quoted[1:len(quoted)-1] != best || strings.ContainsAny(best, " '$&|;<>()*?`") {
		return quoted
	}
	return best
}

// unlike returns how far a name is from what was typed: the letters that are wrong, whatever their case, and
// one more for another or no extension; more than near.Wrong for names that have little in common.
func unlike(typed, name string) int {
	a, b := strings.ToLower(typed), strings.ToLower(name)
	most := near.Most(a)
	d := near.Distance(a, b, most)
	switch {
	case stem(a) == stem(b):
		return min(d, 1)
	case stem(a) == a: // typed without the extension
		return min(d, 1+near.Distance(a, stem(b), most))
	}
	return d
}

func stem(name string) string {
	for {
		short := strings.TrimSuffix(name, filepath.Ext(name))
		if short == name || short == "" {
			return name
		}
		name = short
	}
}
