package output

import (
	"io"
	"strings"
	"testing"
)

func TestTheAnswerIsTheFirstParagraph(t *testing.T) {
	report := func(w io.Writer) error {
		_, err := io.WriteString(w, "it fits\nby \x1b]0;a lot\n\nwhat\nholds\nmost\n")
		return err
	}
	for _, c := range []struct {
		name string
		as   func(w io.Writer) error
		want string
	}{
		{"alone", Answer(report), "it fits\nby  ]0;a lot\n"},
		{"on a high terminal", Emphasised(report, 50, false), "it fits\nby  ]0;a lot\n\nwhat\nholds\nmost\n"},
		{"on a low terminal", Emphasised(report, 5, false),
			"it fits\nby  ]0;a lot\n\nwhat\nholds\nmost\n\nit fits\nby  ]0;a lot\n"},
		{"in colours", Emphasised(report, 0, true),
			"\x1b[1mit fits\x1b[0m\n\x1b[1mby  ]0;a lot\x1b[0m\n\nwhat\nholds\nmost\n"},
	} {
		var b strings.Builder
		if err := c.as(&b); err != nil || b.String() != c.want {
			t.Errorf("%s: %q %v, not %q", c.name, b.String(), err, c.want)
		}
	}
}
