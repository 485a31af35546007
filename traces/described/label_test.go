package described_test

import (
	"context"
	"encoding/json"
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
	if e, d := tr.Events.At(0), tr.DetailOf(0); e.Addr != 4096 ||
		tr.Text(d.UserMetadata) != "layers.0.weight" || tr.Text(d.Category) != "parameter" {
		t.Errorf("%+v %+v", e, d)
	}
	if e := tr.Events.At(1); e.Addr != 1<<20 {
		t.Errorf("a made-up address: %x", e.Addr)
	}
	_, err = described.Read(context.Background(),
		strings.NewReader(head+`{"k":"alloc","id":1,"size":8,"addr":9223372036854775807}`+"\n"), nil)
	if !errors.Is(err, traces.ErrFormat) || !strings.Contains(err.Error(), "out of range") {
		t.Errorf("%v", err)
	}
}

func TestALabelMayBeASentence(t *testing.T) {
	const in = head +
		`{"k":"alloc","id":1,"size":8,"label":"as it came","says":{"code":"a"},"on":"cpu"}` + "\n" +
		`{"k":"alloc","id":2,"size":8,"label":"layers.0.weight","on":"cpu"}` + "\n"
	sentence := func(says json.RawMessage, label string) string { return label + " with " + string(says) }
	for _, c := range []struct {
		sentence func(json.RawMessage, string) string
		want     string
	}{{nil, "as it came"}, {sentence, `as it came with {"code":"a"}`}} {
		o := described.Options{Sentence: c.sentence}
		tr, err := described.ReadWith(t.Context(), strings.NewReader(in), o)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{c.want, "layers.0.weight"} {
			if got := tr.Text(tr.DetailOf(i).UserMetadata); got != want {
				t.Errorf("storage %d is labelled %q, not %q", i+1, got, want)
			}
		}
	}
}

func TestARecordingThatBeginsEmptySaysSoForEachDevice(t *testing.T) {
	const rows = `{"k":"alloc","id":1,"size":8,"on":"cpu"}` + "\n" +
		`{"k":"alloc","id":2,"size":16,"on":"cuda:0","t":5}` + "\n" +
		`{"k":"alloc","id":3,"size":4,"on":"cpu","t":6}` + "\n"
	for first, want := range map[string]int{head: 0,
		strings.Replace(head, `"version":1`, `"version":1,"empty":true`, 1): 2} {
		tr, err := described.Read(context.Background(), strings.NewReader(first+rows), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(tr.Counters) != want {
			t.Errorf("%d counters, not %d", len(tr.Counters), want)
		}
		for _, c := range tr.Counters {
			row := int(c.Event[0])
			if e := tr.Events.At(row); tr.Text(c.Name) != traces.CounterAllocated || e.Device != c.Device ||
				e.Size != c.Value[0] || e.Time != c.Time[0] {
				t.Errorf("%+v at %+v", c, e)
			}
			if begin, _ := tr.DeviceEvents(c.Device); begin != row {
				t.Errorf("the total is at row %d, but the device begins at row %d", row, begin)
			}
		}
	}
}
