package oom

import (
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

func open(t *testing.T, o viewtest.Training) (*viewtest.Screen, *View) {
	t.Helper()
	v := New().(*View)
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
	for _, o := range []viewtest.Training{{Iterations: 3, OOM: true}, {Iterations: 3, OOM: true, Pools: true}, {Iterations: 2}} {
		sc, v := open(t, o)
		parts, whole := v.segments(sc.State, v.known(sc.State))
		sum := int64(0)
		for _, p := range parts {
			sum += p.bytes
		}
		if sum != whole || whole != sc.State.Device.Info.TotalBytes {
			t.Errorf("parts add up to %d, the bar is %d, the device has %d", sum, whole, sc.State.Device.Info.TotalBytes)
		}
	}
}

func TestYCopiesTheCommandOfTheSelectedLever(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, OOM: true})
	a := v.known(sc.State)
	if len(a.Levers) == 0 {
		t.Fatal("the out-of-memory has no lever")
	}
	for i, l := range a.Levers {
		if text, _ := v.Copy(sc.State); l.Command != "" && text != l.Command {
			t.Errorf("lever %d (%s) copies %q, its command is %q", i, l.Name, text, l.Command)
		}
		sc.Press("enter")
		if l.Command != "" && (len(sc.Sent) != 1 || sc.Sent[0].(leaf.CopyMsg).Text != l.Command) {
			t.Errorf("enter on lever %d sent %v", i, sc.Sent)
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

func TestTheCommandIsClickable(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, OOM: true})
	c := canvas.New(120, 36, canvas.TrueColor, false)
	v.Draw(sc.State, c)
	want := v.known(sc.State).Levers[0].Command
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
	if ok, why := New().Available(&leaf.State{Place: leaf.Place{Selected: timeline.NoAlloc}}); ok || why == "" {
		t.Error("a recording without a device is available")
	}
}

func BenchmarkDraw(b *testing.B) {
	tl := viewtest.Training{Iterations: 3, Layers: 40, OOM: true}.Timeline(b)
	s, v := viewtest.State(tl), New().(*View)
	cmd := v.Update(s, leaf.ChangedMsg{})
	v.Update(s, cmd())
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

func TestAFewLeversLeaveRoomForWhoHeldIt(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, NoSegments: true})
	a := v.known(sc.State)
	a.Levers, a.Causes = a.Levers[:2], nil
	v.levers.SetRows(2)
	for h := 16; h < 40; h++ {
		if text := sc.Text(80, h); !strings.Contains(text, "what would help") || !strings.Contains(text, "who held it") {
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
		for _, line := range leaf.Wrap(cause.Text, 98-causeText) {
			if !strings.Contains(text, line) {
				t.Errorf("%q of %s is cut:\n%s", line, cause.Kind, sc.Text(100, 30))
			}
		}
	}
}

func TestTheLastPartOfTheBarHasTheUnit(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, OOM: true})
	a := *v.known(sc.State)
	a.State.Cached, a.Free, sc.State.Device.Info.TotalBytes = 0, -1, 0
	c := canvas.New(120, 3, canvas.NoColor, false)
	v.drawBar(sc.State, c, &a)
	unit, _ := sc.State.Units.Column(a.State.Reserved)
	line := strings.TrimSpace(strings.Split(ansi.Strip(c.String()), "\n")[1])
	if !strings.HasSuffix(line, " "+unit) || strings.Contains(line, "cached") {
		t.Errorf("the parts are %q and not all in %s", line, unit)
	}
}

func TestWhatALeverMeansEndsWithAnEllipsisWhereItIsCut(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, OOM: true})
	a := *v.known(sc.State)
	a.Levers = slices.Clone(a.Levers[:1])
	a.Levers[0].Text = strings.Repeat("a long story ", 40)
	v.levers.SetRows(1)
	c := canvas.New(80, 12, canvas.NoColor, false)
	v.drawLevers(sc.State, c, c.Bounds(), &a)
	above, _, _ := strings.Cut(ansi.Strip(c.String()), "\n$ ")
	if a.Levers[0].Command == "" || !strings.HasSuffix(strings.TrimSpace(above), "…") {
		t.Errorf("a cut text does not say so:\n%s", above)
	}
}
