package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// cards stands in for an allocator: PyTorch's own is asked for the smallest card that fits.
const cards = "cards"

// onCards is the kept result of gmemtop estimate --hardware all.
type onCards struct {
	Date  string `json:"date"` // on which it was made
	Torch string `json:"torch"`
	// Command is what was run, as a user would type it, and Commit that of its sources. If the program is
	// another one by now, the result is not shown.
	Command string `json:"command"`
	Commit  string `json:"commit,omitempty"`
	Seconds int    `json:"seconds"` // of the whole command
	// Processor counts the seconds that all its processes kept a processor busy.
	Processor int `json:"processor_seconds"`
	// Smallest is the name of the smallest card that fits, "" if none does.
	Smallest string   `json:"smallest,omitempty"`
	Cards    []onCard `json:"cards,omitempty"` // all cards, the one with least memory first
	// Failed is why there is no answer.
	Failed string `json:"failed,omitempty"`
}

// onCard is what was found out about one card.
type onCard struct {
	Name   string `json:"name"`
	Memory int64  `json:"memory_bytes"`
	Fits   *bool  `json:"fits,omitempty"` // nil if it was not run, or no step was seen
	Turn   int    `json:"turn,omitempty"` // counted from 1, the how many-th run it was; 0 for none
	// Seconds is how long the run took. The peaks are those that it reached, in bytes.
	Seconds   int    `json:"seconds,omitempty"`
	Allocated int64  `json:"allocated_bytes,omitempty"`
	Reserved  int64  `json:"reserved_bytes,omitempty"`
	Retries   int64  `json:"retries,omitempty"`
	Why       string `json:"why,omitempty"` // it does not fit, or was not run
}

// onAllCards is the whole command, as a user would type it.
func (p *program) onAllCards() string {
	words := "gmemtop estimate --allocator real --hardware all "
	if p.flags == "" {
		words += "-- "
	}
	return words + p.command()
}

// keptCards returns the kept result of a program, nil if there is none, or none of what the program is now.
func (o *options) keptCards(p *program) (*onCards, error) {
	text, err := os.ReadFile(o.path(p.name, cards))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f onCards
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("read %s: %w", o.path(p.name, cards), err)
	}
	if f.Command != p.onAllCards() || f.Commit != p.commit {
		return nil, nil
	}
	if f.Failed == "" && len(f.Cards) == 0 {
		return nil, fmt.Errorf("read %s: it names no cards: delete it to estimate again",
			o.path(p.name, cards))
	}
	return &f, nil
}

// findCard finds the smallest card for a program and keeps the result, or why there is none.
func (o *options) findCard(ctx context.Context, p *program) error {
	ran, err := o.run(ctx, p, "--allocator", "real", "--hardware", "all", "--json")
	if err != nil {
		return err
	}
	f := onCards{Date: ran.date, Command: p.onAllCards(), Commit: p.commit, Seconds: ran.seconds,
		Processor: ran.processor, Failed: ran.failed}
	if f.Failed == "" {
		if err := f.read(ran.text); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "%s on all cards: %d s, %s %s\n", p.name, f.Seconds, f.Smallest, f.Failed)
	return o.keep(p.name, cards, &f)
}

