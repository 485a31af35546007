// Package agent is the Python package that lives in a training process. The other files of this folder are
// its modules; [Bundle] joins them into one file, so that a process has no module of them to import.
package agent

import (
	"embed"
	"encoding/json"
	"regexp"
	"strings"
)

//go:embed *.py
var modules embed.FS

var (
	moduleDoc = regexp.MustCompile(`\A"""(?s:.*?)"""\n`)
	future    = regexp.MustCompile(`(?m)^from __future__ import annotations\n`)
	forTypes  = regexp.MustCompile(`(?m)^if TYPE_CHECKING:\n(?:(?: {4}.*)?\n)+`)
	says      = regexp.MustCompile(`\bSays\(\s*"(\w+)"`)
	relative  = regexp.MustCompile(`(?m)^from \.(\w+) import (?:\([^)]*\)|[^(\n]*)\n`)
)

// Bundle returns some modules, and all modules of the package that they import, as one file for Python 3.8
// and newer: each module after those that it imports, without the imports between them. They share one
// namespace, so no two of them may define the same name.
func Bundle(names ...string) string {
	var b strings.Builder
	b.WriteString("from __future__ import annotations\n")
	for _, name := range order(names) {
		source := read(name)
		for _, drop := range []*regexp.Regexp{moduleDoc, future, forTypes, relative} {
			source = drop.ReplaceAllString(source, "")
		}
		b.WriteString("\n# " + name + ".py\n" + strings.Trim(source, "\n") + "\n")
	}
	return b.String()
}

// noSentences is the line of says.py that has to be filled in for a program without a viewer.
const noSentences = "SENTENCES: dict[str, str] = {}"

// WithSentences returns a bundle that says whole sentences instead of a code and values for a viewer. It adds
// those sentences, by code, that the bundle uses.
func WithSentences(bundle string, sentences map[string]string) string {
	said := map[string]string{}
	for _, found := range says.FindAllStringSubmatch(bundle, -1) {
		if sentence, ok := sentences[found[1]]; ok {
			said[found[1]] = sentence
		}
	}
	quoted, _ := json.MarshalIndent(said, "", "    ") // strings by strings: Python reads it as a dict
	return strings.Replace(bundle, noSentences, strings.TrimSuffix(noSentences, "{}")+string(quoted), 1)
}

// order returns modules and all modules that they import, each once and after those that it imports.
func order(names []string) []string {
	var out []string
	seen := map[string]bool{}
	var add func(names []string)
	add = func(names []string) {
		for _, name := range names {
			if !seen[name] {
				seen[name] = true
				add(imports(name))
				out = append(out, name)
			}
		}
	}
	add(names)
	return out
}

// imports returns the modules of the package that a module imports.
func imports(name string) []string {
	var out []string
	for _, found := range relative.FindAllStringSubmatch(forTypes.ReplaceAllString(read(name), ""), -1) {
		out = append(out, found[1])
	}
	return out
}

func read(name string) string {
	text, err := modules.ReadFile(name + ".py")
	if err != nil {
		panic(err) // a module imports one that does not exist; the tests find that
	}
	return string(text)
}
