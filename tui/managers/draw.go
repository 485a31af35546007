package managers

import (
	"fmt"

	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// Draw implements leaf.View.
func (v *View) Draw(s *leaf.State, c *canvas.Canvas) {
	v.charts.clear()
	v.budget.slider = canvas.Rect{}
	if v.inside != nil {
		v.inside.Draw(s, c)
		return
	}
	q, ok := v.question(s)
	if !ok {
		v.subject.draw(s, c)
		return
	}
	_, body := c.Bounds().CutTop(v.head.draw(s, c, v.headline(s)))
	body = v.training.draw(s, c, body.Inset(1, 0), q)
	rows, slider := tableRows(len(v.ranking.rows)+1, body.H), 1
	if body.H < 6 {
		slider = 0
	}
	var tableAt, sliderAt canvas.Rect
	tableAt, body = body.CutTop(rows)
	v.budget.scale = v.ranking.scaleOf(q)
	sheet := newSheet(v, s, q)
	sheet.draw(c, tableAt)
	if body.H > 12 {
		_, body = body.CutTop(1)
	}
	sliderAt, body = body.CutTop(slider)
	v.budget.draw(s, c, sliderAt, q.setup, v.planning.budgets(q.setup))
	if body.H > 8 {
		_, body = body.CutTop(1)
	}
	x := &picture{
		State: s, q: q, all: v.managers, rows: v.ranking.rows,
		chosen: v.ranking.chosen, winner: v.ranking.winner,
		bounds: v.planning.bounds(q.setup),
		trail:  v.planning.trail(q, v.managers, v.ranking.chosen), running: v.planning.active(),
		tempo: v.training.tempo(s, q, v.ranking.todayTime()),
	}
	v.charts.draw(c, body, x)
}

// head is the room that the sentence took, in a view of w by h cells.
type head struct{ w, h, rows int }

// draw writes the sentence and returns the number of rows reserved for it: as many as the longest one so far
// took in this room, so that nothing below moves while the budget is dragged or results come in.
func (x *head) draw(s *leaf.State, c *canvas.Canvas, text string) int {
	if w, h := c.Size(); x.w != w || x.h != h {
		*x = head{w: w, h: h}
	}
	x.rows = max(x.rows, leaf.Sentence(s, c, text))
	return x.rows
}

// tableRows gives the table all its rows if there is room, otherwise a little more than half of the room: the
// charts need the rest.
func tableRows(want, room int) int {
	switch {
	case room < 8:
		return room
	case room < 16:
		rows := min(want, room-2, max(room*3/5, 4))
		if room-rows-1 < leastChart { // the slider's row comes off as well
			rows = min(want, room-1)
		}
		return rows
	}
	return min(want, room*11/20)
}

// headline returns the one-sentence answer, or the progress towards it.
func (v *View) headline(s *leaf.State) string {
	q, ok := v.question(s)
	if !ok {
		return ""
	}
	a := v.planning.answersTo(q)
	if a.err != nil {
		return problemText(s.Units, q, a.err)
	}
	if text := asItIs(s.Units, q, runs(s)); text != "" && v.training.plain() {
		return text
	}
	names := v.managers.serving(q.setup.p)
	text, today := v.planning.answer(s.Units, q, names, v.budget.moving), ""
	if i := v.managers.baseline(); i >= 0 {
		today = v.managers[i].Info.Name
	}
	if of := v.search.text(s.Units, q, today); of != "" {
		text = of + " " + text
	}
	if of := v.measuring.text(q, v.ranking.rows, v.ranking.winner); of != "" {
		text += " " + of
	}
	if q.setup.ranks > 1 {
		text += fmt.Sprintf(" These figures are for the %d ranks that captured this step: plans are made "+
			"for %s, which holds most, and rows show the memory of the fullest rank and the step time of "+
			"the slowest.", q.setup.ranks, q.setup.fullest)
	}
	if v.training.outdated(q.setup) {
		text += " The training's steps have changed since this one was captured: r in Live captures one as " +
			"they are now."
	}
	if s.UnderPlan {
		text += " Planned for " + s.BasisName + ", which ran without a plan; the step in view ran under one."
	}
	return text
}

// newSheet collects what the table shows from the other parts.
func newSheet(v *View, s *leaf.State, q question) *sheet {
	x := &sheet{
		ranking: &v.ranking, State: s, q: q, scale: v.budget.scale, mark: v.training.mark,
		tempo: v.training.tempo(s, q, v.ranking.todayTime()), outdated: v.training.outdated(q.setup),
		batch: v.search.title(q), target: v.measuring.target, progress: v.planning.progressOf,
		running: v.planning.active(), awaited: v.planning.answersTo(q).err == nil && !v.planning.stopped,
	}
	x.more = func(r *row, col int) table.Cell {
		if col == colBatch {
			return v.search.cell(s.Theme, q, r)
		}
		return v.measuring.cell(s.Theme, q, r, col, x.size)
	}
	return x
}

// runs reports whether the step in view is of a watched job that has not run out of memory.
func runs(s *leaf.State) bool { return s.Step != "" && !s.RanOut }

// asItIs says that a running job needs no plan as long as there is no budget, or that a training on a CPU
// needs none for a budget; "" if it may need one.
func asItIs(u timeline.Units, q question, running bool) string {
	if running && q.budget <= 0 && q.setup.hasRoom() && q.setup.canMove() {
		if !q.setup.onCPU() {
			return fmt.Sprintf("This job needs no plan: it takes %s of the GPU's %s. b sets a budget, to "+
				"see what would fit in less.", u.Bytes(q.setup.taken()),
				u.Bytes(q.setup.device.Info.TotalBytes))
		}
		return fmt.Sprintf("This job runs on a CPU and needs no plan: at most %s are alive at once, and "+
			"no allocator adds to that. b sets a budget, to see what would fit in less. The rows say what a "+
			"GPU would hold.", u.Bytes(q.setup.live))
	}
	if q.budget <= 0 || !replay.FitsAsItIs(q.setup.device, q.setup.live, q.net()) {
		return ""
	}
	return fmt.Sprintf("On this CPU a step fits into %s as it is: at most %s are alive at once, "+
		"and no allocator adds to that. A plan would have nothing to do. The rows say what a GPU would hold.",
		u.Bytes(q.budget), u.Bytes(q.setup.live))
}
