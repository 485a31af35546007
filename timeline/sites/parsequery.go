package sites

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
)

var sortNames = map[string]SortKey{
	"start":    SortStart,
	"time":     SortStart,
	"size":     SortSize,
	"life":     SortLifetime,
	"lifetime": SortLifetime,
	"end":      SortEnd,
	"category": SortCategory,
	"cat":      SortCategory,
	"address":  SortAddress,
	"addr":     SortAddress,
}

// ParseQuery reads a filter line of words to search for and of terms that select or order:
//
//	size>1MiB  size<=2m     requested bytes
//	life<5ms   life>=1s     how long it was allocated
//	cat:activation,gradient categories
//	live  leaked            allocated at the cursor; never freed
//	0x7f3a00001200          holds the byte at an address; also addr:7f3a00001200
//	block 0x7f3a00001200 #2 a block by its name: the second one at that address
//	sort:size  sort:-size   ascending, descending
//
// The caller sets LiveAt. An error says which term it is and what to write.
func ParseQuery(s string) (Query, error) {
	var q Query
	var words []string
	terms := strings.Fields(s)
	for i, term := range terms {
		if strings.EqualFold(term, "block") && i+1 < len(terms) && strings.HasPrefix(terms[i+1], "0x") {
			continue
		}
		if n, ok := strings.CutPrefix(term, "#"); ok && i > 0 && strings.HasPrefix(terms[i-1], "0x") {
			if q.Nth, _ = strconv.Atoi(n); q.Nth > 0 {
				continue
			}
		}
		known, err := q.term(strings.ToLower(term))
		if err != nil {
			return Query{}, err
		}
		if !known {
			words = append(words, term)
		}
	}
	q.Text = strings.Join(words, " ")
	return q, nil
}

// term reads a term and reports whether it is one.
func (q *Query) term(t string) (bool, error) {
	switch {
	case t == "live":
		q.Live = true
	case t == "leaked":
		q.Leaked = true
	case strings.HasPrefix(t, "cat:"):
		return true, q.addCategories(t[len("cat:"):])
	case strings.HasPrefix(t, "addr:"):
		return true, q.address(t[len("addr:"):])
	case strings.HasPrefix(t, "0x"):
		return true, q.address(t)
	case strings.HasPrefix(t, "sort:"):
		return true, q.order(t[len("sort:"):])
	case hasOperator(t, "size"):
		return true, bound(t[len("size"):], timeline.ParseBytes, &q.MinSize, &q.MaxSize)
	case hasOperator(t, "life"):
		return true, bound(t[len("life"):], timeline.ParseDuration, &q.MinLife, &q.MaxLife)
	default:
		return false, nil
	}
	return true, nil
}

// address reads an address in hexadecimal, with or without 0x.
func (q *Query) address(hex string) error {
	a, err := strconv.ParseUint(strings.TrimPrefix(hex, "0x"), 16, 64)
	if err != nil {
		return fmt.Errorf("address %q: write it in hexadecimal, such as 0x7f3a00001200", hex)
	}
	q.HasAddress, q.Address = true, a
	return nil
}

func hasOperator(t, name string) bool {
	return strings.HasPrefix(t, name) && len(t) > len(name) && strings.IndexByte("<>=", t[len(name)]) >= 0
}

func (q *Query) addCategories(list string) error {
	for _, name := range strings.Split(list, ",") {
		c, ok := timeline.ParseCategory(name)
		if !ok {
			var names []string
			for c := range timeline.NumCategories {
				names = append(names, c.String())
			}
			return fmt.Errorf("category %q: write one of %s", name, strings.Join(names, ", "))
		}
		q.Categories |= 1 << c
	}
	return nil
}

func (q *Query) order(name string) error {
	key, descending := strings.CutPrefix(name, "-")
	k, ok := sortNames[key]
	if !ok {
		return fmt.Errorf("sort:%s: write sort: and one of start, size, life, end, category, address; - "+
			"before it is descending", name)
	}
	q.Sort, q.Descending = k, descending
	return nil
}

// bound reads an operator and a figure into inclusive bounds. An upper bound of 0 means no limit, so nobody
// can ask for 0.
func bound(t string, parse func(string) (int64, error), least, most *int64) error {
	op := t[:1]
	if len(t) > 1 && t[1] == '=' {
		op = t[:2]
	}
	v, err := parse(t[len(op):])
	if err != nil {
		return err
	}
	switch op {
	case ">":
		*least = v + 1
		return nil
	case ">=":
		*least = v
		return nil
	case "<":
		v--
	case "<=":
	default:
		*least = v
	}
	if v <= 0 {
		return fmt.Errorf("%s: nothing is that small", t)
	}
	*most = v
	return nil
}
