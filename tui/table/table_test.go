package table

import (
	"charm.land/lipgloss/v2"
	lgtable "charm.land/lipgloss/v2/table"

	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/theme"
)

const million = 1_000_000

func columns() []Column {
	return []Column{
		{Title: "block", Width: 8, Drop: 0},
		{Title: "size", Width: 8, Right: true, Sortable: true},
		{Title: "stream", Width: 6, Right: true, Drop: 3, Sortable: true},
		{Title: "life", Width: 8, Right: true, Drop: 2, Sortable: true},
		{Title: "site", Width: 10, Max: 60, Drop: 1, Sortable: true},
	}
}

func text(row, col int) Cell {
	return Cell{Text: fmt.Sprintf("%s%d", []string{"b", "", "", "", "site "}[col], row)}
}

func lines(c *canvas.Canvas) []string { return strings.Split(ansi.Strip(c.String()), "\n") }

func press(s string) tea.KeyPressMsg {
	named := map[string]rune{"up": tea.KeyUp, "down": tea.KeyDown, "pgdown": tea.KeyPgDown,
		"pgup": tea.KeyPgUp, "home": tea.KeyHome,
		"end": tea.KeyEnd, "enter": tea.KeyEnter}
	if code, ok := named[s]; ok {
		return tea.KeyPressMsg{Code: code}
	}
	r := []rune(s)[0]
	return tea.KeyPressMsg{Code: r, Text: s}
}

func TestOnlyVisibleRowsAreFormatted(t *testing.T) {
	for _, keys := range [][]string{nil, {"end"}, {"end", "pgup", "pgup"}, {"pgdown", "pgdown", "down"}} {
		tab := New(columns()...)
		tab.SetRows(million)
		c := canvas.New(120, 40, canvas.TrueColor, false)
		draw := func(calls *int, least, most *int) {
			tab.Draw(c, c.Bounds(), theme.Dark(), func(row, col int) Cell {
				*calls++
				*least, *most = min(*least, row), max(*most, row)
				return text(row, col)
			})
		}
		calls, least, most := 0, million, -1
		draw(&calls, &least, &most)
		for _, k := range keys {
			tab.Update(press(k))
		}
		calls, least, most = 0, million, -1
		draw(&calls, &least, &most)
		if want := 39 * len(columns()); calls != want {
			t.Errorf("after %v, %d cells were formatted of a screen of %d", keys, calls, want)
		}
		if least != tab.Top() || most != tab.Top()+38 {
			t.Errorf("after %v, rows [%d, %d] were formatted and the first visible one is %d", keys, least,
				most, tab.Top())
		}
	}
}

func TestTheSelectedRowIsAlwaysVisibleAfterAKey(t *testing.T) {
	tab := New(columns()...)
	tab.SetRows(million)
	c := canvas.New(80, 20, canvas.NoColor, false)
	for _, k := range []string{"down", "down", "pgdown", "end", "up", "pgup", "home", "G", "k", "g", "j"} {
		tab.Draw(c, c.Bounds(), theme.Mono(), text)
		tab.Update(press(k))
		if s := tab.Selected(); s < tab.Top() || s >= tab.Top()+19 {
			t.Errorf("after %s row %d is selected and [%d, %d) is visible", k, s, tab.Top(), tab.Top()+19)
		}
	}
}

// A head is never cut, and sorting by another column moves nothing.
func TestHeadsAreNeverCut(t *testing.T) {
	tab := New(Column{Title: "n", Width: 4}, Column{Title: "allocated", Unit: "GiB", Width: 6, Right: true,
		Sortable: true}, Column{Title: "site", Width: 10, Max: 60})
	tab.SetRows(3)
	c := canvas.New(40, 5, canvas.NoColor, false)
	tab.SortBy = -1
	tab.Draw(c, c.Bounds(), theme.Mono(), text)
	plain := lines(c)
	c.Clear()
	tab.SortBy = 1
	tab.Draw(c, c.Bounds(), theme.Mono(), text)
	sorted := lines(c)
	if !strings.Contains(plain[0], "allocated GiB") || !strings.Contains(sorted[0], "allocated GiB▲") {
		t.Errorf("heads are cut: %q, %q", plain[0], sorted[0])
	}
	if plain[1] != sorted[1] {
		t.Errorf("sorting moves cells: %q, %q", plain[1], sorted[1])
	}
}

