package plan

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

func TestTheDocumentNamesEveryKeyOfAPlansFile(t *testing.T) {
	page, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, key := range keys(reflect.TypeFor[planJSON]()) {
		if text := string(page); !strings.Contains(text, "`"+key+"`") && !strings.Contains(text, "`"+key+"[]`") {
			t.Errorf("docs/plan.md does not say what %q is", key)
		}
		found++
	}
	if found < 30 {
		t.Errorf("only %d keys were looked for", found)
	}
}
