package replay

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

func TestTheDocumentNamesEveryKeyOfAComparison(t *testing.T) {
	page, err := os.ReadFile("../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## compare --json\n")
	section, _, _ = strings.Cut(section, "\n## ")
	found := 0
	for _, key := range plantest.JSONKeys(reflect.TypeFor[comparisonJSON]()) {
		if key == "schema_version" { // every document's
			continue
		}
		if !strings.Contains(section, "`"+key+"`") && !strings.Contains(section, "`"+key+"[]`") {
			t.Errorf("docs/json.md does not say what %q is", key)
		}
		found++
	}
	if found < 60 {
		t.Errorf("only %d keys were looked for", found)
	}
}
