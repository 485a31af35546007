package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// View shows the machine. It implements leaf.View.
type View struct {
	look  Look
	list  []Process // in the table's order
	table *table.Table
	sort  int
	down  bool
}

// Columns of the table of processes.
const (
	colPID = iota
	colUser
	colGPU
	colBytes
	colShare
	colBusy
	colHost
	colAge
	colCommand
)

// New returns the view.
func New() *View {
	right := func(title string, width, drop int) table.Column {
		return table.Column{Title: title, Width: width, Right: true, Drop: drop, Sortable: true}
	}
	v := &View{sort: colBytes, down: true, table: table.New(
		right("pid", 8, 0), table.Column{Title: "user", Width: 10, Drop: 4, Sortable: true},
		table.Column{Title: "GPU", Width: 5, Drop: 1}, right("memory", 12, 0),
		table.Column{Title: "", Width: 10, Max: 24, Drop: 6}, right("busy", 6, 3), right("host", 10, 2),
		right("age", 8, 5),
		table.Column{Title: "command", Width: 20, Max: 200},
	)}
	v.table.SortBy, v.table.Descending = v.sort, v.down
	return v
}

// ID implements leaf.View.
func (v *View) ID() leaf.ID { return leaf.Machine }

// Name implements leaf.View.
func (v *View) Name() string { return "GPUs" }

// Available implements leaf.View.
func (v *View) Available(*leaf.State) (bool, string) { return true, "" }

// Timeless implements leaf.Timeless.
func (v *View) Timeless() bool { return true }

// Look returns what the view shows.
func (v *View) Look() Look { return v.look }

// Take gives the view the newest look; the selected process stays selected.
func (v *View) Take(l Look) {
	v.look = l
	v.order()
}

// order sorts the table; the selected process stays selected.
func (v *View) order() {
	before, selected := v.selected()
	v.list = slices.Clone(v.look.Processes)
	slices.SortStableFunc(v.list, func(a, b Process) int {
		var n int
		switch v.sort {
		case colPID:
			n = cmp.Compare(a.PID, b.PID)
		case colUser:
			n = cmp.Compare(a.User, b.User)
		case colBusy:
			n = cmp.Compare(a.Busy.Or(-1), b.Busy.Or(-1))
		case colHost:
			n = cmp.Compare(a.Host.Or(-1), b.Host.Or(-1))
		case colAge:
			n = cmp.Compare(a.Age, b.Age)
		default:
			n = cmp.Or(cmp.Compare(a.Bytes.Or(-1), b.Bytes.Or(-1)), cmp.Compare(a.Host.Or(-1), b.Host.Or(-1)))
		}
		if v.down {
			n = -n
		}
		return cmp.Or(n, cmp.Compare(a.PID, b.PID))
	})
	v.table.SetRows(len(v.list))
	if i := slices.IndexFunc(v.list, func(p Process) bool {
		return p.PID == before.PID
	}); selected && i >= 0 {
		v.table.Select(i)
	}
}

func (v *View) selected() (Process, bool) {
	if i := v.table.Selected(); i >= 0 && i < len(v.list) {
		return v.list[i], true
	}
	return Process{}, false
}

// Update implements leaf.View.
func (v *View) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	switch a := v.table.Update(msg); a.Kind {
	case table.Opened:
		p, ok := v.selected()
		switch {
		case !ok:
		case p.No != "":
			return leaf.Send(leaf.ToastMsg{Text: fmt.Sprintf("%d cannot be watched: %s", p.PID, p.No),
				Error: true})
		case !p.Torch:
			return leaf.Send(leaf.PickMsg{Title: fmt.Sprintf("Attach to %d? No torch was seen in it", p.PID),
				Choices: []leaf.Choice{
					{Title: "leave it alone", Detail: "probably it does not train"},
					{Title: "attach", Detail: "the agent leaves if it finds no torch", Msg: AttachMsg{p}},
				}})
		default:
			return leaf.Send(AttachMsg{p})
		}
	case table.Sorted:
		v.down = v.sort != a.Column || !v.down
		v.sort = a.Column
		v.table.SortBy, v.table.Descending = v.sort, v.down
		v.order()
	}
	return nil
}

// Bindings implements leaf.View.
func (v *View) Bindings(*leaf.State) []key.Binding {
	open := ""
	if p, ok := v.selected(); ok && p.No == "" {
		open = "watch it"
	}
	return v.table.Bindings(open)
}

