package replay

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// keys lists the JSON keys of a type and of all that it holds.
func keys(t reflect.Type) (all []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return keys(t.Elem())
	case reflect.Struct:
		for f := range t.NumField() {
			key, _, _ := strings.Cut(t.Field(f).Tag.Get("json"), ",")
			all = append(append(all, key), keys(t.Field(f).Type)...)
		}
	}
	return all
}

func TestTheDocumentNamesEveryKeyOfAComparison(t *testing.T) {
	page, err := os.ReadFile("../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## compare --json\n")
	section, _, _ = strings.Cut(section, "\n## ")
	found := 0
	for _, key := range keys(reflect.TypeFor[comparisonJSON]()) {
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
