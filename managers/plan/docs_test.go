package plan_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

func TestTheDocumentNamesEveryKeyOfAPlansFile(t *testing.T) {
	page, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, key := range plantest.JSONKeys(reflect.TypeFor[plan.PlanJSON]()) {
		if text := string(page); !strings.Contains(text, "`"+key+"`") &&
			!strings.Contains(text, "`"+key+"[]`") {
			t.Errorf("docs/plan.md does not say what %q is", key)
		}
		found++
	}
	if found < 30 {
		t.Errorf("only %d keys were looked for", found)
	}
}
