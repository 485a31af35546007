package oom

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

func open(t *testing.T, o viewtest.Training) (*viewtest.Screen, *view) {
	t.Helper()
	v := New().(*view)
	sc := viewtest.Open(t, v, o.Timeline(t))
	sc.Text(120, 36)
	return sc, v
}

func TestGoldens(t *testing.T) {
	for name, o := range map[string]viewtest.Training{
		"out-of-memory":    {Iterations: 3, Layers: 8, OOM: true},
		"pending-frees":    {Iterations: 3, Layers: 8, OOM: true, Pools: true},
		"no-out-of-memory": {Iterations: 3, Layers: 8},
		"no-segments":      {Iterations: 2, NoSegments: true},
	} {
		t.Run(name, func(t *testing.T) {
			sc, _ := open(t, o)
			sc.Golden(name)
		})
	}
}

func TestThePartsOfTheBarAreTheDevice(t *testing.T) {
	for _, o := range []viewtest.Training{{Iterations: 3, OOM: true}, {Iterations: 3, OOM: true, Pools: true},
		{Iterations: 2}} {
		sc, v := open(t, o)
		parts, whole := segments(sc.State, v.known(sc.State))
		sum := int64(0)
		for _, p := range parts {
			sum += p.bytes
		}
		if sum != whole || whole != sc.State.Device.Info.TotalBytes {
			t.Errorf("parts add up to %d, the bar is %d, the device has %d", sum, whole,
				sc.State.Device.Info.TotalBytes)
		}
	}
}

func TestYCopiesTheCommandOfTheSelectedLeverAndEnterShowsWhatHoldsIt(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, OOM: true})
	if len(v.levers.all) == 0 {
		t.Fatal("the out-of-memory has no lever")
	}
	for i, l := range v.levers.all {
		if text, _ := v.Copy(sc.State); l.command != "" && text != l.command {
			t.Errorf("lever %d (%s) copies %q, its command is %q", i, l.name, text, l.command)
		}
		sc.Press("enter")
		want := []any{leaf.CursorMsg{To: v.known(sc.State).At}, leaf.ShowMsg{View: leaf.Peak}}
		if len(sc.Sent) != 2 || sc.Sent[0] != want[0] || sc.Sent[1] != want[1] {
			t.Errorf("enter on lever %d sent %v, want %v", i, sc.Sent, want)
		}
		sc.Press("down")
	}
}

func TestEnterOnAHolderShowsItAtTheMoment(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, OOM: true})
	sc.Press("tab", "down", "enter")
	a := v.known(sc.State)
	if sc.State.Cursor != a.At {
		t.Errorf("the cursor is at event %d, the failure at %d", sc.State.Cursor, a.At)
	}
	if sc.State.Selected != a.Holders[1].Largest {
		t.Errorf("block %d is selected, the holder's largest is %d", sc.State.Selected, a.Holders[1].Largest)
	}
	if shown, ok := sc.Sent[len(sc.Sent)-1].(leaf.ShowMsg); !ok || shown.View != leaf.Peak {
		t.Errorf("enter sent %v", sc.Sent)
	}
}

func TestWShowsTheCausesInFullWhereTheyAreCut(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, Layers: 8, OOM: true, Pools: true})
	a := v.known(sc.State)
	shows := func(w, h int) bool {
		text := strings.Join(strings.Fields(sc.Text(w, h)), " ")
		return !slices.ContainsFunc(a.Causes, func(c autopsy.Cause) bool {
			fields := strings.Fields(c.Text)
			return !strings.Contains(text, fields[len(fields)-1])
		})
	}
	offers := func() bool {
		return slices.ContainsFunc(v.Bindings(sc.State), func(b key.Binding) bool {
			return b.Help().Key == "W"
		})
	}
	if shows(80, 20) {
		t.Fatal("at 80 by 20 nothing is cut")
	}
	if !offers() {
		t.Error("no key is offered where causes are cut")
	}
	sc.Press("W")
	if !shows(80, 20) {
		t.Errorf("W does not show the causes in full:\n%s", sc.Text(80, 20))
	}
	if b := v.Bindings(sc.State); b[2].Help().Key != "W" {
		t.Errorf("the way back comes after %q, where 80 columns have no room for it", b[2].Help().Key)
	}
	sc.Press("W")
	if shows(80, 20) {
		t.Error("W again does not show them in short")
	}
	if sc.Text(200, 56); offers() {
		t.Error("the key is offered where nothing is cut")
	}
}

