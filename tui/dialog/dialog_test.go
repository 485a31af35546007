package dialog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

var codes = map[string]rune{
	"enter": tea.KeyEnter, "esc": tea.KeyEscape, "backspace": tea.KeyBackspace, "home": tea.KeyHome,
	"end": tea.KeyEnd,
	"up":  tea.KeyUp, "down": tea.KeyDown, "pgdown": tea.KeyPgDown, "left": tea.KeyLeft, "pgup": tea.KeyPgUp,
}

// press presses keys, each a name or a rune, and returns all messages of the dialogs.
func press(s *Stack, keys ...string) []tea.Msg {
	var said []tea.Msg
	for _, k := range keys {
		in := tea.KeyPressMsg{Code: codes[k]}
		if in.Code == 0 {
			in = tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
		}
		if msg := s.Update(in); msg != nil {
			said = append(said, msg)
		}
	}
	return said
}

func typed(s *Stack, text string) []tea.Msg { return press(s, strings.Split(text, "")...) }

func draw(s *Stack, th *theme.Theme, p canvas.Profile, w, h int) *canvas.Canvas {
	c := canvas.New(w, h, p, false)
	s.Draw(th, c)
	return c
}

func screen(s *Stack) string {
	return ansi.Strip(draw(s, theme.Dark(), canvas.TrueColor, 100, 30).String())
}

func colours() *Stack {
	s := &Stack{}
	s.Open(NewList("Colours", "type to search", []Entry{
		{Group: "warm", Title: "red", Key: "r", Msg: "red"},
		{Group: "warm", Title: "orange", Detail: "as the fruit", Msg: "orange"},
		{Group: "cold", Title: "blue", Off: true, Msg: "blue"},
		{Group: "cold", Title: "steel blue", Msg: "steel"},
	}))
	return s
}

// A list is as wide as its longest row needs, if the terminal has the room.
func TestALongRowWidensAList(t *testing.T) {
	about := strings.Repeat("about it ", 6) + "end"
	s := &Stack{}
	s.Open(NewList("Long", "", []Entry{{Group: "group", Title: "title", Key: "k", Detail: about}}))
	for w, whole := range map[int]bool{80: false, 120: true, 200: true} {
		text := ansi.Strip(draw(s, theme.Dark(), canvas.TrueColor, w, 30).String())
		if strings.Contains(text, about) != whole {
			t.Errorf("at %d columns:\n%s", w, text)
		}
	}
}

func TestAListReturnsTheChosenRow(t *testing.T) {
	for name, c := range map[string]struct {
		keys []string
		want []tea.Msg
		left int // dialogs that are open
	}{
		"first":                    {[]string{"enter"}, []tea.Msg{"red"}, 0},
		"further down":             {[]string{"down", "enter"}, []tea.Msg{"orange"}, 0},
		"searched":                 {[]string{"b", "l", "u", "e", " ", "s", "enter"}, []tea.Msg{"steel"}, 0},
		"by its detail":            {[]string{"f", "r", "u", "i", "enter"}, []tea.Msg{"orange"}, 0},
		"off":                      {[]string{"down", "down", "enter"}, nil, 1},
		"nothing matches":          {[]string{"x", "y", "enter"}, nil, 1},
		"a search without a match": {[]string{"x", "backspace", "enter"}, []tea.Msg{"red"}, 0},
		"past the last row":        {[]string{"pgdown", "pgdown", "down", "enter"}, []tea.Msg{"steel"}, 0},
		"left":                     {[]string{"esc"}, nil, 0},
	} {
		s := colours()
		screen(s)
		if got := press(s, c.keys...); !slices.Equal(got, c.want) || s.Len() != c.left {
			t.Errorf("%s: said %v, %d open; want %v, %d", name, got, s.Len(), c.want, c.left)
		}
	}
}

func TestACarefulListTakesTheSecondClickOnARow(t *testing.T) {
	l := NewList("Files", "", []Entry{{Title: "a", Msg: "a"}, {Title: "b", Msg: "b"}})
	l.Careful = true
	for i, step := range []struct {
		in   tea.Msg
		want tea.Msg
	}{
		{RowMsg{0}, nil}, // selected from the start, but not by a click
		{RowMsg{1}, nil},
		{tea.KeyPressMsg{Code: tea.KeyUp}, nil},
		{tea.KeyPressMsg{Code: tea.KeyDown}, nil},
		{RowMsg{1}, nil},
		{RowMsg{1}, "b"},
	} {
		if done, got := l.Update(step.in); got != step.want || done != (step.want != nil) {
			t.Errorf("step %d: done %v with %v, wanted %v", i, done, got, step.want)
		}
	}
}

