package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// names returns all modules of the package.
func names(t *testing.T) []string {
	t.Helper()
	files, err := modules.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".py"); name != "__init__" {
			out = append(out, name)
		}
	}
	return out
}

// TestNoTwoModulesDefineOneName: in a bundle they share a name space, in which a name that two of them define
// is the later one's in both.
func TestNoTwoModulesDefineOneName(t *testing.T) {
	defines := regexp.MustCompile(`(?m)^(?:(?:class|def) (\w+)|(\w+(?:, \w+)*)(?:: .*)? = )`)
	owner := map[string]string{}
	for _, module := range names(t) {
		for _, found := range defines.FindAllStringSubmatch(read(module), -1) {
			for name := range strings.SplitSeq(found[1]+found[2], ", ") {
				if by, taken := owner[name]; taken && by != module {
					t.Errorf("%s is defined by %s and by %s", name, by, module)
				}
				owner[name] = module
			}
		}
	}
	for _, name := range []string{"Agent", "attach", "STALE", "COMPARED_EVERY"} {
		if _, ok := owner[name]; !ok {
			t.Errorf("%s is not seen: nothing is shown of the others", name)
		}
	}
}

// TestABundleImportsNothingOfThePackage: in a training process there is no package to import from. An import
// under another name is one that Bundle does not understand.
func TestABundleImportsNothingOfThePackage(t *testing.T) {
	ours := regexp.MustCompile(`(?m)^\s*(?:from|import) +(?:\.|agent\b).*|^from \.\w+ import .* as .*`)
	for _, module := range names(t) {
		if found := ours.FindString(Bundle(module)); found != "" {
			t.Errorf("the bundle of %s imports: %s", module, found)
		}
		for _, found := range relative.FindAllString(read(module), -1) {
			if strings.Contains(found, " as ") {
				t.Errorf("%s imports under another name: %s", module, found)
			}
		}
	}
}

// TestTheAgentIsAllOfThePackage: a module that nothing imports is one that nobody needs. One is there for
// type checkers alone, and one is not for the agent but for programs with a plan of their own.
func TestTheAgentIsAllOfThePackage(t *testing.T) {
	bundled := order([]string{"arrive", "alone"})
	for _, module := range names(t) {
		if !slices.Contains(bundled, module) && module != "kinds" {
			t.Errorf("nothing imports %s", module)
		}
	}
}

// python runs a script with python3 and returns what it printed.
func python(t *testing.T, script string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	cmd := exec.Command(path, append([]string{"-c", script}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestABundleIsThePackage imports each module as Python does, and runs the bundle: both define the same.
func TestABundleIsThePackage(t *testing.T) {
	const script = `
import ast, importlib, os, sys
sys.path.insert(0, os.path.dirname(os.getcwd()))
space = {"__name__": "gmemtop_agent"}
with open(sys.argv[1]) as f:
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)
for name in sys.argv[2:]:
    module = importlib.import_module("agent." + name)
    for defined in vars(module):
        if not defined.startswith("__") and defined != "TYPE_CHECKING" and defined not in space:
            print(name, defined)
del sys.path[0]
`
	bundle := filepath.Join(t.TempDir(), "agent.py")
	if err := os.WriteFile(bundle, []byte(Bundle("arrive")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := python(t, script, append([]string{bundle}, order([]string{"arrive"})...)...); out != "" {
		t.Errorf("the bundle lacks, of these modules:\n%s", out)
	}
}
