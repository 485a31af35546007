package estimate

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// interpreter finds the Python that a command probably starts, whose torch the stand-in has to fit: the
// command itself; the one that its script names, as the scripts of torchrun and accelerate do; a later word,
// as after env or nice; otherwise the one on PATH, "" for none. Only the first is certain: uv and poetry
// choose their own, and a shell script may name any.
func interpreter(argv []string) (python string, certain bool, err error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return "", false, err
	}
	if isPython(path) {
		return path, true, nil
	}
	named, err := scripted(path)
	if err != nil {
		return "", false, err
	}
	words := []string{named}
	for _, word := range argv[1:] {
		if isPython(word) {
			words = append(words, word)
		}
		if strings.HasSuffix(word, ".py") {
			break // the rest is the script's own
		}
	}
	for _, word := range append(words, "python", "python3") {
		if python, err := exec.LookPath(word); err == nil {
			return python, false, nil
		}
	}
	return "", false, nil
}

func isPython(path string) bool { return strings.HasPrefix(filepath.Base(path), "python") }

// scripted returns the Python that a script's first lines name, "" for none. If its path is too long for the
// first line, pip writes a shell script whose second line executes Python.
func scripted(path string) (python string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewReader(io.LimitReader(f, 4096))
	first, _ := lines.ReadString('\n')
	line, ok := strings.CutPrefix(first, "#!")
	if !ok {
		return "", nil
	}
	words := strings.Fields(line)
	if len(words) > 1 && filepath.Base(words[0]) == "env" {
		words = words[1:]
	}
	if len(words) > 0 && isPython(words[0]) {
		return words[0], nil
	}
	second, _ := lines.ReadString('\n')
	if m := executed.FindStringSubmatch(second); m != nil && isPython(m[1]+m[2]) {
		return m[1] + m[2], nil
	}
	return "", nil
}

var executed = regexp.MustCompile(`^'''exec' (?:"([^"]+)"|(\S+))`)