func TestColumnsAreDroppedInOrderAndTheRestGrows(t *testing.T) {
	for _, tc := range []struct {
		w    int
		want string
	}{
		{100, "block size stream life site"},
		{48, "block size stream life site"},
		{47, "block size life site"},
		{34, "block size site"},
		{20, "block size"},
		{4, "blo…"},
	} {
		tab := New(columns()...)
		tab.SetRows(3)
		c := canvas.New(tc.w, 5, canvas.NoColor, false)
		tab.Draw(c, c.Bounds(), theme.Mono(), text)
		if got := strings.Join(strings.Fields(lines(c)[0]), " "); got != tc.want {
			t.Errorf("%d cells show %q, want %q", tc.w, got, tc.want)
		}
	}
}

func TestNumbersAreRightAligned(t *testing.T) {
	tab := New(columns()...)
	tab.SetRows(2000)
	tab.Select(990)
	c := canvas.New(80, 30, canvas.NoColor, false)
	tab.Draw(c, c.Bounds(), theme.Mono(), text)
	tab.Select(1010)
	tab.Draw(c, c.Bounds(), theme.Mono(), text)
	for _, l := range lines(c)[1:] {
		if l[17] == ' ' || l[18] != ' ' {
			t.Errorf("the number does not end at cell 17 in %q", l)
		}
	}
}

func TestOneClickSelectsTwoOpenAndATitleSorts(t *testing.T) {
	tab := New(columns()...)
	tab.SetRows(100)
	c := canvas.New(80, 20, canvas.NoColor, false)
	at := canvas.Rect{X: 3, Y: 4, W: 70, H: 12}
	tab.Draw(c, at, theme.Mono(), text)
	click := func(x, y int) Action { return tab.Update(tea.MouseClickMsg{X: x, Y: y, Button: tea.MouseLeft}) }
	if a := click(5, 10); a.Kind != Moved || a.Row != 5 {
		t.Errorf("a click on the sixth row did %+v", a)
	}
	if a := click(5, 10); a.Kind != Opened || a.Row != 5 {
		t.Errorf("a click on the selected row did %+v", a)
	}
	if a := click(15, 4); a.Kind != Sorted || a.Column != 1 || !tab.Descending {
		t.Errorf("a click on size did %+v, descending %v", a, tab.Descending)
	}
	if a := click(15, 4); a.Kind != Sorted || tab.Descending {
		t.Errorf("a second click on size did %+v, descending %v", a, tab.Descending)
	}
	if a := click(5, 4); a.Kind == Sorted {
		t.Error("a column that cannot sort sorted")
	}
	if a := click(1, 10); a.Kind != Ignored {
		t.Errorf("a click outside the table did %+v", a)
	}
}

func TestTheWheelScrollsWithoutSelecting(t *testing.T) {
	tab := New(columns()...)
	tab.SetRows(100)
	c := canvas.New(80, 20, canvas.NoColor, false)
	tab.Draw(c, c.Bounds(), theme.Mono(), text)
	tab.Update(tea.MouseWheelMsg{X: 5, Y: 5, Button: tea.MouseWheelDown})
	if tab.Top() != 3 || tab.Selected() != 0 {
		t.Errorf("the wheel left row %d on top and row %d selected", tab.Top(), tab.Selected())
	}
	if a := tab.Update(tea.MouseWheelMsg{X: 5, Y: 25, Button: tea.MouseWheelDown}); a.Kind != Ignored {
		t.Error("the wheel outside the table scrolled it")
	}
}