func TestTheBarMakesRoomForTheCauses(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, Layers: 8})
	a := v.known(sc.State)
	long := strings.Repeat("evidence that fills its line ", 5)
	a.Causes = []autopsy.Cause{{Kind: "capacity", Main: true, Text: long + "first"},
		{Kind: "outside_pytorch", Text: long[:80] + " second"}}
	a.Holders = a.Holders[:1]
	v.holders.SetRows(1)
	v.levers.set(v.levers.all[:3])
	text := sc.Text(80, 20)
	if !strings.Contains(text, "first") || !strings.Contains(text, "second") {
		t.Errorf("a cause is cut:\n%s", text)
	}
	if strings.Contains(text, "reserved") && strings.Contains(text, "tensors") {
		t.Errorf("the bar is drawn:\n%s", text)
	}
	if text = sc.Text(80, 30); !strings.Contains(text, "tensors") {
		t.Errorf("the bar has room and is not drawn:\n%s", text)
	}
}

func TestTheCommandIsClickable(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, OOM: true})
	c := canvas.New(120, 36, canvas.TrueColor, false)
	v.Draw(sc.State, c)
	want := v.levers.all[0].command
	for y := range 36 {
		for x := range 120 {
			if msg, ok := c.Hit(x, y); ok && msg.(leaf.CopyMsg).Text == want {
				return
			}
		}
	}
	t.Errorf("nothing on the screen copies %q", want)
}

func TestAnAutopsyOfAnotherDeviceIsNotShown(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, OOM: true})
	other := viewtest.Training{Iterations: 1}.Timeline(t)
	sc.State.Device = other.Main()
	if text := sc.Text(120, 36); !strings.Contains(text, "looking for") {
		t.Errorf("another device shows\n%s", text)
	}
	sc.Send(leaf.ChangedMsg{})
	if v.known(sc.State) == nil || v.known(sc.State).OOM {
		t.Error("the autopsy is not that of the device in view")
	}
}

func TestNoDeviceIsNotAvailable(t *testing.T) {
	if ok, why := New().Available(&leaf.State{Place: leaf.Place{Selected: timeline.NoAlloc}}); ok ||
		why == "" {
		t.Error("a recording without a device is available")
	}
}

func BenchmarkDraw(b *testing.B) {
	tl := viewtest.Training{Iterations: 3, Layers: 40, OOM: true}.Timeline(b)
	s, v := viewtest.State(tl), New().(*view)
	cmd := v.Update(s, leaf.ChangedMsg{})
	trial := v.Update(s, cmd())
	v.Update(s, result(trial))
	c := canvas.New(200, 56, canvas.TrueColor, false)
	b.ReportAllocs()
	for b.Loop() {
		c.Clear()
		v.Draw(s, c)
		if len(c.String()) == 0 {
			b.Fatal("nothing was drawn")
		}
	}
}

func TestAFewLeversLeaveRoomForTheHolders(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, NoSegments: true})
	a := v.known(sc.State)
	v.levers.all, v.levers.laidOut, a.Causes = v.levers.all[:2], nil, nil
	v.levers.SetRows(2)
	for h := 16; h < 40; h++ {
		if text := sc.Text(80, h); !strings.Contains(text, "what would help") ||
			!strings.Contains(text, "who held it") {
			t.Errorf("80x%d:\n%s", h, text)
		}
	}
}

// Where both tables keep their room, why it ran out is said whole, also in a terminal that is not high.
func TestCausesAreWholeWhereThereIsRoom(t *testing.T) {
	sc := viewtest.Open(t, New(), viewtest.Training{Iterations: 2, Layers: 6, OOM: true}.Timeline(t))
	a, err := autopsy.Of(t.Context(), sc.State.Device, sc.State.Units)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(sc.Text(100, 30)), " ")
	for _, cause := range a.Causes {
		for _, line := range leaf.Wrap(cause.Said(sc.State.Units), 98-causeName) {
			if !strings.Contains(text, line) {
				t.Errorf("%q of %s is cut:\n%s", line, cause.Kind, sc.Text(100, 30))
			}
		}
	}
}

