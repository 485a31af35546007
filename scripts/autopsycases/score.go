package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
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
	Name  string `json:"name"`
	Saves *int64 `json:"saves_bytes"`
	Fits  *bool  `json:"fits"`
}

// score is what gmemtop said about one case, and what was right of it.
type score struct {
	set    string
	name   string
	answer answer
	saving int64 // what the accepted fix saved in bytes

	said      string // the main cause
	right     bool
	place     int   // of the first accepted lever, from 1; 0 for none
	predicted int64 // what that lever was said to save in bytes; 0 for unknown
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
	for i, l := range d.Levers {
		if slices.Contains(s.answer.Lever, l.Name) {
			s.place = i + 1
			if l.Saves != nil {
				s.predicted = *l.Saves
			}
			return
		}
	}
}

func (s *score) leverRight() bool { return s.place > 0 && s.place <= firstLevers }

func (s *score) savingRight() bool {
	return s.predicted > 0 && s.saving > 0 &&
		math.Abs(float64(s.predicted-s.saving)) <= tolerance*float64(s.saving)
}

// tableOf returns a Markdown table with a row for each case, and below it the counts.
func tableOf(scores []score) string {
	var b strings.Builder
	b.WriteString("| case | cause in the thread | said | right | fix among the first three | saved, GiB |" +
		" predicted, GiB |\n")
	b.WriteString("|---|---|---|---|---|---|---|\n")
	causes, levers, savings, asked, measured := 0, 0, 0, 0, 0
	for _, s := range scores {
		name := fmt.Sprintf("[%s](../%s/%s/%s/answer.json)", s.name, cases, s.set, s.name)
		want := strings.Join(s.answer.Cause, ", ")
		if want == "" {
			want = "none"
		}
		place, saved, predicted := "", "", ""
		if len(s.answer.Lever) > 0 {
			asked++
			measured += count(s.saving > 0)
			place, saved, predicted = placed(s), gib(s.saving), gib(s.predicted)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n",
			name, want, s.said, yes(s.right), place, saved, predicted)
		causes += count(s.right)
		levers += count(s.leverRight())
		savings += count(s.savingRight())
	}
	fmt.Fprintf(&b, "\nCause: %d of %d. ", causes, len(scores))
	fmt.Fprintf(&b, "Fix among the first three levers: %d of %d. ", levers, asked)
	fmt.Fprintf(&b, "Saving within %.0f %%: %d of %d.\n", 100*tolerance, savings, measured)
	return b.String()
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
