package load

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	nearNames = 10_000 // names looked at in one folder
	nearWrong = 3      // letters that may differ in the longest names
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
	best, least := "", nearWrong+1
	for _, name := range names {
		if name[0] == '.' && typed[0] != '.' {
			continue
		}
		if d := unlike(typed, name); d < least || d == least && d <= nearWrong && name < best {
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

// Nearest returns the name that is most like a word, "" if none is like it.
func Nearest(typed string, names []string) string {
	best, least := "", nearWrong+1
	for _, name := range names {
		if d := unlike(typed, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// unlike returns how far a name is from what was typed: the letters that are wrong, whatever their case, and
// one more for another or no extension; more than nearWrong for names that have little in common.
func unlike(typed, name string) int {
	a, b := strings.ToLower(typed), strings.ToLower(name)
	most := max(1, min(nearWrong, len(a)/4))
	d := distance(a, b, most)
	switch {
	case stem(a) == stem(b):
		return min(d, 1)
	case stem(a) == a: // typed without the extension
		return min(d, 1+distance(a, stem(b), most))
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

// distance counts the letters to insert, remove, replace or exchange with the next one that make a of b,
// nearWrong+1 if there are more than most.
func distance(a, b string, most int) int {
	if len(a)-len(b) > most || len(b)-len(a) > most {
		return nearWrong + 1
	}
	row, before, earlier := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range before {
		before[j] = j
	}
	for i := range len(a) {
		// further from the diagonal than most, more is wrong than that
		from, to := max(0, i-most), min(len(b), i+1+most)
		row[from] = i + 1
		for j := from; j < to; j++ {
			least := before[j]
			if a[i] != b[j] {
				least++
			}
			least = min(least, row[j]+1)
			if j+1 < i+1+most {
				least = min(least, before[j+1]+1)
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				least = min(least, earlier[j-1]+1)
			}
			row[j+1] = least
		}
		row, before, earlier = earlier, row, before
	}
	if before[len(b)] > most {
		return nearWrong + 1
	}
	return before[len(b)]
}
