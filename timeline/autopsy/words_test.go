package autopsy

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// leverNamed matches where a lever or a remedy gets its name.
var leverNamed = regexp.MustCompile(`(?:Lever|remedy)\{\s*[Nn]ame: *"([a-z0-9_]+)"|` +
	`lever\.name(?:, f\.lever\.command)? = "([a-z0-9_]+)"`)

// counted matches a count in a format that prints it without separators between thousands.
var counted = regexp.MustCompile(`%d (?:\w+ )?(?:blocks|calls|steps|forwards|batches|times|of them)\b`)

func TestCountsInSentencesHaveSeparators(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if m := counted.Find(text); m != nil {
			t.Errorf("%s has %q: use nBlocks and the like", file, m)
		}
	}
}

func TestEveryLeverHasWordsForPeople(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range leverNamed.FindAllStringSubmatch(string(text), -1) {
			found[m[1]+m[2]] = true
		}
	}
	if len(found) < 40 {
		t.Errorf("only %d names found: %v", len(found), found)
	}
	for name := range found {
		if _, ok := leverWords[name]; !ok {
			t.Errorf("%s has no words", name)
		}
	}
}
