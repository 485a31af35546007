package managers

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// The range of budgets that keys and mouse reach, in % of a step's peak; typing reaches any.
const (
	leastShare = 1
	mostShare  = 150
)

// budget is the memory that plans must fit in, and the slider that moves it. It knows no other part of the
// view.
type budget struct {
	bytes  int64            // 0 for none
	of     *timeline.Device // whose memory it is
	number int              // of the newest change
	moving bool             // it has not rested yet

	slider   canvas.Rect // of the last Draw
	scale    int64       // bytes at the slider's right end
	dragging bool
}

// settledMsg says that the budget has not changed for a moment.
type settledMsg struct {
	budget *budget
	number int
}

// settle switches to a setup, and reports whether it belongs to another training than before: then the budget
// is reset to a sensible one, for a job that is running or for a recording. Otherwise the budget stays,
// because it is the GPU's and does not depend on the step.
func (b *budget) settle(st *setup, running bool) (other bool) {
	b.moving = false
	if b.of == st.device {
		return false
	}
	if other = !sameJob(b.of, st.device); other {
		b.bytes = st.firstBudget(running)
	}
	b.of = st.device
	return other
}

// next is the budget at the next whole multiple of a step in %.
func (b *budget) next(st *setup, by int) int64 {
	if b.bytes <= 0 { // from no budget down to all that is taken today
		return st.share(100)
	}
	n := float64(max(by, -by))
	at := float64(b.bytes) / float64(st.held) * 100 / n
	if by > 0 {
		at = math.Floor(at+1e-6) + 1
	} else {
		at = math.Ceil(at-1e-6) - 1
	}
	return st.share(int64(min(max(at*n, leastShare), mostShare)))
}

// set changes the budget and returns the message to send once it has settled, if it is being dragged.
func (b *budget) set(st *setup, bytes int64, moves bool) settledMsg {
	b.bytes, b.of, b.moving = bytes, st.device, moves
	b.number++
	return settledMsg{b, b.number}
}

// rested takes the news that a budget has rested, and reports whether it is the one in force.
func (b *budget) rested(msg settledMsg) bool {
	if msg != (settledMsg{b, b.number}) {
		return false
	}
	b.moving = false
	return true
}

// ask lets the user type a budget.
func (b *budget) ask(u timeline.Units, st *setup) tea.Cmd {
	text := ""
	if b.bytes > 0 {
		text = strings.ReplaceAll(u.Bytes(b.bytes), " ", "")
		if n := float64(b.bytes) / float64(st.held) * 100; math.Abs(n-math.Round(n)) < 1e-6 {
			text = strconv.Itoa(int(math.Round(n))) + "%"
		}
	}
	return leaf.Send(leaf.AskMsg{
		Title: "budget", Text: text, Hint: "12GiB, 50% of the step's peak, or none",
		Answer: func(text string) (tea.Msg, error) {
			n, err := parseBudget(text, st.held)
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
			return 0, fmt.Errorf("%q is not a share: write 50%%", text)
		}
		return int64(float64(whole) / 100 * n), nil
	}
	n, err := timeline.ParseBytes(text)
	switch {
	case err != nil || n < 0:
		return 0, fmt.Errorf("%q is not a size: write 12GiB or 50%%", text)
	case timeline.LacksUnit(text, n):
		return 0, fmt.Errorf("%q has no unit: write %[1]sGiB, or %[1]sB for bytes", strings.TrimSpace(text))
	case n == 0:
		return 0, errors.New("0 leaves no room for anything: write none for no budget")
	}
	return n, nil
}

// mouse handles mouse events for the slider, and returns the budget that they lead to, to a whole percent. ok
// is false for other events.
func (b *budget) mouse(st *setup, msg tea.MouseMsg) (to int64, ok bool) {
	m := msg.Mouse()
	switch msg.(type) {
	case tea.MouseClickMsg:
		b.dragging = m.Button == tea.MouseLeft && b.slider.Contains(m.X, m.Y)
	case tea.MouseMotionMsg:
	default:
		released := b.dragging
		if _, release := msg.(tea.MouseReleaseMsg); release {
			b.dragging = false
			return b.bytes, released
		}
		return 0, false
	}
	if !b.dragging {
		return 0, false
	}
	if b.slider.W < 2 {
		return b.bytes, true
	}
	part := float64(m.X-b.slider.X) / float64(b.slider.W-1)
	share := math.Round(part * float64(b.scale) / float64(st.held) * 100)
	return st.share(int64(min(max(share, leastShare), mostShare))), true
}

// draw draws the budget on a scale of bytes: one drags it, or moves it with the arrows. Known are other
// budgets, at which the slider costs nothing.
func (b *budget) draw(s *leaf.State, c *canvas.Canvas, at canvas.Rect, st *setup, known []int64) {
	if at.H == 0 || at.W < 40 {
		return
	}
	th := s.Theme
	value, note := "no budget", ""
	if b.bytes > 0 {
		value = s.Units.Bytes(b.bytes)
		note = fmt.Sprintf("%.3g %% of the step's peak", 100*float64(b.bytes)/float64(st.held))
	} else {
		note = "a step holds " + s.Units.Bytes(st.held)
	}
	floor := "floor " + s.Units.Bytes(st.floor)
	x := at.X
	if b.bytes > 0 {
		x += c.Text(x, at.Y, th.Dim, "budget ")
	}
	x += c.Text(x, at.Y, th.Accent.Strong(), value) + 1
	right := canvas.Width(note) + 1
	if at.W >= 100 {
		note += " · " + floor
		right = canvas.Width(note) + 1
	}
	b.slider = canvas.Rect{X: x, Y: at.Y, W: max(at.X+at.W-x-right, 8), H: 1}
	c.TextRight(at.X+at.W, at.Y, th.Dim, canvas.Truncate(note, at.X+at.W-x-b.slider.W-1))
	col := func(bytes int64) int {
		return b.slider.X + int(float64(min(bytes, b.scale))/float64(b.scale)*float64(b.slider.W-1)+0.5)
	}
	c.Fill(b.slider, '─', th.Faint)
	if b.bytes > 0 {
		c.Fill(canvas.Rect{X: b.slider.X, Y: at.Y, W: max(col(b.bytes)-b.slider.X, 0), H: 1}, '━', th.Accent)
	}
	for _, bytes := range known {
		if bytes > 0 && bytes != b.bytes {
			c.Set(col(bytes), at.Y, '•', c.Style(th.Dim))
		}
	}
	if col(st.floor) > b.slider.X {
		c.Set(col(st.floor), at.Y, '┃', c.Style(th.Warn))
	}
	c.Set(col(st.held), at.Y, '│', c.Style(th.Dim))
	if b.bytes > 0 {
		c.Set(col(b.bytes), at.Y, '◆', c.Style(th.Accent.Strong()))
	}
}

// budgetMsg is a typed budget.
type budgetMsg struct{ bytes int64 }