func TestTheLastPartOfTheBarHasTheUnit(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, OOM: true})
	a := *v.known(sc.State)
	a.State.Cached, a.Free, sc.State.Device.Info.TotalBytes = 0, maybe.Int{}, 0
	c := canvas.New(120, 3, canvas.NoColor, false)
	drawBar(sc.State, c, &a)
	unit, _ := sc.State.Units.Column(a.State.Reserved)
	line := strings.TrimSpace(strings.Split(ansi.Strip(c.String()), "\n")[1])
	if !strings.HasSuffix(line, " "+unit) || strings.Contains(line, "cached") {
		t.Errorf("the parts are %q and not all in %s", line, unit)
	}
}

func TestWhatALeverMeansEndsWithAnEllipsisWhereItIsCut(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, OOM: true})
	v.levers.all = v.levers.all[:1]
	v.levers.all[0].text, v.levers.laidOut = strings.Repeat("a long story ", 90), nil
	v.levers.SetRows(1)
	c := canvas.New(80, 12, canvas.NoColor, false)
	v.levers.draw(sc.State, c, c.Bounds(), canvas.Rect{})
	above, _, _ := strings.Cut(ansi.Strip(c.String()), "\n$ ")
	if v.levers.all[0].command == "" || !strings.HasSuffix(strings.TrimSpace(above), "…") {
		t.Errorf("a cut text does not say so:\n%s", above)
	}
}

// result runs the first command of a batch, or a command that is none.
func result(cmd tea.Cmd) tea.Msg {
	msg := cmd()
	if cmds, ok := viewtest.Commands(msg); ok {
		return cmds[0]()
	}
	return msg
}

// While levers are tried the sentence says how many, and forgets it when the answer is there.
func TestTheSentenceSaysHowManyLeversWereTried(t *testing.T) {
	sc := viewtest.Open(t, New(), viewtest.Training{Iterations: 3, Layers: 8, OOM: true}.Timeline(t))
	s, v := viewtest.State(sc.State.Timeline), New().(*view)
	trial := v.Update(s, v.Update(s, leaf.ChangedMsg{})())
	cmds, ok := viewtest.Commands(trial())
	if !ok || len(cmds) != 2 {
		t.Fatalf("the trial is %d commands", len(cmds))
	}
	before := v.sentence(s, v.known(s))
	done := cmds[0]()
	m, ok := cmds[1]().(trialMsg)
	if !ok || m.of == 0 {
		t.Fatalf("no message about the trial: %v", m)
	}
	next := v.Update(s, m)
	want := fmt.Sprintf("%s Trying %d of %d…", before, m.n, m.of)
	if text := v.sentence(s, v.known(s)); text != want {
		t.Errorf("it says %q, want %q", text, want)
	}
	if next == nil || next() != nil {
		t.Error("after the last lever it does not stop listening")
	}
	if v.Update(s, trialMsg{n: 1, of: 9, said: make(chan trialMsg)}); v.at != m {
		t.Error("a trial that was given up is shown")
	}
	v.Update(s, done)
	if text := v.sentence(s, v.known(s)); strings.Contains(text, "Trying") {
		t.Errorf("with the answer it still says %q", text)
	}
}

// What trying levers shows is the report's: the view says it of each, and of none before.
func TestLeversAreTriedWhileTheViewIsInFront(t *testing.T) {
	sc := viewtest.Open(t, New(), viewtest.Training{Iterations: 3, Layers: 8, OOM: true}.Timeline(t))
	s, v := viewtest.State(sc.State.Timeline), New().(*view)
	trial := v.Update(s, v.Update(s, leaf.ChangedMsg{})())
	if len(v.levers.all) == 0 || trial == nil {
		t.Fatalf("%d levers, tried: %v", len(v.levers.all), trial != nil)
	}
	for _, l := range v.levers.all {
		if l.verdict != trying {
			t.Errorf("%s is said to have come to %d before it was tried", l.name, l.verdict)
		}
	}
	if text := v.sentence(s, v.known(s)); strings.Contains(text, "Most would be saved") {
		t.Errorf("before any is tried it says %q", text)
	}
	v.Update(s, leaf.LeftMsg{})
	if v.Update(s, result(trial)); v.tried(s) != nil || v.trial.Pending() {
		t.Error("what was given up is shown")
	}
	again := v.Update(s, leaf.ChangedMsg{})
	if again == nil {
		t.Fatal("back in front, nothing is tried")
	}
	v.Update(s, result(again))
	row := v.tried(s)
	if row == nil || len(row.Levers) != len(v.levers.all) {
		t.Fatalf("tried: %v", row)
	}
	want := map[string]verdict{
		report.Finishes: finishes, report.ServesRequest: serves, report.Postpones: postpones,
		report.DoesNotHelp: useless, report.NotTried: notTried,
	}
	for _, x := range row.Levers {
		i := slices.IndexFunc(v.levers.all, func(l lever) bool { return l.name == x.Name })
		outcome := want[x.Tried.Outcome]
		if partner(row.Together, x.Name) != "" {
			outcome = together
		}
		if i < 0 || v.levers.all[i].verdict != outcome || v.levers.all[i].came == "" {
			t.Errorf("%s: %s is shown as %+v", x.Name, x.Tried.Outcome, v.levers.all)
		}
	}
}

