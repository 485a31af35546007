package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// report is what these figures need of gmemtop oom --json.
type report struct {
	Found   bool     `json:"found"`
	Devices []device `json:"devices"`
}

type device struct {
	OOM    bool    `json:"oom"`
	Causes []cause `json:"causes"`
	Levers []lever `json:"levers"`
}

type cause struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Main bool   `json:"main"`
}

type lever struct {
	Name      string `json:"name"`
	Saves     *int64 `json:"saves_bytes"`
	Frees     *int64 `json:"frees_bytes"`
	Fits      *bool  `json:"fits"`
	Simulated *struct {
		Conf string `json:"conf"`
	} `json:"simulated"`
	Tried *struct {
		Outcome string `json:"outcome"`
	} `json:"tried"`
}

// finishes reports whether the lever is said to be enough for the rest of the run.
func (l *lever) finishes() bool {
	return l.Fits != nil && *l.Fits || l.Tried != nil && l.Tried.Outcome == "finishes"
}

// conf returns the lever's allocator settings, if the lever is nothing else.
func (l *lever) conf() string {
	if l.Simulated == nil {
		return ""
	}
	return l.Simulated.Conf
}

// score is what gmemtop said about one case, and what of it was right.
type score struct {
	set    string
	name   string
	answer answer
	saving int64 // what the accepted fix saved in bytes

	said      string // the main cause
	right     bool
	place     int    // of the first accepted lever, from 1; 0 for none
	outcome   string // of that lever, as it was tried; empty for unknown
	predicted int64  // the predicted saving in bytes; 0 for unknown
	frees     int64  // bytes it was said to free at the failed request, if no more is known; 0 for unknown
	other     bool   // the lever is accepted, but --fixed does something else: the savings are not comparable

	settings []claim // the allocator's settings that were said to finish
}

// claim is that a run finishes under other settings of the allocator.
type claim struct {
	lever, conf string
	ran, kept   bool // whether it was run, and did
}

// firstLevers is how far down the list an accepted lever may stand.
const firstLevers = 3

// tolerance is how far a predicted saving may be from the measured one.
const tolerance = 0.10

// compare fills in what was said. A training that did not run out is judged right if nothing was found.
func (s *score) compare(said report) {
	if !said.Found || len(said.Devices) == 0 {
		s.said, s.right = "none", len(s.answer.Cause) == 0
		return
	}
	d := said.Devices[0]
	for _, c := range d.Causes {
		if c.Main {
			s.said = c.Kind
			if c.Name != "" {
				s.said = c.Name
			}
			break
		}
	}
	s.right = slices.Contains(s.answer.Cause, s.said)
	for i := range d.Levers {
		l := &d.Levers[i]
		if l.conf() != "" && l.finishes() {
			s.settings = append(s.settings, claim{lever: l.Name, conf: l.conf()})
		}
		if s.place == 0 && slices.Contains(s.answer.Lever, l.Name) {
			s.accept(i+1, l)
		}
	}
}

// accept fills in what was said about the first accepted lever.
func (s *score) accept(place int, l *lever) {
	s.place = place
	s.other = !slices.Contains(s.answer.applied(), l.Name)
	if l.Saves != nil {
		s.predicted = *l.Saves
	}
	if l.Frees != nil {
		s.frees = *l.Frees
	}
	if l.Tried != nil {
		s.outcome = l.Tried.Outcome
	}
}

func (s *score) leverRight() bool { return s.place > 0 && s.place <= firstLevers }

// savingClaimed reports whether a saving was predicted that can be compared with what the fix saved.
func (s *score) savingClaimed() bool { return !s.other && s.predicted > 0 && s.saving > 0 }

func (s *score) savingRight() bool {
	return s.savingClaimed() && math.Abs(float64(s.predicted-s.saving)) <= tolerance*float64(s.saving)
}

