package emit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
)

// A plan names each tensor by itself, and a step saves hundreds. People read rules: what one line of a model
// makes, in all of its layers, mostly gets the same treatment. So tensors of one site and size share a rule.
//
// The process fetches what one load brings back in the order of the plan. Where a shared rule would change
// that order, a second rule of the same site begins.

// lineWidth is how wide the lines of the rules are at most.
const lineWidth = 100

// rulesFile returns the file that has a plan's rules and is imported under a name.
func rulesFile(p *plan.Problem, r *replay.Result, module string, u timeline.Units) (string, error) {
	if len(p.Varied) > 0 {
		return "", refuse("the steps of this program run different ops, and rules in a script of its own " +
			"count the ops of one step: keep gmemtop attached, or train with steps that are all alike")
	}
	rules, err := live.RulesOf(p, r.Plan)
	if errors.Is(err, live.ErrNotLive) {
		return "", &Refused{err}
	}
	if err != nil {
		return "", err
	}
	backup, copies := "", ""
	if len(rules.Backups) > 0 {
		backup = "backup, "
	}
	if rules.Copies > 0 {
		copies = fmt.Sprintf(", copies=%d", rules.Copies)
	}
	peak, _ := r.Plan.PeakLive()
	all, _ := p.PeakLive()
	var b strings.Builder
	fmt.Fprintf(&b, `"""%[1]s's plan for %[2]s: %[3]s at the peak of a step instead of %[4]s.
%[5]s

It needs torch 2.2 or newer, and the file %[6]s beside it. Before the loop:

    import %[7]s
    less = %[7]s.carry(optimizer)

The plan starts with the first step; less.remove() ends it. With several optimizers, pass the one that steps
first. The rules are for the model, batch and sequence that were recorded. If yours differ, everything stays
in memory, as without the plan, and less.why says so. Results are bit-identical, and that is checked: if a
tensor comes back changed, as from ops that add in no fixed order, the plan ends. It does not work with
torch.compile.
"""

from %[8]s import Less, %[9]srerun, swap

# Autograd saves tensors for the backward pass and loads them there. Saves, loads and the calls of each op are
# counted from 0 in every step.
RULES = [
`, r.Info.Name, quoted(p.Name), u.Bytes(peak), u.Bytes(all), replay.Treatment(p, r.Plan), Runtime,
		module, strings.TrimSuffix(Runtime, ".py"), backup)
	writeSwaps(&b, rules, u)
	writeReruns(&b, rules, u)
	writeBackups(&b, rules)
	fmt.Fprintf(&b, `]


def carry(optimizer):
    """Carry the rules out while optimizer steps. Call it between two steps, on the thread that trains."""
    return Less(optimizer, RULES, device=%s, saves=%d, trained=%s%s)
`, pythonString(rules.Device), rules.Saves, map[bool]string{true: "True", false: "False"}[rules.Trained],
		copies)
	return b.String(), nil
}

// swaps are tensors of one site and size that wait on the host.
type swaps struct {
	site string
	size int64
	of   []live.Rule
}

// writeSwaps writes a rule for each site whose tensors wait on the host.
func writeSwaps(b *strings.Builder, rules *live.Rules, u timeline.Units) {
	var list []swaps
	for _, v := range rules.Values {
		if v.How != "swap" {
			continue
		}
		site := quoted(v.Site)
		k := len(list) - 1
		for k >= 0 && (list[k].site != site || list[k].size != v.Bytes) {
			if slices.ContainsFunc(list[k].of, func(o live.Rule) bool { return o.Fetch == v.Fetch }) {
				k = -1 // it must come after that one
				break
			}
			k--
		}
		if k < 0 {
			list = append(list, swaps{site: site, size: v.Bytes})
			k = len(list) - 1
		}
		list[k].of = append(list[k].of, v)
	}
	if len(list) > 0 {
		b.WriteString(`    # On the host meanwhile: (save, release, fetch). The tensor of a save leaves at a
    # later save and is back at a load.
`)
	}
	for _, s := range list {
		fmt.Fprintf(b, "    # %s, %s\n", s.site, each(len(s.of), s.size, u))
		items := make([]string, len(s.of))
		for i, v := range s.of {
			items[i] = fmt.Sprintf("(%d, %d, %d),", v.Save, v.Release, v.Fetch)
		}
		writeCall(b, "swap(", append([]string{fmt.Sprintf("%d,", s.size)}, items...))
	}
}