func TestARowIsChosenByAClick(t *testing.T) {
	s := colours()
	c := draw(s, theme.Dark(), canvas.TrueColor, 100, 30)
	for y, row := range strings.Split(ansi.Strip(c.String()), "\n") {
		i := strings.Index(row, "steel blue")
		if i < 0 {
			continue
		}
		hit, _ := c.Hit(canvas.Width(row[:i]), y)
		if got := s.Update(hit); got != "steel" || s.Len() != 0 {
			t.Errorf("a click says %v, %d open", got, s.Len())
		}
		return
	}
	t.Fatalf("no steel blue:\n%s", screen(s))
}

func TestOnlyTheTopDialogGetsKeys(t *testing.T) {
	s := colours()
	s.Open(Ask(leaf.AskMsg{Title: "budget", Answer: func(text string) (tea.Msg, error) { return text, nil }}))
	if got := typed(s, "ab"); got != nil || s.Len() != 2 {
		t.Errorf("said %v, %d open", got, s.Len())
	}
	if got := press(s, "enter"); !slices.Equal(got, []tea.Msg{"ab"}) || s.Len() != 1 {
		t.Errorf("said %v, %d open", got, s.Len())
	}
	if got := press(s, "enter"); !slices.Equal(got, []tea.Msg{"red"}) || s.Len() != 0 ||
		s.Update(CloseMsg{}) != nil {
		t.Errorf("said %v, %d open", got, s.Len())
	}
}

