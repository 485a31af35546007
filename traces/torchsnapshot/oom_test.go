package torchsnapshot

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

func TestAnOOMWithoutDeviceFreeHasAnUnknownNumberOfFreeBytes(t *testing.T) {
	const source = `{"segments": [], "device_traces": [[{"action": "oom", "size": 512, ` +
		`"stream": 0, "time_us": 7}]]}`
	tr, err := Read(context.Background(), strings.NewReader(source), nil)
	if err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	if err := Write(context.Background(), &written, tr); err != nil {
		t.Fatal(err)
	}
	again, err := Read(context.Background(), &written, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, free := range map[string]maybe.Int{"read": tr.Events.At(0).DeviceFree(),
		"read again": again.Events.At(0).DeviceFree()} {
		if free.IsKnown() {
			t.Errorf("%s: %v bytes are free, want an unknown number", name, free)
		}
	}
}
