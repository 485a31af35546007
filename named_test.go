package gmemtop_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every module of the agent has its place in the table of docs/architecture.md.
func TestTheTableOfTheAgentsModulesIsWhole(t *testing.T) {
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n## The agent\n")
	if !found {
		t.Fatal("docs/architecture.md has no section on the agent")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	modules, err := filepath.Glob("capture/pytorch/agent/*.py")
	if err != nil || len(modules) == 0 {
		t.Fatal("no modules of the agent:", err)
	}
	for _, path := range modules {
		name := strings.TrimSuffix(filepath.Base(path), ".py")
		if name != "__init__" && !strings.Contains(table, "`"+name+"`") {
			t.Errorf("docs/architecture.md does not say what capture/pytorch/agent/%s.py does", name)
		}
	}
}

// goFile matches the name of a Go file, with or without folders, in a comment.
var goFile = regexp.MustCompile(`\b[a-z0-9_/]+\.go\b`)

// A Go file that a comment names is in the tree.
func TestFilesNamedInCommentsExist(t *testing.T) {
	var sources []string
	exist := map[string]bool{"main.go": true} // the usual example of a program
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && len(path) > 1 && strings.HasPrefix(e.Name(), ".") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			sources = append(sources, path)
			exist[filepath.Base(path)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range sources {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(source), "\n") {
			_, comment, _ := strings.Cut(line, "//")
			for _, name := range goFile.FindAllString(comment, -1) {
				if !exist[filepath.Base(name)] {
					t.Errorf("%s:%d names %s, which does not exist", path, i+1, name)
				}
			}
		}
	}
}
