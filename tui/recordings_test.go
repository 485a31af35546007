package tui

import (
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

func TestARecordingOpensInPlaceOrNextToAnother(t *testing.T) {
	a, b := training(t, "runs/a.gmt", 0), training(t, "runs/b.gmt", 0)
	r := recordings{&leaf.Open{}}
	if r.take(Loaded{}, false); !r.nothing() || r.Device != nil {
		t.Errorf("nothing was loaded; in view is %v", r.Device)
	}
	r.take(Loaded{Timelines: []*timeline.Timeline{a}}, false)
	r.take(Loaded{Timelines: []*timeline.Timeline{b}}, true)
	if len(r.Timelines) != 2 || r.Timeline != b || r.Device != b.Main() || r.at("runs/a.gmt") != a {
		t.Errorf("next to the first file, %d are open and %v is in view", len(r.Timelines), r.Timeline)
	}
	r.take(Loaded{Timelines: []*timeline.Timeline{a}}, false)
	if len(r.Timelines) != 1 || r.Device != a.Main() || r.at("runs/b.gmt") != nil {
		t.Errorf("after replacing both, %d are open", len(r.Timelines))
	}
}

func TestAnalysisBelongsToItsDevice(t *testing.T) {
	a, b := training(t, "runs/a.gmt", 0), training(t, "runs/b.gmt", 0)
	r := recordings{&leaf.Open{}}
	r.show(a)
	late := r.analyse(timeline.IEC)().(analysedMsg)
	r.show(b)
	if r.analysed(late) || r.Analysed || r.Headline != "" {
		t.Errorf("the answer for a was used for b: %q", r.Headline)
	}
	if !r.analysed(r.analyse(timeline.IEC)().(analysedMsg)) || !r.Analysed || r.Headline == "" {
		t.Error("the answer for b was not used")
	}
	if r.show(a); r.Analysed || r.Headline != "" {
		t.Errorf("a is said to be %q", r.Headline)
	}
}

func TestTheWorstLossIsTheWarning(t *testing.T) {
	tl := *training(t, "runs/a.gmt", 0)
	with := *tl.Trace
	with.Losses = []traces.Loss{
		{Name: "short_stacks", Severity: traces.Info, Count: 9},
		{Name: "torn_tail", Severity: traces.DataLoss, Count: 3, Detail: "cut"},
		{Name: "bad_rows", Severity: traces.Fault, Count: 1234},
	}
	tl.Trace = &with
	r := recordings{&leaf.Open{}}
	if got := r.warning(); got != "" {
		t.Errorf("nothing is open, and it warns %q", got)
	}
	r.Timeline = &tl
	if got := r.warning(); got != "1,234 bad rows (and 1 more)" {
		t.Errorf("warns %q", got)
	}
	with.Losses[2].Count = 1
	if got := r.warning(); got != "bad rows (and 1 more)" {
		t.Errorf("warns of one %q", got)
	}
	with.Losses = with.Losses[:1]
	if got := r.warning(); got != "" {
		t.Errorf("mere information is shown as the warning %q", got)
	}
}

func TestAChosenThemeStays(t *testing.T) {
	heard := &said{}
	d := display{Display: &leaf.Display{}, post: heard.post}
	d.open("", timeline.IEC, true)
	if d.onBackground(false); d.Theme.Name != "light" {
		t.Errorf("a light terminal gets the theme %s", d.Theme.Name)
	}
	d.choose("dark")
	if d.onBackground(false); d.Theme.Name != "dark" {
		t.Errorf("the terminal's background overrides the user's choice: %s", d.Theme.Name)
	}
	before := d.Theme
	if d.choose("no such theme"); d.Theme != before {
		t.Errorf("an unknown name chooses %s", d.Theme.Name)
	}
	if got := heard.kinds(); len(got) != 1 {
		t.Errorf("said %v", got)
	}
	for range timeline.Raw + 1 {
		d.nextUnits()
	}
	if d.Units != timeline.IEC {
		t.Errorf("after the last unit comes %d", d.Units)
	}
}

func TestSharingSaysWhatItDid(t *testing.T) {
	heard := &said{}
	x := sharing{post: heard.post, editor: "true"}
	s := &leaf.State{}
	for _, c := range []struct {
		in     any
		posts  string
		copied string
	}{
		{leaf.CopyMsg{Text: "a", What: "b"}, "leaf.ToastMsg", "a"},
		{leaf.FollowMsg{File: "/no/such/file.py", Line: 7}, "leaf.ToastMsg", "/no/such/file.py:7"},
		{leaf.SaveMsg{What: "a plan", Suffix: ".json"}, "tui.openMsg", ""},
		{existsMsg{exportJob{path: "a.txt"}}, "tui.openMsg", ""},
		{exportedMsg{path: "a.txt", bytes: 7}, "leaf.ToastMsg", ""},
		{exportedMsg{path: "a.txt", err: errDamaged}, "leaf.ToastMsg", ""},
		{followedMsg{errDamaged}, "leaf.ToastMsg", ""},
		{followedMsg{}, "", ""},
	} {
		x.copied = ""
		_, ok := x.update(s, c.in)
		if got := strings.Join(heard.kinds(), " "); !ok || got != c.posts || x.copied != c.copied {
			t.Errorf("%T: taken %v, said %q, copied %q", c.in, ok, got, x.copied)
		}
	}
	if _, ok := x.update(s, leaf.ChangedMsg{}); ok {
		t.Error("it handles a message that is not its own")
	}
}

func TestHintsFitAndNameEachKeyOnce(t *testing.T) {
	list := hintList{room: 20}
	a, b := bind("a", "add", "a"), bind("b", "begin", "b")
	list.add(a, nil)
	list.add(bind("a", "again", "a"), nil)
	list.add(b, runMsg{"begin"})
	list.add(bind("c", "close", "c"), nil)
	var msgs []any
	for _, h := range list.hints {
		msgs = append(msgs, h.msg)
	}
	if !slices.Equal(msgs, []any{leaf.KeyMsg{Key: "a"}, runMsg{"begin"}}) {
		t.Errorf("hints do %v", msgs)
	}
}