func TestDraggingTheScrollbarReachesBothEnds(t *testing.T) {
	tab := New(columns()...)
	tab.SetRows(million)
	c := canvas.New(80, 20, canvas.NoColor, false)
	tab.Draw(c, c.Bounds(), theme.Mono(), text)
	tab.Update(tea.MouseClickMsg{X: 79, Y: 19, Button: tea.MouseLeft})
	if tab.Top() != million-19 {
		t.Errorf("the lower end of the scrollbar shows row %d first", tab.Top())
	}
	tab.Update(tea.MouseMotionMsg{X: 70, Y: -5, Button: tea.MouseLeft})
	if tab.Top() != 0 {
		t.Errorf("the upper end of the scrollbar shows row %d first", tab.Top())
	}
	tab.Update(tea.MouseReleaseMsg{X: 70, Y: 3})
	tab.Update(tea.MouseMotionMsg{X: 70, Y: 15})
	if tab.Top() != 0 {
		t.Error("the scrollbar followed the mouse after its button was released")
	}
}

func TestSCyclesThroughTheVisibleSortableColumns(t *testing.T) {
	tab := New(columns()...)
	tab.SetRows(10)
	c := canvas.New(34, 5, canvas.NoColor, false) // block, size and site
	tab.Draw(c, c.Bounds(), theme.Mono(), text)
	var got []int
	for range 3 {
		got = append(got, tab.Update(press("s")).Column)
	}
	if fmt.Sprint(got) != "[1 4 1]" {
		t.Errorf("s sorted by columns %v", got)
	}
	if a := tab.Update(press("S")); a.Kind != Sorted || a.Column != 1 || tab.Descending {
		t.Errorf("S did %+v, descending %v", a, tab.Descending)
	}
}

func TestAnEmptyTableHasNoSelectionAndOpensNothing(t *testing.T) {
	tab := New(columns()...)
	tab.SetRows(5)
	tab.Select(4)
	tab.SetRows(0)
	for _, k := range []string{"down", "enter", "end", "pgup"} {
		if a := tab.Update(press(k)); a.Row != -1 || a.Kind == Opened || a.Kind == Moved {
			t.Errorf("%s on an empty table did %+v", k, a)
		}
	}
	tab.SetRows(3)
	if tab.Selected() != 0 {
		t.Errorf("row %d is selected after the table was filled again", tab.Selected())
	}
}

func BenchmarkDrawMillionRows(b *testing.B) {
	tab := New(columns()...)
	tab.SetRows(million)
	c := canvas.New(200, 56, canvas.TrueColor, false)
	th := theme.Dark()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Clear()
		tab.Select(i * 7919 % million)
		tab.Draw(c, c.Bounds(), th, text)
		if len(c.String()) == 0 {
			b.Fatal("nothing was drawn")
		}
	}
}

// The same rows as a table of Lip Gloss, printed into the cells: what the package's comment compares with.
func BenchmarkLipGlossTable(b *testing.B) {
	c := canvas.New(200, 56, canvas.TrueColor, false)
	th := theme.Dark()
	plain, bold := c.Gloss(th.Text), c.Gloss(th.OnSelected(th.Text))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Clear()
		first := i * 7919 % million
		rows := make([][]string, 55)
		for y := range rows {
			for col := range columns() {
				rows[y] = append(rows[y], canvas.Plain(text(first+y, col).Text))
			}
		}
		t := lgtable.New().Width(200).Border(lipgloss.HiddenBorder()).Rows(rows...).Wrap(false)
		t.StyleFunc(func(row, _ int) lipgloss.Style {
			if row == 3 {
				return bold
			}
			return plain
		})
		c.Print(0, 0, t.Render())
		if len(c.String()) == 0 {
			b.Fatal("nothing was drawn")
		}
	}
}
