package torchsnapshot

import (
	"sort"

	"github.com/gmemtop/gmemtop/traces"
)

// losses counts what was lost, by name.
type losses map[string]*traces.Loss

// lose counts a loss; the first severity and detail of a name stay.
func (ls losses) lose(name string, s traces.Severity, n int64, detail string) {
	l := ls[name]
	if l == nil {
		l = &traces.Loss{Name: name, Severity: s, Detail: detail}
		ls[name] = l
	}
	l.Count += n
}

// giveLosses passes on the losses in the order of their names, so that the order of the source's keys does
// not matter.
func (ls losses) giveLosses(b *traces.Builder) {
	names := make([]string, 0, len(ls))
	for name := range ls {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		l := ls[name]
		b.Lose(name, l.Severity, l.Count, l.Detail)
	}
}

func (ls losses) unknownKey() {
	ls.lose("unknown_keys", traces.Info, 1, "keys that this version does not know are kept as JSON")
}

func (ls losses) wrongType() {
	ls.lose("wrong_types", traces.Fault, 1, "values of a type that their key never has were skipped")
}
