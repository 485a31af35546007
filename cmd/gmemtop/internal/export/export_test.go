package export_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/export"
	"github.com/gmemtop/gmemtop/timeline/figure"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces"
)

func TestAFormatIsChosenByNameOrByTheFile(t *testing.T) {
	for _, c := range []struct{ format, output, what, want, mistake string }{
		{format: "svg", output: "x.html", want: "svg"},
		{output: "x.html", want: "html"},
		{format: "md", want: "markdown"},
		{output: "x.csv", what: "events", want: "csv"},
		{output: "x.docx", mistake: "no format is written to .docx files"},
		{mistake: "--format is needed"},
		{format: "word", mistake: `--format "word" is not one of`},
		{format: "svg", what: "events", mistake: "does not apply to svg"},
		{format: "csv", what: "rows", mistake: `--what "rows" is not one of`},
	} {
		f, err := export.Choose(c.format, c.output, c.what)
		switch {
		case c.mistake == "" && (err != nil || f.Name != c.want):
			t.Errorf("%+v: %s, %v", c, f.Name, err)
		case c.mistake != "" && (err == nil || !strings.Contains(err.Error(), c.mistake)):
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestEveryFormatIsWritten(t *testing.T) {
	d := timelinetest.Built(t, timelinetest.Sample(t))
	for _, f := range export.Formats {
		var out bytes.Buffer
		err := f.Write(t.Context(), &out, d.Timeline(), d, figure.Options{})
		if err != nil || out.Len() == 0 {
			t.Errorf("%s: %d bytes, %v", f.Name, out.Len(), err)
		}
		err = f.Write(t.Context(), &out, d.Timeline(), nil, figure.Options{})
		if (f.Trace == nil) != (err != nil) {
			t.Errorf("%s without a device: %v", f.Name, err)
		}
	}
}

func TestOnlySnapshotsLeaveSomethingOut(t *testing.T) {
	plain, rich := &traces.Trace{}, &traces.Trace{Counters: make([]traces.Counter, 1)}
	for _, f := range export.Formats {
		if f.LeavesOut(plain) || f.LeavesOut(rich) != (f.Name == "snapshot") {
			t.Errorf("%s leaves out: %v %v", f.Name, f.LeavesOut(plain), f.LeavesOut(rich))
		}
	}
}
