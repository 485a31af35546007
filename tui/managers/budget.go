package managers

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// The range of budgets that keys and mouse reach, in % of what the caching allocator takes; typing reaches
// any.
const (
	leastShare = 1
	mostShare  = 150
)

// dial is the View as what moves the budget.
type dial struct{ *View }

// step moves the budget to the next whole multiple of a step in %.
func (v dial) step(s *leaf.State, by int) tea.Cmd {
	st := v.setup(s)
	if st == nil {
		return nil
	}
	if v.budget <= 0 { // from no budget down to all that is taken today
		return v.setBudget(s, st.share(100), false)
	}
	n := float64(max(by, -by))
	at := float64(v.budget) / float64(st.caching) * 100 / n
	if by > 0 {
		at = math.Floor(at+1e-6) + 1
	} else {
		at = math.Ceil(at-1e-6) - 1
	}
	return v.setBudget(s, st.share(int64(min(max(at*n, leastShare), mostShare))), false)
}

// setBudget asks another question. Kept answers are there at once; else planning begins when the budget has
// rested, at once where it was said for good.
func (v dial) setBudget(s *leaf.State, bytes int64, now bool) tea.Cmd {
	st := v.setup(s)
	if st == nil || bytes == v.budget {
		return nil
	}
	v.budget, v.budgetOn, v.planning.stopped = bytes, st.device, false
	v.generation++
	v.planning.stop()
	v.search.stop()
	q := question{st, bytes}
	if v.moving = !now && v.Wait > 0 && len(v.planning.missing(q, v.managers.serving(st.p))) > 0; !v.moving {
		return tea.Batch(ranking(v).refresh(s), v.plan(s))
	}
	msg, wait := settledMsg{v.View, v.generation}, v.Wait
	return tea.Batch(ranking(v).refresh(s), func() tea.Msg {
		time.Sleep(wait)
		return msg
	})
}

// askBudget lets the user type a budget.
func (v dial) askBudget(s *leaf.State) tea.Cmd {
	st := v.setup(s)
	if st == nil {
		return nil
	}
	text := ""
	if v.budget > 0 {
		text = strings.ReplaceAll(s.Units.Bytes(v.budget), " ", "")
		if n := float64(v.budget) / float64(st.caching) * 100; math.Abs(n-math.Round(n)) < 1e-6 {
			text = strconv.Itoa(int(math.Round(n))) + "%"
		}
	}
	return leaf.Send(leaf.AskMsg{
		Title: "budget", Text: text, Hint: "12GiB, 50% of what the caching allocator takes, or none",
		Answer: func(text string) (tea.Msg, error) {
			n, err := parseBudget(text, st.caching)
			return budgetMsg{n}, err
		},
	})
}

// parseBudget reads bytes, a share, or none.
func parseBudget(text string, whole int64) (int64, error) {
	if text == "" || text == "none" {
		return 0, nil
	}
	if share, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
		if err != nil || !(n > 0 && n <= 1000) { // which NaN is not either
			return 0, fmt.Errorf("%q is no share: write 50%%", text)
		}
		return int64(float64(whole) / 100 * n), nil
	}
	n, err := timeline.ParseBytes(text)
	switch {
	case err != nil || n < 0:
		return 0, fmt.Errorf("%q is no size: write 12GiB or 50%%", text)
	case n == 0:
		return 0, errors.New("0 leaves no room for anything: write none for no budget")
	}
	return n, nil
}

// settledMsg says that the budget has rested since generation.
type settledMsg struct {
	view       *View
	generation int
}

// slideTo sets the budget to where the mouse points on the slider, to a whole percent.
func (v dial) slideTo(s *leaf.State, x int) tea.Cmd {
	st := v.setup(s)
	if st == nil || v.slider.W < 2 {
		return nil
	}
	part := float64(x-v.slider.X) / float64(v.slider.W-1)
	share := math.Round(part * float64(v.scale) / float64(st.caching) * 100)
	return v.setBudget(s, st.share(int64(min(max(share, leastShare), mostShare))), false)
}

// onMouse handles what is no business of the table: the slider, the switches, the charts.
func (v dial) onMouse(s *leaf.State, msg tea.MouseMsg) (tea.Cmd, bool) {
	m := msg.Mouse()
	switch msg.(type) {
	case tea.MouseClickMsg:
		switch {
		case m.Button != tea.MouseLeft:
			return nil, false
		case m.Y == v.slider.Y && v.slider.Contains(m.X, m.Y):
			v.dragging = true
			return v.slideTo(s, m.X), true
		}
		if x, w, ok := v.table.ColumnAt(colOn); ok && m.X >= x && m.X < x+w {
			if i := v.table.RowAt(m.Y); i >= 0 && i < len(v.rows) {
				v.table.Select(i)
				ranking(v).follow()
				return hand(v).toggle(s, v.rows[i].manager), true
			}
		}
		if k, ok := (plotter(v)).spotAt(m.X, m.Y); ok {
			v.choose(k)
			ranking(v).reselect()
			return nil, true
		}
	case tea.MouseMotionMsg:
		if v.dragging {
			return v.slideTo(s, m.X), true
		}
	case tea.MouseReleaseMsg:
		if v.dragging {
			v.dragging = false
			return nil, true
		}
	}
	return nil, false
}

// drawSlider draws the budget on a scale of bytes: one drags it, or moves it with the arrows.
func (v painter) drawSlider(s *leaf.State, c *canvas.Canvas, at canvas.Rect, st *setup) {
	if at.H == 0 || at.W < 40 {
		return
	}
	th := s.Theme
	value, note := "no budget", ""
	if v.budget > 0 {
		value = s.Units.Bytes(v.budget)
		note = fmt.Sprintf("%.3g %% of caching", 100*float64(v.budget)/float64(st.caching))
	} else {
		note = "caching takes " + s.Units.Bytes(st.caching)
	}
	floor := "floor " + s.Units.Bytes(st.floor)
	x := at.X + c.Text(at.X, at.Y, th.Dim, "budget ")
	x += c.Text(x, at.Y, th.Accent.Strong(), value) + 1
	right := canvas.Width(note) + 1
	if at.W >= 100 {
		note += " · " + floor
		right = canvas.Width(note) + 1
	}
	v.slider = canvas.Rect{X: x, Y: at.Y, W: max(at.X+at.W-x-right, 8), H: 1}
	c.TextRight(at.X+at.W, at.Y, th.Dim, canvas.Truncate(note, at.X+at.W-x-v.slider.W-1))
	col := func(bytes int64) int {
		return v.slider.X + int(float64(min(bytes, v.scale))/float64(v.scale)*float64(v.slider.W-1)+0.5)
	}
	c.Fill(v.slider, '─', th.Faint)
	if v.budget > 0 {
		c.Fill(canvas.Rect{X: v.slider.X, Y: at.Y, W: max(col(v.budget)-v.slider.X, 0), H: 1}, '━', th.Accent)
	}
	for q, a := range v.planning.answers { // budgets whose answers are kept: there the slider costs nothing
		if q.setup == st && q.budget > 0 && q.budget != v.budget && len(a.by) > 0 {
			c.Set(col(q.budget), at.Y, '•', c.Style(th.Dim))
		}
	}
	if col(st.floor) > v.slider.X {
		c.Set(col(st.floor), at.Y, '┃', c.Style(th.Warn))
	}
	c.Set(col(st.caching), at.Y, '│', c.Style(th.Dim))
	if v.budget > 0 {
		c.Set(col(v.budget), at.Y, '◆', c.Style(th.Accent.Strong()))
	}
}
