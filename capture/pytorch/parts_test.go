package pytorch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNoTwoPartsOfTheAgentDefineOneName: they are one file, in which a name that two of them define is the
// later one's in both.
func TestNoTwoPartsOfTheAgentDefineOneName(t *testing.T) {
	defines := regexp.MustCompile(`(?m)^(?:(?:class|def) (\w+)|(\w+(?:, \w+)*) = )`)
	owner := map[string]int{}
	for k, source := range parts() {
		for _, found := range defines.FindAllStringSubmatch(source, -1) {
			for name := range strings.SplitSeq(found[1]+found[2], ", ") {
				if by, taken := owner[name]; taken && by != k {
					t.Errorf("%s is defined by parts %d and %d of the agent", name, by, k)
				}
				owner[name] = k
			}
		}
	}
	for _, name := range []string{"Agent", "attach", "STALE", "COMPARED_EVERY"} {
		if _, ok := owner[name]; !ok {
			t.Errorf("%s is not seen: nothing is shown of the others", name)
		}
	}
}

// TestAPlansFirstThreeStepsAndOneOfFiftyAreCompared: in the agent as a whole, and needs a Python and no
// torch.
func TestAPlansFirstThreeStepsAndOneOfFiftyAreCompared(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	const script = `
import sys
space = {"__name__": "gmemtop_agent"}
exec(open(sys.argv[1]).read(), space)
class Carrier(object):
    plan = {}
def checks(k):
    Carrier.iterations = k
    return space["_Iteration"](Carrier).checks
print([k for k in range(160) if checks(k)])
`
	agent := filepath.Join(t.TempDir(), "agent.py")
	if err := os.WriteFile(agent, []byte(Agent()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, "-c", script, agent).CombinedOutput()
	if want := "[0, 1, 2, 50, 100, 150]\n"; err != nil || string(out) != want {
		t.Errorf("steps %s%v; want %s", out, err, want)
	}
}