// Copy implements leaf.Copier.
func (v *View) Copy(s *leaf.State) (text, what string) {
	if p, ok := v.selected(); ok {
		return fmt.Sprint(p.PID), "the pid"
	}
	return v.sentence(s), "the sentence"
}

// Status implements leaf.View.
func (v *View) Status(s *leaf.State) string {
	p, ok := v.selected()
	switch {
	case !ok:
		return ""
	case p.No != "":
		return fmt.Sprintf("%d cannot be watched: %s", p.PID, p.No)
	}
	return fmt.Sprintf("%d: %s", p.PID, p.Command)
}

// sentence says how full the machine is and which process fills it.
func (v *View) sentence(s *leaf.State) string {
	l := &v.look
	if l.Version == 0 {
		return "Looking at the machine."
	}
	watchable := 0
	for i := range l.Processes {
		if l.Processes[i].No == "" {
			watchable++
		}
	}
	if len(l.Devices) == 0 {
		text := "No GPU here"
		if l.NoDevices != "" {
			text = "No GPU found: " + l.NoDevices
		}
		switch watchable {
		case 0:
			return text + ". No process here has torch loaded; `gmemtop run -- python train.py` starts one."
		case 1:
			return text + ". One process uses torch on the CPU and can be watched."
		}
		return text + fmt.Sprintf(". %d processes use torch on the CPU and can be watched.", watchable)
	}
	full := slices.MaxFunc(l.Devices, func(a, b Device) int {
		return cmp.Compare(a.share(), b.share())
	})
	text := "The driver does not say how much of a GPU is used"
	if used, ok := full.Used.Value(); ok {
		text = fmt.Sprintf("GPU %d: %s used", full.Index, of(s.Units.Bytes(used), s, full.Total))
		if n := len(l.Devices); n > 1 {
			text = fmt.Sprintf("Fullest of %d GPUs: %s used on GPU %d", n,
				of(s.Units.Bytes(used), s, full.Total),
				full.Index)
		}
	}
	var most Process
	var bytes int64
	for _, p := range l.Processes {
		if n := p.Bytes.Or(0); n > bytes && slices.Contains(p.Devices, full.Index) {
			most, bytes = p, n
		}
	}
	if bytes > 0 {
		where := "of it"
		if n := len(most.Devices); n > 1 {
			where = fmt.Sprintf("on %d GPUs", n)
		}
		text += fmt.Sprintf(", most by %s (%d), %s %s", name(most.Command), most.PID, s.Units.Bytes(bytes),
			where)
	}
	for _, d := range l.Devices {
		if d.Alarm != "" {
			text += fmt.Sprintf("; GPU %d: %s", d.Index, d.Alarm)
		}
	}
	return text + "."
}

// name is the script or program of a command line.
func name(command string) string {
	words := strings.Fields(command)
	for _, w := range words {
		if strings.HasSuffix(w, ".py") {
			return leaf.Base(w)
		}
	}
	if len(words) > 0 {
		return leaf.Base(words[0])
	}
	return "?"
}

// shortCommand is a command line without the folders of its program and script, which come first and
// distinguish it least.
func shortCommand(command string) string {
	words := strings.Fields(command)
	if len(words) == 0 {
		return command
	}
	words[0] = leaf.Base(words[0])
	for i, w := range words[1:] {
		if !strings.HasPrefix(w, "-") {
			if strings.HasSuffix(w, ".py") {
				words[1+i] = leaf.Base(w)
			}
			break
		}
	}
	return strings.Join(words, " ")
}

// Draw implements leaf.View.
func (v *View) Draw(s *leaf.State, c *canvas.Canvas) {
	_, body := c.Bounds().CutTop(leaf.Sentence(s, c, v.sentence(s)))
	body = body.Inset(1, 0)
	if n := len(v.look.Devices); n > 0 {
		rows := 2
		if 2*n > body.H/2 {
			rows = 1
		}
		if n*6 <= body.H/2 {
			rows = 5
		}
		var top canvas.Rect
		top, body = body.CutTop(min(n*rows+1, body.H*2/3))
		for i := range v.look.Devices {
			if at, ok := slot(top, i, rows); ok {
				v.drawDevice(s, c.Sub(at), &v.look.Devices[i])
			}
		}
	}
	if p, ok := v.selected(); ok && body.H >= 14 && len(p.History) > 0 {
		var below canvas.Rect
		body, below = body.CutBottom(min(max(body.H/3, 6), 10))
		v.drawSelected(s, c.Sub(below), &p)
	}
	v.drawProcesses(s, c, body)
}

