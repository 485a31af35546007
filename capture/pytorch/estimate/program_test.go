package estimate

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What a file imports is part of each program that the file is in, and no import of a module of ours is left:
// in the process there is no such module.
func TestAProgramHasWhatItsFilesImport(t *testing.T) {
	of := regexp.MustCompile(`(?m)^from \.(\w+) import `)
	for name, all := range map[string][]string{"modelled": modelled,
		"rehearsed": slices.Concat(describing, rehearsed)} {
		found := 0
		for _, file := range all {
			text, err := files.ReadFile(file + ".py")
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range of.FindAllStringSubmatch(string(text), -1) {
				found++
				if !slices.Contains(all, m[1]) {
					t.Errorf("%s: %s.py imports %s, which is not there", name, file, m[1])
				}
			}
		}
		if text := program(all...); found < 10 || strings.Contains(text, "\nfrom .") ||
			strings.Contains(text, "\nfrom agent") {
			t.Errorf("%s: %d imports, some of which are left", name, found)
		}
	}
}