// tableOf returns a Markdown table with a row for each case, and below it the counts.
func tableOf(scores []score) string {
	var b strings.Builder
	b.WriteString("| case | cause in the thread | said | right | fix among the first three |" +
		" said of the fix | saved, GiB | predicted, GiB | said to finish and does not |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	var n counts
	for _, s := range scores {
		name := fmt.Sprintf("[%s](../%s/%s/%s/answer.json)", s.name, cases, s.set, s.name)
		want := strings.Join(s.answer.Cause, ", ")
		if want == "" {
			want = "none"
		}
		place, saved, predicted := "", "", ""
		if len(s.answer.Lever) > 0 {
			place, saved, predicted = placed(s), gib(s.saving), gib(s.predicted)
			switch {
			case s.other:
				predicted = "of another change"
			case s.frees > 0:
				predicted = "none, frees " + gib(s.frees)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name, want, s.said, yes(s.right),
			place, strings.ReplaceAll(s.outcome, "_", " "), saved, predicted, strings.Join(s.broken(), ", "))
		n.add(s)
	}
	b.WriteString(n.String())
	return b.String()
}

// countsOf returns the counts of a table without its rows.
func countsOf(scores []score) string {
	var n counts
	for _, s := range scores {
		n.add(s)
	}
	return strings.TrimPrefix(n.String(), "\n")
}

// broken returns the levers that were said to finish and did not when they were run.
func (s *score) broken() []string {
	var names []string
	for _, c := range s.settings {
		if c.ran && !c.kept {
			names = append(names, c.lever)
		}
	}
	return names
}

// counts are the sums of a table.
type counts struct {
	cases, causes            int
	fixes, offered, finishes int // of cases with a fix
	claimed, near, other     int // savings
	unclaimed                int // measured fixes for which no saving is claimed
	claims, broken           int // settings that were said to finish
}

func (n *counts) add(s score) {
	n.cases++
	n.causes += count(s.right)
	n.claims += len(s.settings)
	n.broken += len(s.broken())
	if len(s.answer.Lever) == 0 {
		return
	}
	n.fixes++
	n.offered += count(s.leverRight())
	n.finishes += count(s.outcome == "finishes")
	n.other += count(s.other)
	n.claimed += count(s.savingClaimed())
	n.near += count(s.savingRight())
	n.unclaimed += count(!s.other && s.saving > 0 && s.predicted == 0)
}

// String lists the sums, one per line.
func (n *counts) String() string {
	return fmt.Sprintf("\n- Cause: %d of %d.\n- Fix among the first three levers: %d of %d.\n",
		n.causes, n.cases, n.offered, n.fixes) +
		fmt.Sprintf("- Saving within %.0f %%: %d of %d that are claimed and were measured; %d more were "+
			"measured and not claimed (%d left out: the lever that was offered is not what was run).\n",
			100*tolerance, n.near, n.claimed, n.unclaimed, n.other) +
		fmt.Sprintf("- Every fix finishes, which was said of %d of %d.\n", n.finishes, n.fixes) +
		fmt.Sprintf("- Settings of the allocator that were said to finish: %d, of which %d did not.\n",
			n.claims, n.broken)
}

func placed(s score) string {
	if s.place == 0 {
		return "not offered"
	}
	return fmt.Sprintf("%s (%d)", yes(s.leverRight()), s.place)
}

func gib(n int64) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", float64(n)/(1<<30))
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

var errNoSection = errors.New("the page has no section of the set")

// savingsIn returns the savings in a set's table on a page, in bytes, to a hundredth of a GiB. They come from
// the cases' own runs, whatever gmemtop says about them.
func savingsIn(page, set string) (map[string]int64, error) {
	b, err := os.ReadFile(page)
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	_, rest, _ := strings.Cut(string(b), "<!-- "+set+" -->\n")
	rows, _, _ := strings.Cut(rest, "<!-- end of "+set+" -->")
	savings := map[string]int64{}
	for row := range strings.Lines(rows) {
		cells := strings.Split(row, " | ")
		name, _, ok := strings.Cut(strings.TrimPrefix(cells[0], "| ["), "]")
		if !ok || len(cells) < savedCell+1 {
			continue
		}
		if n, err := strconv.ParseFloat(strings.TrimSpace(cells[savedCell]), 64); err == nil {
			savings[name] = int64(n * (1 << 30))
		}
	}
	return savings, nil
}

// savedCell is the column of a table that has the saving.
const savedCell = 6

// writeSection replaces what stands between a set's two marks in a page.
func writeSection(page, set, table string) error {
	b, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	begin, end := "<!-- "+set+" -->\n", "<!-- end of "+set+" -->"
	head, rest, found := strings.Cut(string(b), begin)
	_, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%w: %s must have %q and %q", errNoSection, page, begin, end)
	}
	if err := os.WriteFile(page, []byte(head+begin+"\n"+table+"\n"+end+tail), 0o644); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