// reruns are groups of ops that run again for tensors of the same sites.
type reruns struct {
	sites  string
	bytes  int64
	pieces [][]string // of each group's call
}

// writeReruns writes a rule for each group of ops that run again, those for the same sites after each other:
// one group says nothing about when another runs.
func writeReruns(b *strings.Builder, rules *live.Rules, u timeline.Units) {
	if len(rules.Groups) > 0 {
		b.WriteString(`    # Dropped, and made again by these calls when the first is needed. {bytes: [saves]}
`)
	}
	var list []reruns
	for g, ops := range rules.Groups {
		var sites []string
		var saves table
		bytes := int64(0)
		for _, v := range rules.Values {
			if v.How != "drop" || v.Group != g {
				continue
			}
			bytes += v.Bytes
			saves.add(fmt.Sprint(v.Bytes), v.Save)
			if s := quoted(v.Site); !slices.Contains(sites, s) {
				sites = append(sites, s)
			}
		}
		label := strings.Join(sites[:min(len(sites), 2)], ", ")
		if more := len(sites) - 2; more > 0 {
			label += fmt.Sprintf(" and %d more", more)
		}
		k := slices.IndexFunc(list, func(r reruns) bool { return r.sites == label })
		if k < 0 {
			list, k = append(list, reruns{sites: label}), len(list)
		}
		list[k].bytes += bytes
		list[k].pieces = append(list[k].pieces, append(callsOf(ops), saves.pieces()...))
	}
	for _, r := range list {
		fmt.Fprintf(b, "    # %s: %s in all\n", r.sites, u.Bytes(r.bytes))
		for _, pieces := range r.pieces {
			writeCall(b, "rerun(", pieces)
		}
	}
}

// writeBackups writes the rules for ops that run again only if the program changes what they made.
func writeBackups(b *strings.Builder, rules *live.Rules) {
	if len(rules.Backups) > 0 {
		b.WriteString(`    # Made again by these calls only if the loop changed what the model returned.
`)
	}
	for _, ops := range rules.Backups {
		writeCall(b, "backup(", callsOf(ops))
	}
}

// callsOf writes ops as a dict from a name to the numbers of its calls.
func callsOf(ops []live.Numeral) []string {
	var calls table
	for _, o := range ops {
		name, aten := strings.CutPrefix(o.Name, "aten::")
		if !aten || strings.Contains(name, "::") {
			name = o.Name
		}
		calls.add(pythonString(name), o.N)
	}
	return calls.pieces()
}

// table is a dict of Python from keys to lists of numbers.
type table struct {
	keys  []string
	lists map[string][]int
}

func (t *table) add(key string, n int) {
	if t.lists == nil {
		t.lists = map[string][]int{}
	}
	if t.lists[key] == nil {
		t.keys = append(t.keys, key)
	}
	t.lists[key] = append(t.lists[key], n)
}

// pieces returns the dict and a comma, in pieces that a line may end between.
func (t *table) pieces() []string {
	var out []string
	for i, key := range t.keys {
		list := t.lists[key]
		for k, n := range list {
			x := fmt.Sprint(n)
			if k == 0 {
				x = key + ": [" + x
			}
			if k == len(list)-1 {
				x += "]"
			}
			if len(out) == 0 {
				x = "{" + x
			}
			if i == len(t.keys)-1 && k == len(list)-1 {
				x += "}"
			}
			out = append(out, x+",")
		}
	}
	return out
}

// writeCall writes a call as an element of a list. Its arguments are pieces that a line may end between, each
// with its comma.
func writeCall(b *strings.Builder, head string, pieces []string) {
	line := "    " + head
	for i, piece := range pieces {
		if i == len(pieces)-1 {
			piece = strings.TrimSuffix(piece, ",") + "),"
		}
		switch {
		case i == 0:
		case len(line)+1+len(piece) > lineWidth:
			b.WriteString(line + "\n")
			line = "        "
		default:
			line += " "
		}
		line += piece
	}
	b.WriteString(line + "\n")
}

// each says how many tensors of what size there are.
func each(n int, size int64, u timeline.Units) string {
	if n == 1 {
		return u.Bytes(size)
	}
	return fmt.Sprintf("%d of %s each", n, u.Bytes(size))
}

// quoted makes a name of the recording harmless inside a comment or a docstring.
func quoted(name string) string {
	return strings.NewReplacer("\n", " ", "\r", " ", `\`, "/", `"`, "'").Replace(name)
}
