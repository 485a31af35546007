// Package ranks is the view of a run: the memory of 8 to 1024 ranks over one clock, outliers first. Of a
// training that runs it shows how the ranks are now.
package ranks

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// view shows the ranks of a run. It implements leaf.View.
type view struct {
	table *table.Table
	of    *runs.Run
	order []int // rows of the table as indices of the run's ranks
	strip canvas.Rect
	lanes []lane
	tall  int // rows of a lane

	now running // the ranks of a training that runs, in the place of all else
}

// The columns.
const (
	colRank = iota
	colPeak
	colBar
	colDelta
	colReserved
	colTime
	colHost
	colTop
)

// New returns the view.
func New() leaf.View {
	return &view{now: newRunning(), table: table.New(
		table.Column{Title: "rank", Width: 7, Right: true, Sortable: true},
		table.Column{Title: "peak", Width: 9, Right: true, Sortable: true},
		table.Column{Title: "", Width: 10, Max: 16, Drop: 2},
		table.Column{Title: "vs median", Width: 10, Right: true, Drop: 3, Sortable: true},
		table.Column{Title: "reserved", Width: 12, Right: true, Drop: 5, Sortable: true},
		table.Column{Title: "peak at", Width: 9, Right: true, Drop: 6, Sortable: true},
		table.Column{Title: "host", Width: 8, Max: 20, Drop: 7},
		table.Column{Title: "largest holder", Width: 32, Max: 100},
	)}
}

// ID implements leaf.View.
func (v *view) ID() leaf.ID { return leaf.Ranks }

// Name implements leaf.View.
func (v *view) Name() string { return "Ranks" }

// Available implements leaf.View.
func (v *view) Available(s *leaf.State) (bool, string) {
	if s.Group != nil {
		return true, ""
	}
	if s.Step != "" && (s.Run == nil || len(s.Run.Ranks) == 0) {
		return false, "This job trains in one process. Ranks compares those of a job that has several."
	}
	if s.Run == nil || len(s.Run.Ranks) == 0 {
		return false, "Only one recording is open. To compare ranks, open a folder with a recording of " +
			"each: `gmemtop replay DIR`"
	}
	return true, ""
}

// Update implements leaf.View.
func (v *view) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	if s.Group != nil {
		v.now.take(s.Group)
		return v.now.update(msg)
	}
	v.read(s)
	if v.of == nil {
		return nil
	}
	if m, ok := msg.(tea.MouseClickMsg); ok && m.Button == tea.MouseLeft && v.strip.Contains(m.X, m.Y) {
		return v.clickStrip(m.Y - v.strip.Y)
	}
	switch act := v.table.Update(msg); act.Kind {
	case table.Sorted:
		v.reorder()
	case table.Opened:
		return v.open(s, act.Row)
	}
	return nil
}

// read takes over another run.
func (v *view) read(s *leaf.State) {
	if s.Run == v.of {
		return
	}
	v.of = s.Run
	v.order = v.order[:0]
	if v.of == nil {
		return
	}
	for i := range v.of.Ranks {
		v.order = append(v.order, i)
	}
	v.table.SortBy = -1
	v.table.SetRows(len(v.order))
	v.table.Select(0)
}

// reorder sorts the rows; ranks that could not be read always come last.
func (v *view) reorder() {
	keep := -1
	if row := v.table.Selected(); row >= 0 {
		keep = v.order[row]
	}
	value := func(i int) int64 {
		r := &v.of.Ranks[i]
		switch v.table.SortBy {
		case colPeak, colDelta:
			return r.Totals.PeakAllocated
		case colReserved:
			return r.Totals.PeakReserved.Or(-1)
		case colTime:
			return r.PeakTime
		}
		return r.Rank.Or(math.MaxInt64)
	}
	slices.SortStableFunc(v.order, func(a, b int) int {
		if bad := cmp.Compare(failed(&v.of.Ranks[a]), failed(&v.of.Ranks[b])); bad != 0 {
			return bad
		}
		if v.table.Descending {
			a, b = b, a
		}
		return cmp.Compare(value(a), value(b))
	})
	if row := slices.Index(v.order, keep); row >= 0 {
		v.table.Select(row)
	}
}

func failed(r *runs.RankSummary) int {
	if r.Err != nil {
		return 1
	}
	return 0
}

func (v *view) open(s *leaf.State, row int) tea.Cmd {
	if row < 0 || row >= len(v.order) {
		return nil
	}
	r := &s.Run.Ranks[v.order[row]]
	if r.Err != nil {
		return leaf.Send(leaf.ToastMsg{Text: fmt.Sprintf("%s cannot be opened: %v", r.Name(), r.Err),
			Error: true})
	}
	return leaf.Send(leaf.OpenRankMsg{Path: r.Path})
}

// clickStrip selects the first rank of the lane at a row of the strip.
func (v *view) clickStrip(y int) tea.Cmd {
	for _, l := range v.lanes {
		if y < l.y || y >= l.y+v.tall {
			continue
		}
		if row := slices.Index(v.order, l.ranks[0]); row >= 0 {
			v.table.Select(row)
		}
		return nil
	}
	return nil
}

// Bindings implements leaf.View.
func (v *view) Bindings(s *leaf.State) []key.Binding {
	if s.Group != nil {
		return v.now.bindings()
	}
	if v.of == nil || v.of != s.Run {
		return nil
	}
	return v.table.Bindings("open the rank")
}

// Status implements leaf.View.
func (v *view) Status(s *leaf.State) string {
	if s.Group != nil {
		return v.now.status(s.Units)
	}
	row := v.table.Selected()
	if v.of == nil || v.of != s.Run || row < 0 {
		return ""
	}
	r := &v.of.Ranks[v.order[row]]
	if r.Err != nil {
		return fmt.Sprintf("%s · %v", r.Name(), r.Err)
	}
	peak, than := s.Units.Bytes(r.Totals.PeakAllocated), "as the median"
	if by := r.Totals.PeakAllocated - v.of.Median; by > 0 {
		than = s.Units.Bytes(by) + " above the median"
	} else if by < 0 {
		than = s.Units.Bytes(-by) + " below the median"
	}
	return fmt.Sprintf("%s · peak %s, %s · %s", r.Name(), peak, than, r.Path)
}

// Copy implements leaf.Copier.
func (v *view) Copy(s *leaf.State) (text, what string) {
	if s.Group != nil {
		return s.Group.Sentence(s.Units), "the sentence"
	}
	row := v.table.Selected()
	if v.of == nil || v.of != s.Run || row < 0 {
		return "", ""
	}
	return v.of.Ranks[v.order[row]].Path, "the rank's path"
}
