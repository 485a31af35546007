package headless

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// CaptureTable is what was captured of the ranks of a run, as JSON and as text.
type CaptureTable struct {
	First int64         `json:"first_step"`
	Last  int64         `json:"last_step"`
	Ranks []captureLine `json:"ranks"`

	dir string
}

// captureLine is what was captured of a rank.
type captureLine struct {
	Rank  int64  `json:"rank"`
	Node  string `json:"node"`
	First int64  `json:"first_step"`
	Last  int64  `json:"last_step"`
	Bytes int64  `json:"bytes"`
	Path  string `json:"path"`
	Late  bool   `json:"late"`
	Why   string `json:"why_not"`
}

// CapturesOf returns the table of a capture.
func CapturesOf(done fleet.Captured) CaptureTable {
	c := CaptureTable{First: done.First, Last: done.Last, Ranks: []captureLine{}, dir: done.Dir}
	for _, r := range done.Ranks {
		c.Ranks = append(c.Ranks, captureLine{Rank: r.Rank, Node: r.Host(), First: r.First, Last: r.Last,
			Bytes: r.Bytes, Path: r.Path, Late: done.Late(r), Why: r.Why})
	}
	return c
}

// paths are those of the traces.
func (c *CaptureTable) paths() (all []string) {
	for _, l := range c.Ranks {
		if l.Path != "" {
			all = append(all, l.Path)
		}
	}
	return all
}

// Opens are the paths to open: of two traces both, of more their folder.
func (c *CaptureTable) Opens() []string {
	if paths := c.paths(); len(paths) == 2 {
		return paths
	}
	return []string{c.dir}
}

// Next says what shows the traces.
func (c *CaptureTable) Next() string {
	if paths := c.Opens(); len(paths) == 2 {
		return fmt.Sprintf("gmemtop replay %s %s compares them", paths[0], paths[1])
	}
	return fmt.Sprintf("gmemtop replay %s shows them", c.dir)
}

// Whole reports whether all ranks were captured, and began with the step that was asked for.
func (c *CaptureTable) Whole() bool {
	for _, l := range c.Ranks {
		if l.Late || l.Path == "" {
			return false
		}
	}
	return true
}

// WriteText writes a line for each rank.
func (c *CaptureTable) WriteText(out io.Writer, units timeline.Units) error {
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "rank\tnode\tsteps\tsize\ttrace\n")
	for _, l := range c.Ranks {
		steps, what := fmt.Sprint(l.First), l.Path
		if l.Last > l.First {
			steps = fmt.Sprintf("%d to %d", l.First, l.Last)
		}
		size := units.Bytes(l.Bytes)
		switch {
		case l.Path == "":
			steps, size, what = "-", "-", "not captured: "+l.Why
		case l.Late:
			what += fmt.Sprintf(" (late: it was requested for step %d)", c.First)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", l.Rank, report.Printable(l.Node), steps, size,
			report.Printable(what))
	}
	return t.Flush()
}