// drawSelected draws how much the selected process held.
func (v *View) drawSelected(s *leaf.State, c *canvas.Canvas, p *Process) {
	if c.Width() < 20 {
		return
	}
	th, what := s.Theme, "GPU memory"
	if !p.Bytes.IsKnown() {
		what = "resident memory"
	}
	shown := min(len(p.History), c.Width()-9)
	title := fmt.Sprintf("%s of %d %s", what, p.PID, name(p.Command))
	if p.Every > 0 && shown > 1 {
		title += ", the last " + timeline.Duration(int64(p.Every)*int64(shown-1))
	}
	leaf.Rule(s, c, 0, 0, c.Width(), title)
	top := maybe.Max(p.History[len(p.History)-shown:]...).Or(0)
	if c.Height() < 3 || top <= 0 {
		return
	}
	unit, text := s.Units.Column(top)
	c.TextRight(7, 1, th.Dim, strings.TrimSpace(text(top)))
	if c.Height() > 4 {
		c.TextRight(7, 2, th.Faint, unit)
	}
	c.TextRight(7, c.Height()-1, th.Dim, "0")
	drawHistory(c.Sub(canvas.Rect{X: 8, Y: 1, W: shown, H: c.Height() - 1}), p.History, top, th.Plain())
}

func slot(in canvas.Rect, i, rows int) (canvas.Rect, bool) {
	at := canvas.Rect{X: in.X, Y: in.Y + i*rows, W: in.W, H: rows}
	return at, at.Y+rows <= in.Y+in.H
}

// drawProcesses draws the processes that use the GPUs or could be watched.
func (v *View) drawProcesses(s *leaf.State, c *canvas.Canvas, at canvas.Rect) {
	th := s.Theme
	gpu := len(v.look.Devices) > 0
	var top, host, total int64
	for i := range v.list {
		top, host = max(top, v.list[i].Bytes.Or(0)), max(host, v.list[i].Host.Or(0))
	}
	for i := range v.look.Devices {
		total = max(total, v.look.Devices[i].Total.Or(0))
	}
	unit, text := s.Units.Column(top)
	hostUnit, hostText := s.Units.Column(host)
	if top <= 0 { // no figure, no unit
		unit = ""
	}
	if host <= 0 {
		hostUnit = ""
	}
	v.table.Columns[colBytes].Unit, v.table.Columns[colHost].Unit = unit, hostUnit
	for _, col := range []int{colGPU, colBytes, colShare, colBusy} {
		v.table.Columns[col].Hidden = !gpu
	}
	if v.table.SortBy = v.sort; !gpu && v.sort == colBytes { // sort by host memory without GPUs
		v.table.SortBy = colHost
	}
	v.table.Draw(c, at, th, func(row, col int) table.Cell {
		p := &v.list[row]
		plain := th.Text
		if p.No != "" {
			plain = th.Dim
		}
		switch col {
		case colPID:
			return table.Cell{Text: fmt.Sprint(p.PID), Style: plain}
		case colUser:
			return table.Cell{Text: p.User, Style: th.Dim}
		case colGPU:
			return table.Cell{Text: strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Devices), " ", ","), "[]"),
				Style: plain}
		case colBytes:
			return figure(th.Faint, p.Bytes, plain, func(n int64) string {
				return strings.TrimSpace(text(n))
			})
		case colShare:
			return table.Cell{Part: p.Bytes.Or(0), Whole: max(total, 1), Fill: th.Plain()}
		case colBusy:
			return figure(th.Faint, p.Busy, th.Dim, func(n int64) string { return fmt.Sprintf("%d %%", n) })
		case colHost:
			return figure(th.Faint, p.Host, th.Dim, func(n int64) string {
				return strings.TrimSpace(hostText(n))
			})
		case colAge:
			if p.Age <= 0 { // the process is not visible from here
				return table.Cell{Text: "–", Style: th.Faint}
			}
			return table.Cell{Text: timeline.Duration(int64(p.Age)), Style: th.Dim}
		}
		cell := table.Cell{Text: shortCommand(p.Command), Style: plain}
		if p.Torch && p.No == "" {
			cell.Lead, cell.LeadStyle = "●", th.Good
		}
		return cell
	})
	if len(v.list) == 0 && at.H > 3 {
		c.TextCenter(at.X, at.Y+2, at.W, th.Dim, "no process uses a GPU or has torch loaded")
	}
}

func figure(faint canvas.Style, f maybe.Int, st canvas.Style, text func(int64) string) table.Cell {
	if n, ok := f.Value(); ok {
		return table.Cell{Text: text(n), Style: st}
	}
	return table.Cell{Text: "–", Style: faint}
}
