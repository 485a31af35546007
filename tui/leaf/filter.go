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
		stack, made := stackOf(term)
		switch {
		case strings.HasPrefix(term, "sort:"):
		case term == "live" && s.Query.LiveAt == d.Totals.PeakAt:
			clauses = append(clauses, "alive "+AtPeak(d))
		case term == "live":
			clauses = append(clauses, "alive "+At(s, s.Query.LiveAt))
		case made && strings.HasPrefix(term, "site:"):
			clauses = append(clauses, "from "+siteName(d, stack))
		case made:
			clauses = append(clauses, "from one stack of "+siteName(d, stack))
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

// stackOf returns the stack that a term such as site:552 or stack:552 names by number, as views do.
func stackOf(term string) (traces.StackID, bool) {
	kind, value, _ := strings.Cut(term, ":")
	if kind != "site" && kind != "stack" {
		return 0, false
	}
	number, err := strconv.ParseInt(value, 10, 32)
	return traces.StackID(number), err == nil
}

// FilterName returns the filter's text. If it names a stack by number, as filters made by views do, the call
// site's name replaces the number, and the order is left out.
func FilterName(s *State) string {
	var terms []string
	made := false
	for _, term := range strings.Fields(s.QueryText) {
		switch stack, ok := stackOf(term); {
		case ok:
			made = true
			terms = slices.Insert(terms, 0, siteName(s.Device, stack))
		case !strings.HasPrefix(term, "sort:"):
			terms = append(terms, term)
		}
	}
	if !made {
		return s.QueryText
	}
	return strings.Join(terms, " ")
}
