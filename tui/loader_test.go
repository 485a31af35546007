package tui

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// still is a stopped clock without timers.
func still() *clock {
	at := time.Unix(1700000000, 0)
	return &clock{
		now:   func() time.Time { return at },
		after: func(time.Duration, func(time.Time) tea.Msg) tea.Cmd { return nil },
	}
}

// results runs a command and returns the results of loads.
func results(cmd tea.Cmd) []loadedMsg {
	var out []loadedMsg
	for _, msg := range messages(cmd) {
		if l, ok := msg.(loadedMsg); ok {
			out = append(out, l)
		}
	}
	return out
}

func TestANewLoadCancelsTheOldOne(t *testing.T) {
	heard := &said{}
	l := loader{clock: still(), post: heard.post}
	var first context.Context
	old := l.start(func(ctx context.Context, _ func(string, int64, int64)) (Loaded, error) {
		first = ctx
		return Loaded{}, nil
	}, "a", false)
	stale := results(old)
	next := results(l.start(func(context.Context, func(string, int64, int64)) (Loaded, error) {
		return Loaded{}, errors.New("b is damaged")
	}, "b", true))
	if first.Err() == nil {
		t.Error("the first load was not stopped")
	}
	if _, ok := l.take(stale[0], true); ok || l.idle() {
		t.Error("the first load's result ends the second")
	}
	if _, ok := l.take(next[0], true); ok || !l.idle() {
		t.Errorf("opening another file failed: shown %v, idle %v", ok, l.idle())
	}
	if got := heard.kinds(); !slices.Equal(got, []string{"leaf.ToastMsg"}) {
		t.Errorf("for the failure it says %v", got)
	}
	if l.take(next[0], true); heard.kinds() != nil {
		t.Error("a result was used twice")
	}
}

func TestALoadReportsItsProgress(t *testing.T) {
	c := canvas.New(80, 24, canvas.NoColor, false)
	l := loader{clock: still()}
	l.start(nil, "runs/a.gmt", false)
	l.current.report("reading", 1, 4)
	l.draw(theme.Mono(), c)
	if got := ansi.Strip(c.String()); !strings.Contains(got, "reading") || !strings.Contains(got, "25 %") {
		t.Errorf("got\n%s", got)
	}
}

func TestAFailureIsPrintedAsPlainTextLineByLine(t *testing.T) {
	c := canvas.New(80, 24, canvas.TrueColor, false)
	l := loader{clock: still(), failure: errors.New("read \x1b[2J\x1b[31mred.gmt: cut\nand damaged")}
	l.draw(theme.Dark(), c)
	rows := strings.Split(strings.Trim(ansi.Strip(c.String()), "\n"), "\n")
	want := []string{"Cannot show this", "", "read  [2J [31mred.gmt: cut", "and damaged", "",
		"Press q to leave."}
	for i := range rows {
		rows[i] = strings.TrimSpace(rows[i])
	}
	if !slices.Equal(rows, want) || strings.Contains(c.String(), "\x1b[31m") {
		t.Errorf("got %q", rows)
	}
}

func TestAToastIsReplacedOnlyByNewerOnes(t *testing.T) {
	toast := toaster{clock: still()}
	toast.say("first", false)
	first := toastEndMsg{toast.number}
	toast.say("second", true)
	if toast.end(first); toast.text != "second" {
		t.Errorf("when the first toast ends, %q is shown", toast.text)
	}
	if toast.end(toastEndMsg{toast.number}); toast.text != "" {
		t.Errorf("%q stays", toast.text)
	}
}

func TestAKeyDismissesOnlyTheNotice(t *testing.T) {
	toast := toaster{clock: still()}
	toast.sayNotice("an embedded sample")
	if toast.dropNotice(); toast.text != "" {
		t.Errorf("%q stays", toast.text)
	}
	toast.sayNotice("an embedded sample")
	toast.say("copied", false)
	if toast.dropNotice(); toast.text != "copied" {
		t.Errorf("after a key the notice is %q", toast.text)
	}
}

// Who knows the keys types 8 before the file has been read: it must not be lost.
func TestAViewAskedForWhileLoadingIsShown(t *testing.T) {
	d := start(t, Options{}, 80, 24)
	loading := d.m.loader.start(loaderOf(training(t, "runs/train.gmt", 0)), "runs/train.gmt", false)
	d.press("8")
	if d.m.tabs.front == leaf.OOM || d.m.loader.idle() {
		t.Fatal("a view is shown before there is anything to show")
	}
	d.run(loading)
	if d.m.tabs.front != leaf.OOM {
		t.Errorf("view %c is shown, not the one asked for", d.m.tabs.front)
	}
	d.run(d.m.loader.start(loaderOf(training(t, "runs/train.gmt", 0)), "runs/train.gmt", false))
	if d.m.tabs.front != leaf.Overview {
		t.Errorf("what was asked for of one file decides on the next: view %c", d.m.tabs.front)
	}
}
