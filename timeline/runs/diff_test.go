package runs_test

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// Peaks that differ by too little to show are not said to go from a figure to the same one.
func TestPeaksThatHardlyDifferAreSaidToBeTheSame(t *testing.T) {
	peak := func(size string) *timeline.Device {
		return timelinetest.Script(t, "gpu 0\nstack s step train.py:1\n+ a 10m s\n+ b "+size+" s\n").Main()
	}
	for b, want := range map[string]string{
		"512": "Both peak at 10.0 MiB, with the same bytes at every call site.",
		"1k":  "Both peak at 10.0 MiB, 512 B apart. Largest difference: step train.py:1, +512 B, ",
		"2m":  "The peak goes from 10.0 MiB to 12.0 MiB (+2.00 MiB, +20.0 %)",
	} {
		d, err := runs.Compare(t.Context(), peak("512"), peak(b))
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Sentence(timeline.IEC); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", b, got)
		}
	}
}

// A sentence names the category and the call site that differ most, and neither where none differs.
func TestASentenceNamesNothingThatDoesNotDiffer(t *testing.T) {
	recording := func(text string) *timeline.Device {
		return timelinetest.Script(t, "gpu 0\nstack s step train.py:1\nstack e eval train.py:9\n"+text).Main()
	}
	for _, c := range []struct{ a, b, want string }{
		{"+ a 10m s cat=parameter\n", "+ a 12m s cat=parameter\n",
			"The peak goes from 10.0 MiB to 12.0 MiB (+2.00 MiB, +20.0 %): parameters +2.00 MiB. " +
				"Largest difference: step train.py:1, +2.00 MiB, block 20 % larger."},
		{"+ a 10m s cat=parameter\n", "+ a 10m e cat=parameter\n",
			"Both peak at 10.0 MiB. Largest difference: eval train.py:9, +10.0 MiB, new."},
		{"oom 1g 0\n", "oom 1g 0\n", "Both peak at 0 B."},
	} {
		d, err := runs.Compare(t.Context(), recording(c.a), recording(c.b))
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Sentence(timeline.IEC); got != c.want {
			t.Errorf("%q and %q: %s", c.a, c.b, got)
		}
	}
}

// If only one recording names lines of code, no call site of it is new or gone.
func TestCallSitesWithoutLinesAreNotCompared(t *testing.T) {
	lines := timelinetest.Script(t, "gpu 0\nstack s step train.py:1\n+ a 10m s\n").Main()
	none := timelinetest.Script(t, "gpu 0\n+ a 12m\n").Main()
	for want, pair := range map[string][2]*timeline.Device{
		"Only A names lines of code, so call sites cannot be compared.": {lines, none},
		"Only B names lines of code, so call sites cannot be compared.": {none, lines},
		"": {lines, lines},
	} {
		d, err := runs.Compare(t.Context(), pair[0], pair[1])
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Limits(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
		text, site := d.Sentence(timeline.IEC), d.Sites[0]
		said := strings.Contains(text, "Largest difference")
		if want != "" && (said || !d.SitesApart() || !strings.HasPrefix(site.Cause, "only in ")) {
			t.Errorf("%s: %s, and %s is %s", want, text, site.Name, site.Cause)
		}
	}
	if d, err := runs.Compare(t.Context(), none, none); err != nil || d.Limits() != "" {
		t.Errorf("neither has lines: %q, %v", d.Limits(), err)
	}
}