func TestTypingReplacesTheSuggestion(t *testing.T) {
	for name, c := range map[string]struct {
		keys []string
		want string
	}{
		"typed":           {[]string{"9"}, "9"},
		"typed on":        {[]string{"9", "0"}, "90"},
		"kept by moving":  {[]string{"end", "9"}, "8GiB9"},
		"edited in front": {[]string{"home", "1"}, "18GiB"},
		"taken back":      {[]string{"backspace"}, ""},
		"left":            {nil, "8GiB"},
	} {
		s := &Stack{}
		s.Open(Ask(leaf.AskMsg{Title: "budget", Text: "8GiB", Answer: func(text string) (tea.Msg, error) {
			return text, nil
		}}))
		if got := press(s, append(c.keys, "enter")...); !slices.Equal(got, []tea.Msg{c.want}) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestInvalidAnswerKeepsTheQuestionOpen(t *testing.T) {
	s := &Stack{}
	s.Open(Ask(leaf.AskMsg{Title: "budget", Hint: "such as 8GiB", Answer: func(text string) (tea.Msg, error) {
		if text == "" {
			return nil, errors.New("a budget is a size")
		}
		return text, nil
	}}))
	if got := screen(s); !strings.Contains(got, "such as 8GiB") {
		t.Errorf("the hint is not shown:\n%s", got)
	}
	if got := press(s, "enter"); got != nil || s.Len() != 1 {
		t.Errorf("said %v, %d open", got, s.Len())
	}
	if got := screen(s); !strings.Contains(got, "budget") || !strings.Contains(got, "a budget is a size") {
		t.Errorf("the mistake is not explained:\n%s", got)
	}
}

func TestAFilterIsExplainedAsYouType(t *testing.T) {
	open := func() *Stack {
		s := &Stack{}
		s.Open(NewFilter("a", func(text string) error {
			if strings.HasSuffix(text, ">") {
				return errors.New("> needs a size")
			}
			return nil
		}, func(text string, _ int) string { return "note on " + text }))
		return s
	}
	s := open()
	want := []tea.Msg{leaf.QueryMsg{Text: "ab"}, leaf.QueryMsg{Text: "ab>1"}}
	if got := typed(s, "b>1"); !slices.Equal(got, want) {
		t.Errorf("said %v, want %v", got, want)
	}
	if got := screen(s); !strings.Contains(got, "search / ab>1  note on ab>1") {
		t.Errorf("the note is not next to the text:\n%s", got)
	}
	if got := press(s, "backspace", "enter"); got != nil || s.Len() != 1 ||
		!strings.Contains(screen(s), "> needs a size") {
		t.Errorf("a filter that does not parse is kept: %v, %d open\n%s", got, s.Len(), screen(s))
	}
	if got := press(s, "esc"); !slices.Equal(got, []tea.Msg{leaf.QueryMsg{Text: "a"}}) || s.Len() != 0 {
		t.Errorf("esc says %v", got)
	}
	s = open()
	if got := press(s, "b", "enter"); len(got) != 1 || s.Len() != 0 {
		t.Errorf("enter says %v, %d open", got, s.Len())
	}
}

func TestLongTextScrollsWithTheCursor(t *testing.T) {
	s := &Stack{}
	s.Open(Ask(leaf.AskMsg{Title: "write to", Answer: func(string) (tea.Msg, error) { return nil, nil }}))
	typed(s, strings.Repeat("0123456789", 12)+"end")
	if got := screen(s); !strings.Contains(got, "789end") {
		t.Errorf("the end is not visible:\n%s", got)
	}
	press(s, "home")
	if got := screen(s); !strings.Contains(got, "write to 0123") {
		t.Errorf("the beginning is not visible:\n%s", got)
	}
}

// Dialogs show names of files, processes and blocks: none may set a style or move the cursor.
func TestAHostileNameIsText(t *testing.T) {
	evil := "x\x1b[31mred\x1b]0;t\x07\x1b[2J\r\n\u009b1m"
	for _, th := range []*theme.Theme{theme.Dark(), theme.Mono()} {
		s := &Stack{}
		s.Open(NewList(evil, "type", []Entry{{Group: evil, Title: evil, Key: evil, Detail: evil}}))
		list := draw(s, th, canvas.NoColor, 100, 30).String()
		s = &Stack{}
		s.Open(Ask(leaf.AskMsg{Title: evil, Text: evil, Hint: evil, Answer: func(string) (tea.Msg, error) {
			return nil, nil
		}}))
		for _, got := range []string{list, draw(s, th, canvas.NoColor, 100, 30).String()} {
			if strings.Contains(got, "\x1b[31m") || strings.ContainsAny(strings.ReplaceAll(ansi.Strip(got),
				"\n", ""), "\x07\x1b\r\u009b") {
				t.Errorf("%q", got)
			}
		}
	}
}

func TestWithoutColoursAListHasAnEdge(t *testing.T) {
	c := draw(colours(), theme.Mono(), canvas.NoColor, 100, 30)
	if got := c.String(); strings.Contains(got, "38;") || strings.Contains(got, "48;") ||
		strings.Contains(got, ";3") {
		t.Errorf("colours in %q", got)
	}
	if got := ansi.Strip(c.String()); !strings.Contains(got, "┌─Colours") || !strings.Contains(got, "└──") {
		t.Errorf("no edge:\n%s", got)
	}
}

func TestSixteenColoursAreTheThemesOwn(t *testing.T) {
	c := draw(colours(), theme.Dark(), canvas.ANSI16, 100, 30)
	if got := c.String(); strings.Contains(got, "38;") || strings.Contains(got, "48;") ||
		!strings.Contains(got, ";94;40m") {
		t.Errorf("the accent is not bright blue on black: %q", got)
	}
}

// After the wheel, enter takes the row that is highlighted, which is always on the screen.
func TestTheWheelMovesTheChoice(t *testing.T) {
	entries := make([]Entry, 60)
	for i := range entries {
		entries[i] = Entry{Title: fmt.Sprintf("entry %d", i), Msg: i}
	}
	l := NewList("Entries", "type to search", entries)
	s := &Stack{}
	s.Open(l)
	screen(s)
	for range 70 {
		l.Update(tea.MouseWheelMsg{Button: tea.MouseWheelDown})
	}
	if last := screen(s); !strings.Contains(last, "entry 59") || strings.Contains(last, "entry 1 ") {
		t.Errorf("the wheel does not reach the last entry:\n%s", last)
	}
	for range 2 {
		l.Update(tea.MouseWheelMsg{Button: tea.MouseWheelUp})
	}
	if _, msg := l.Update(tea.KeyPressMsg{Code: tea.KeyEnter}); msg != 57 {
		t.Errorf("two rows up from the last, enter chooses %v", msg)
	}
}

// A page takes as many rows as the terminal has room for; the keys of a page end at the first and last row.
func TestPagesEndAtTheFirstAndLastRow(t *testing.T) {
	entries := make([]Entry, 60)
	for i := range entries {
		entries[i] = Entry{Group: "all", Title: fmt.Sprintf("entry %d", i), Msg: i}
	}
	for name, c := range map[string]struct {
		keys []string
		want tea.Msg
	}{
		"one page":        {[]string{"pgdown", "enter"}, 23},
		"all pages":       {[]string{"pgdown", "pgdown", "pgdown", "pgdown", "enter"}, 59},
		"there and back":  {[]string{"pgdown", "down", "pgup", "pgup", "enter"}, 0},
		"over the border": {[]string{"pgdown", "up", "enter"}, 22},
		"end":             {[]string{"end", "enter"}, 59},
	} {
		s := &Stack{}
		s.Open(NewList("Entries", "type to search", entries))
		screen(s)
		if got := press(s, c.keys...); !slices.Equal(got, []tea.Msg{c.want}) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
