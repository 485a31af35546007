package leaf

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
)

// Link returns the address of a source line of a recording, "" if no link is wanted or the file has no
// absolute path. It names the machine that recorded, so that a terminal on another one can say that the file
// is elsewhere.
func Link(s *State, d *timeline.Device, file string, line int) string {
	if !s.Links || !strings.HasPrefix(file, "/") {
		return ""
	}
	u := url.URL{Scheme: "file", Host: d.Timeline().Places().Process.Host, Path: file}
	if line > 0 {
		u.Fragment = strconv.Itoa(line)
	}
	return u.String()
}

// Linked returns a style whose text leads to the source line that names a call site.
func Linked(s *State, d *timeline.Device, id traces.StackID, st canvas.Style) canvas.Style {
	if s.Links && d != nil && id != traces.NoStack {
		file, line := UserFrame(d, id)
		st.Link = Link(s, d, file, line)
	}
	return st
}
