package say

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestAgentSentencesAreFilledInOrPassedOn(t *testing.T) {
	const text = "as it came"
	for _, c := range []struct{ name, wire, want string }{
		{"gaps", `{"code":"plan_device","values":["cuda:0","cpu"]}`,
			"the plan is for cuda:0, but the parameters are on cpu"},
		{"a large number", `{"code":"graphs_replayed","values":[12345678901]}`,
			"12345678901 CUDA graphs were replayed: gmemtop does not see the ops in them"},
		{"a nested sentence", `{"code":"plan_not_begun","values":[{"code":"plan_version","values":["2"]}]}`,
			"not begun: the plan has version 2, but this agent only supports version 1"},
		{"an older agent's", `{}`, text},
		{"a newer agent's", `{"code":"later","values":[]}`, text},
		{"too few values", `{"code":"plan_device","values":["cpu"]}`, text},
		{"too many values", `{"code":"plan_rocm","values":["cpu"]}`, text},
		{"no values", `{"code":"plan_device"}`, text},
		{"an unknown nested sentence",
			`{"code":"plan_not_begun","values":[{"code":"later"}]}`, text},
		{"a value of another type", `{"code":"plan_not_begun","values":[[1]]}`, text},
		{"too deep", strings.Repeat(`{"code":"plan_not_begun","values":[`, 9) + `"x"` +
			strings.Repeat(`]}`, 9), text},
		{"not an object", `[1]`, text},
		{"a code that is not a string", `{"code":1}`, text},
		{"nothing", `null`, text},
		{"a verb in a value", `{"code":"plan_off","values":["100%s"]}`,
			"off, and training goes on as before: 100%s"},
	} {
		var told Told
		if err := json.Unmarshal([]byte(c.wire), &told); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := told.Text(text); got != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
}

// TestTheAgentAndTheCatalogueAgree reads the agent's source: each code has a sentence here with as many gaps
// as the agent fills, and the agent uses every sentence.
func TestTheAgentAndTheCatalogueAgree(t *testing.T) {
	files, err := filepath.Glob("../pytorch/agent/*.py")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	said := map[string]bool{}
	call := regexp.MustCompile(`\bSays\(`)
	code := regexp.MustCompile(`^\s*"(\w+)"$`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(source)
		for _, at := range call.FindAllStringIndex(text, -1) {
			if strings.HasSuffix(text[:at[0]], "class ") {
				continue
			}
			args := arguments(text[at[1]:])
			found := code.FindStringSubmatch(args[0])
			if found == nil {
				t.Errorf("%s: the code is not a string: %s", file, args[0])
				continue
			}
			said[found[1]] = true
			if gaps := strings.Count(agent[found[1]], "%s"); gaps != len(args)-1 {
				t.Errorf("%s: %s has %d gaps, and %d are filled", file, found[1], gaps, len(args)-1)
			}
		}
	}
	for _, c := range slices.Sorted(maps.Keys(said)) {
		if agent[c] == "" {
			t.Errorf("%s has no sentence", c)
		}
	}
	for c, sentence := range agent {
		if !said[c] {
			t.Errorf("the agent never says %s", c)
		}
		if strings.Count(sentence, "%") != strings.Count(sentence, "%s") {
			t.Errorf("%s has a gap that is not %%s, which Python and Go fill alike: %s", c, sentence)
		}
	}
}

// arguments splits what follows the parenthesis of a call in Python.
func arguments(text string) (out []string) {
	depth, begin, quoted := 0, 0, false
	for i, c := range text {
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case strings.ContainsRune("([{", c):
			depth++
		case strings.ContainsRune(")]}", c) && depth > 0:
			depth--
		case c == ')', c == ',' && depth == 0:
			if arg := text[begin:i]; strings.TrimSpace(arg) != "" {
				out = append(out, arg)
			}
			if begin = i + 1; c == ')' {
				return out
			}
		}
	}
	return out
}
