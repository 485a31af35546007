package plantest

import (
	"reflect"
	"strings"
)

// JSONKeys lists the JSON keys of a type and of everything in it, to compare documents with them.
func JSONKeys(t reflect.Type) (all []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return JSONKeys(t.Elem())
	case reflect.Struct:
		for f := range t.NumField() {
			key, _, _ := strings.Cut(t.Field(f).Tag.Get("json"), ",")
			all = append(append(all, key), JSONKeys(t.Field(f).Type)...)
		}
	}
	return all
}