// read takes over what gmemtop estimate --hardware all --json says.
func (f *onCards) read(text []byte) error {
	var said struct {
		Torch    string `json:"torch"`
		Smallest string `json:"smallest"`
		Cards    []struct {
			Name      string `json:"name"`
			Memory    int64  `json:"memory_bytes"`
			Fits      *bool  `json:"fits"`
			Turn      int    `json:"turn"`
			Took      int64  `json:"run_time_ns"`
			Allocated int64  `json:"peak_allocated_bytes"`
			Reserved  int64  `json:"reserved_bytes"`
			Retries   int64  `json:"retries"`
			Why       string `json:"why"`
		} `json:"cards"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return err
	}
	if len(said.Cards) == 0 {
		return errors.New("gmemtop estimate names no cards")
	}
	f.Torch, f.Smallest = said.Torch, said.Smallest
	for _, c := range said.Cards {
		f.Cards = append(f.Cards, onCard{Name: c.Name, Memory: c.Memory, Fits: c.Fits, Turn: c.Turn,
			Seconds: int(float64(c.Took)/1e9 + 0.5), Allocated: c.Allocated, Reserved: c.Reserved,
			Retries: c.Retries, Why: c.Why})
	}
	return nil
}

// onAll are the programs that are run on all cards, in the page's order.
func onAll() []program {
	return slices.DeleteFunc(all(), func(p program) bool { return !p.cards })
}

// whichCard is the table of the smallest cards.
func (o *options) whichCard() (string, error) {
	var b strings.Builder
	b.WriteString("| program | smallest card that fits | reserved there | the next smaller that was tried " +
		"| cards tried | seconds | run |\n|---|---|---:|---|---|---:|---|\n")
	for _, p := range onAll() {
		f, err := o.keptCards(&p)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| %s | %s |\n", p.title, strings.Join(f.cells(), " | "))
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// cells are a row of the table, without the program.
func (f *onCards) cells() []string {
	if f == nil {
		return []string{"not run", "", "", "", "–", "–"}
	}
	took := fmt.Sprintf("%d (%d)", f.Seconds, f.Processor)
	if f.Failed != "" {
		return []string{"failed", "", f.Failed, "", took, f.Date}
	}
	best := slices.IndexFunc(f.Cards, func(c onCard) bool { return c.Name == f.Smallest })
	if best < 0 {
		return []string{"none of them", "", f.smaller(len(f.Cards)), f.tried(), took, f.Date}
	}
	c := &f.Cards[best]
	reserved := timeline.IEC.Bytes(c.Reserved)
	if c.Retries > 0 {
		reserved += fmt.Sprintf(", retries: %d", c.Retries)
	}
	return []string{c.label(), reserved, f.smaller(best), f.tried(), took, f.Date}
}

// label is a card with its memory.
func (c *onCard) label() string {
	return fmt.Sprintf("%s (%s)", short(c.Name), timeline.IEC.Bytes(c.Memory))
}

// short is a card's name without the words that it is known without.
func short(name string) string {
	for _, word := range []string{"NVIDIA ", "GeForce ", "Tesla "} {
		name = strings.ReplaceAll(name, word, "")
	}
	return name
}

// smaller says what became of the largest card below one that was run.
func (f *onCards) smaller(below int) string {
	for i := below - 1; i >= 0; i-- {
		if c := &f.Cards[i]; c.Turn > 0 && c.Fits != nil {
			return c.label() + ": " + c.Why
		}
	}
	if below == 0 {
		return "there is no smaller one"
	}
	return "those that are smaller cannot be estimated: torch has no kernels for them"
}

// tried lists the cards that were run, in their order.
func (f *onCards) tried() string {
	ran := slices.DeleteFunc(slices.Clone(f.Cards), func(c onCard) bool { return c.Turn == 0 })
	slices.SortFunc(ran, func(a, b onCard) int { return a.Turn - b.Turn })
	var words []string
	for _, c := range ran {
		answer := "?"
		switch {
		case c.Fits != nil && *c.Fits:
			answer = "yes"
		case c.Fits != nil:
			answer = "no"
		}
		words = append(words, short(c.Name)+" "+answer)
	}
	return strings.Join(words, ", ")
}

// answered counts the programs of the table that have their answer.
func (o *options) answered() (string, error) {
	programs, known, failed := onAll(), 0, 0
	for _, p := range programs {
		f, err := o.keptCards(&p)
		switch {
		case err != nil:
			return "", err
		case f != nil && f.Failed != "":
			failed++
		case f != nil:
			known++
		}
	}
	s := fmt.Sprintf("%d of %d programs have their answer", known, len(programs))
	if failed > 0 {
		s += fmt.Sprintf(", and %d failed", failed)
	}
	return report.Wrap(s+". None of the scripts is changed. Seconds are those of the whole command, and in "+
		"brackets how long its processes kept a processor busy: up to four other jobs shared the two cores.",
		wide), nil
}

// path is where a result is kept.
func (o *options) path(name, allocator string) string {
	return filepath.Join(o.results, name+"-"+allocator+".json")
}
