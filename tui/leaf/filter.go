package leaf

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
)

// FilterWords describes in words what the filter selects: views make filters with numbers of stacks and of
// bytes, which are hard to read.
func FilterWords(s *State) string {
	d := s.Device
	var match, clauses []string
	for _, term := range strings.Fields(s.QueryText) {
		name, value, _ := strings.Cut(term, ":")
		number, err := strconv.ParseInt(value, 10, 64)
		switch {
		case name == "sort":
		case term == "live" && s.Query.LiveAt == d.Totals.PeakAt:
			clauses = append(clauses, "alive "+AtPeak(d))
		case term == "live":
			clauses = append(clauses, "alive "+At(s, s.Query.LiveAt))
		case name == "site" && err == nil:
			clauses = append(clauses, "from "+siteName(d, traces.StackID(number)))
		case name == "stack" && err == nil:
			clauses = append(clauses, "from one stack of "+siteName(d, traces.StackID(number)))
		default:
			if size, ok := strings.CutPrefix(term, "size"); ok {
				digits := strings.TrimLeft(size, "<>=")
				if n, err := strconv.ParseInt(digits, 10, 64); err == nil && digits != size {
					term = strings.TrimSuffix(term, digits) + strings.ReplaceAll(s.Units.Bytes(n), " ", "")
				}
			}
			match = append(match, term)
		}
	}
	if len(match) > 0 {
		clauses = slices.Insert(clauses, 0, "match "+strings.Join(match, " "))
	}
	if len(clauses) == 0 {
		return ""
	}
	return " " + strings.Join(clauses, ", ")
}

// siteName names a call site as the breakdown by call site does.
func siteName(d *timeline.Device, id traces.StackID) string {
	if name := sites.Name(d, id); name != "" {
		return name
	}
	return "no recorded stack"
}

// FilterName is the filter as the user typed it. One that a view made is named after its call site instead of
// the stack's number, and without the order that the view asked for.
func FilterName(s *State) string {
	var terms []string
	made := false
	for _, term := range strings.Fields(s.QueryText) {
		kind, value, _ := strings.Cut(term, ":")
		number, err := strconv.ParseInt(value, 10, 32)
		switch {
		case (kind == "site" || kind == "stack") && err == nil:
			made = true
			terms = slices.Insert(terms, 0, siteName(s.Device, traces.StackID(number)))
		case kind != "sort":
			terms = append(terms, term)
		}
	}
	if !made {
		return s.QueryText
	}
	return strings.Join(terms, " ")
}