func TestNothingIsTriedInTheBackground(t *testing.T) {
	tl := viewtest.Training{Iterations: 3, OOM: true}.Timeline(t)
	s, v := viewtest.State(tl), New().(*view)
	found := v.Update(s, leaf.ChangedMsg{})
	v.Update(s, leaf.LeftMsg{})
	if v.Update(s, found()) != nil {
		t.Error("the view was left before the autopsy came, and its levers are tried")
	}
}

func TestEachLeverIsWholeWhereThereIsRoom(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, Layers: 8, OOM: true})
	text := strings.Join(strings.Fields(sc.Text(99, 60)+sc.Text(200, 56)), " ")
	for _, l := range v.levers.all {
		for _, whole := range []string{l.text, l.came, l.command} {
			for _, line := range leaf.Wrap(whole, 95) {
				if !strings.Contains(text, strings.Join(strings.Fields(line), " ")) {
					t.Errorf("%q of %s is cut:\n%s", line, l.name, sc.Text(200, 56))
				}
			}
		}
	}
}

func TestWhatTryingALeverShowedIsPrinted(t *testing.T) {
	held, most := int64(3<<30), int64(4<<30)
	for outcome, want := range map[string]string{
		report.Finishes: "Tried: this step finishes, and so do the next ones; " +
			"3.00 GiB of 4.00 GiB reserved at most.",
		report.ServesRequest: "Tried: the allocation succeeds, 3.00 GiB of 4.00 GiB reserved; the rest of " +
			"the step is not recorded.",
		report.Postpones:   "Tried: this step finishes; it runs out again after about 12 steps.",
		report.DoesNotHelp: "Tried: this step still runs out.",
		report.NotTried:    "Not tried: it is too long.",
	} {
		tried := &report.Tried{
			Outcome: outcome, Steps: 12, PeakReserved: &held, Capacity: &most, Reason: "it is too long",
		}
		if _, got := cameOf(tried, timeline.IEC); got != want {
			t.Errorf("%s: %q, want %q", outcome, got, want)
		}
	}
}

// Levers that do not all have room stand in the next column, and the selected one is always there in full.
func TestTheSelectedLeverIsInFullWhateverHasRoom(t *testing.T) {
	pages := make([]page, 6)
	for i := range pages {
		pages[i].text = make([]string, i+2)
	}
	for _, heights := range [][]int{{8, 0}, {12, 9}, {40, 0}, {60, 0}, {9, 40}} {
		for selected := range pages {
			shown := inFull(pages, selected, heights)
			seen := false
			for k, list := range shown {
				rows := 0
				for _, i := range list {
					rows += pages[i].height() + 1
					seen = seen || i == selected
				}
				if rows-1 > heights[k] {
					t.Errorf("%v, lever %d: column %d has %d rows of pages %v", heights, selected, k, rows-1,
						list)
				}
			}
			if !seen {
				t.Errorf("%v: lever %d is not among %v", heights, selected, shown)
			}
		}
	}
}

// The levers that the answer names are marked in the list, by the words that the answer uses.
func TestTheLeversThatTheAnswerNamesAreMarked(t *testing.T) {
	sc := viewtest.Open(t, New(), viewtest.Training{Iterations: 3, Layers: 8}.Timeline(t))
	text := sc.Text(80, 24)
	a, err := autopsy.Of(t.Context(), sc.State.Device, sc.State.Units)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Named) == 0 {
		t.Fatalf("%q names no lever", a.Sentence)
	}
	for _, name := range a.Named {
		if !strings.Contains(text, "● "+autopsy.LeverWords(name, 0)) {
			t.Errorf("%s is not marked:\n%s", name, text)
		}
	}
	if n := strings.Count(text, "● ") - strings.Count(text, "● named above"); n != len(a.Named) ||
		!strings.Contains(text, "● named above") {
		t.Errorf("%d levers are marked, the answer names %d:\n%s", n, len(a.Named), text)
	}
}
