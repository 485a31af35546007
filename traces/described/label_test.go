package described_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/described"
)

func TestALabelAndAnAddressStayWithTheStorage(t *testing.T) {
	tr, err := described.Read(context.Background(), strings.NewReader(head+
		`{"k":"alloc","id":1,"size":8,"addr":4096,"label":"layers.0.weight","category":"parameter","on":"cpu"}`+"\n"+
		`{"k":"alloc","id":2,"size":8,"on":"cpu"}`+"\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if e, d := tr.Events.At(0), tr.DetailOf(0); e.Addr != 4096 || tr.Text(d.UserMetadata) != "layers.0.weight" || tr.Text(d.Category) != "parameter" {
		t.Errorf("%+v %+v", e, d)
	}
	if e := tr.Events.At(1); e.Addr != 1<<20 {
		t.Errorf("an address that is made up: %x", e.Addr)
	}
	_, err = described.Read(context.Background(), strings.NewReader(head+`{"k":"alloc","id":1,"size":8,"addr":9223372036854775807}`+"\n"), nil)
	if !errors.Is(err, traces.ErrFormat) || !strings.Contains(err.Error(), "out of range") {
		t.Errorf("%v", err)
	}
}
