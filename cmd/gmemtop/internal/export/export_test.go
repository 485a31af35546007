package export_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/export"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/figure"
	"github.com/gmemtop/gmemtop/timeline/report"
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
		{mistake: "choose --format: one of"},
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

func TestAFormatRefusesAWindowAndAMomentThatItCannotShow(t *testing.T) {
	from, err := report.ParsePosition("it2")
	if err != nil {
		t.Fatal(err)
	}
	at, err := report.ParseMoment("peak")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		format  string
		o       report.Options
		mistake string
	}{
		{"svg", report.Options{From: from, At: at}, ""},
		{"gmt", report.Options{}, ""},
		{"gmt", report.Options{From: from}, "--from and --to do not apply to gmt"},
		{"gmt", report.Options{To: from}, "--from and --to do not apply to gmt"},
		{"csv", report.Options{At: at}, "--at draws one moment and does not apply to csv"},
	} {
		f, err := export.Choose(c.format, "", "")
		if err != nil {
			t.Fatal(err)
		}
		err = f.Check(&c.o)
		if c.mistake == "" && err != nil || c.mistake != "" && (!exit.IsMistake(err) ||
			!strings.Contains(err.Error(), c.mistake)) {
			t.Errorf("%s: %v, want %q", c.format, err, c.mistake)
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

func TestTheScreenNamesOneMoment(t *testing.T) {
	d := timelinetest.Built(t, timelinetest.Sample(t))
	with := 0
	for _, e := range export.ForScreen(timeline.IEC) {
		if e.Moment == nil {
			continue
		}
		with++
		for _, bad := range []string{"", "noon", "it900", "1h", "99999999"} {
			if _, err := e.Moment(d, bad); err == nil {
				t.Errorf("%s: %q is taken for a moment", e.Name, bad)
			}
		}
		written := map[string]string{}
		for _, at := range []string{"peak", "end", "0"} {
			write, err := e.Moment(d, at)
			if err != nil {
				t.Fatalf("%s at %s: %v", e.Name, at, err)
			}
			var out bytes.Buffer
			if err := write(t.Context(), &out); err != nil {
				t.Fatalf("%s at %s: %v", e.Name, at, err)
			}
			written[out.String()] = at
		}
		if len(written) != 3 {
			t.Errorf("%s is the same at the peak, the end and the first event", e.Name)
		}
	}
	if with != 3 {
		t.Errorf("%d formats show one moment, want svg, png and folded", with)
	}
}
