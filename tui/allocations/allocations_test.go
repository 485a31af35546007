package allocations

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
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
	for name, c := range map[string]struct {
		o      viewtest.Training
		filter string
	}{
		"all":      {viewtest.Training{Iterations: 3, Layers: 6, Leak: true}, ""},
		"filtered": {viewtest.Training{Iterations: 3, Layers: 6}, "forward size>=1MiB"},
		"no-match": {viewtest.Training{Iterations: 1}, "nothing_like_it"},
		"no-clock": {viewtest.Training{Iterations: 2, NoClock: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sc, _ := open(t, c.o)
			if c.filter != "" {
				sc.Send(leaf.QueryMsg{Text: c.filter})
			}
			sc.Golden(name)
		})
	}
}

// A column that says the same in every row is left out: the stream where there is one, and requested sizes
// where none was rounded.
func TestColumnsWithoutContentAreLeftOut(t *testing.T) {
	sc, _ := open(t, viewtest.Training{Iterations: 2})
	head := func() string {
		_, rest, _ := strings.Cut(sc.Text(200, 56), "size▼")
		line, _, _ := strings.Cut(rest, "\n")
		return line
	}
	if text := head(); strings.Contains(text, "stream") || !strings.Contains(text, "requested") {
		t.Errorf("one stream and rounded blocks: %s", text)
	}
	d := sc.State.Device
	copy(d.Allocs.Size, d.Allocs.Rounded)
	d.Allocs.Stream[0]++
	sc.Send(leaf.QueryMsg{Text: "size>=1KiB"})
	if text := head(); !strings.Contains(text, "stream") || strings.Contains(text, "requested") {
		t.Errorf("two streams and no rounded block: %s", text)
	}
}

func TestRowsMatchTheSearch(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, Layers: 6})
	for _, filter := range []string{"", "forward", "size>=4MiB", "leaked", "cat:optimizer_state"} {
		sc.Send(leaf.QueryMsg{Text: filter})
		want, err := sites.Search(t.Context(), sc.State.Device, v.query(sc.State))
		if err != nil {
			t.Fatal(err)
		}
		if v.table.Rows() != len(want) || !slices.Equal(v.shown.ids, want) {
			t.Errorf("the filter %q shows %d rows of %d", filter, v.table.Rows(), len(want))
		}
	}
}

// What y copies is the block's name on screen, and / finds the block by it.
func TestACopiedNameFindsItsBlock(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, Layers: 6})
	a := v.current()
	name, what := v.Copy(sc.State)
	if name != sc.State.Device.UniqueName(a) || !strings.HasPrefix(name, "block 0x") ||
		what != "the block's name" {
		t.Errorf("y copies %q, %s", name, what)
	}
	q, err := sites.ParseQuery(name + " #1")
	if err != nil || q.Text != "" || q.Nth != 1 || q.Address != sc.State.Device.Allocs.Addr[a] {
		t.Errorf("%q is read as %+v, %v", name, q, err)
	}
}

func TestClickingAColumnSortsAndClickingAgainReverses(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 6})
	al := &sc.State.Device.Allocs
	sc.ClickOn(120, 36, "start")
	sorted := func(value func(timeline.AllocID) int64) (up, down bool) {
		up, down = true, true
		for i := 1; i < len(v.shown.ids); i++ {
			a, b := value(v.shown.ids[i-1]), value(v.shown.ids[i])
			up, down = up && a <= b, down && a >= b
		}
		return up, down
	}
	start := func(a timeline.AllocID) int64 { return int64(al.Start[a]) }
	if _, down := sorted(start); !down {
		t.Error("clicking start did not put the latest first")
	}
	sc.ClickOn(120, 36, "start")
	if up, _ := sorted(start); !up {
		t.Error("clicking start again did not put the earliest first")
	}
	sc.ClickOn(120, 36, "     size")
	if _, down := sorted(func(a timeline.AllocID) int64 { return al.Size[a] }); !down {
		t.Error("clicking size did not put the largest first")
	}
}

func TestAFiltersOrderStaysUntilAColumnIsChosen(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2})
	sc.Send(leaf.QueryMsg{Text: "sort:life"})
	if q := v.query(sc.State); q.Sort != sites.SortLifetime || q.Descending {
		t.Errorf("the filter asks for the shortest first, but the order is %v, descending %v",
			q.Sort, q.Descending)
	}
	sc.Text(120, 36)
	sc.ClickOn(120, 36, "start")
	if q := v.query(sc.State); q.Sort != sites.SortStart {
		t.Errorf("a click on start left the order at %v", q.Sort)
	}
}

func TestMovingTheCursorSearchesOnlyForLiveBlocks(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 6})
	move := func(to timeline.Moment) bool {
		sc.State.Cursor, sc.State.Query.LiveAt = to, to
		return v.Update(sc.State, leaf.ChangedMsg{}) != nil
	}
	if move(3) || move(40) {
		t.Error("the same allocations were searched for again")
	}
	sc.Send(leaf.QueryMsg{Text: "live"})
	if !move(3) || !move(40) {
		t.Error("the blocks that are live at the cursor were not searched for again")
	}
}

func TestMovingSelectsTheBlockEverywhere(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 6})
	sc.Press("down", "down", "down")
	if want := v.shown.ids[3]; sc.State.Selected != want {
		t.Errorf("block %d is selected, but the fourth row is block %d", sc.State.Selected, want)
	}
}

func TestASelectionMadeElsewhereMovesTheRow(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 6})
	for _, row := range []int{17, 3, len(v.shown.ids) - 1} {
		sc.State.Selected = v.shown.ids[row]
		sc.Send(leaf.ChangedMsg{})
		if v.table.Selected() != row {
			t.Errorf("row %d is selected, want %d", v.table.Selected(), row)
		}
	}
}

func TestEnterGoesToTheBlocksStartInTheTimeline(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 6})
	sc.Press("end", "enter")
	a := v.shown.ids[len(v.shown.ids)-1]
	if sc.State.Cursor != sc.State.Device.Allocs.Start[a] || sc.State.Selected != a {
		t.Errorf("the cursor is at %d, and block %d is selected", sc.State.Cursor, sc.State.Selected)
	}
	if shown, ok := sc.Sent[len(sc.Sent)-1].(leaf.ShowMsg); !ok || shown.View != leaf.Timeline {
		t.Errorf("enter sent %v", sc.Sent)
	}
}

func TestHistogramsCountEveryByte(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, Layers: 6, Leak: true})
	for _, h := range []*histogram{&v.shown.sizes, &v.shown.lives} {
		sum := int64(0)
		for b := range buckets {
			sum += h.sum(b)
		}
		if sum != v.shown.bytes {
			t.Errorf("a histogram holds %d of %d bytes", sum, v.shown.bytes)
		}
	}
	if got, _ := sites.Search(t.Context(), sc.State.Device,
		sites.Query{Leaked: true}); len(got) != v.shown.leaked {
		t.Errorf("the page reports %d blocks that are never freed, but there are %d",
			v.shown.leaked, len(got))
	}
}

func TestBucketsBeginWhereTheyAreLabelled(t *testing.T) {
	for b := range never {
		from := lifeOf(b)
		if got := lifeBucket(from); got != b {
			t.Errorf("%d ns is the start of bucket %d, but falls into bucket %d", from, b, got)
		}
		if got := lifeBucket(from - 1); b > 0 && got != b-1 {
			t.Errorf("%d ns falls into bucket %d, want %d", from-1, got, b-1)
		}
		if from > 1<<60 {
			break
		}
	}
}

func TestAClickOnABarFiltersItsSizes(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 6})
	p := v.plots.sizes
	b := v.shown.sizes.last
	sc.Click(p.at.X+(b-p.first)*p.wide, p.at.Y+p.at.H-1)
	if sc.State.QueryText == "" || len(v.shown.ids) == 0 {
		t.Fatalf("the filter is %q with %d rows", sc.State.QueryText, len(v.shown.ids))
	}
	for _, a := range v.shown.ids {
		if size := sc.State.Device.Allocs.Size[a]; sizeBucket(size) != b {
			t.Errorf("%q lets %d bytes through", sc.State.QueryText, size)
		}
	}
}

func TestSwitchingDevicesClearsTheView(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2})
	sc.State.Device = viewtest.Training{Iterations: 1}.Timeline(t).Main()
	if text := sc.Text(120, 36); !strings.Contains(text, "searching") {
		t.Errorf("another device shows\n%s", text)
	}
	if got := v.Status(sc.State); got != "" {
		t.Errorf("the status line still mentions %q", got)
	}
}

func BenchmarkDraw(b *testing.B) {
	s, v := viewtest.State(viewtest.Training{Iterations: 200, Layers: 40}.Timeline(b)), New().(*view)
	v.Update(s, v.Update(s, leaf.ChangedMsg{})())
	c := canvas.New(200, 56, canvas.TrueColor, false)
	b.ReportMetric(float64(len(v.shown.ids)), "rows")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Clear()
		v.table.Select(i * 7919 % len(v.shown.ids))
		v.Draw(s, c)
		if len(c.String()) == 0 {
			b.Fatal("nothing was drawn")
		}
	}
}

// In the sentence, the stack numbers and bytes of filters made by views become words.
func TestTheSentenceDescribesFiltersMadeByViews(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 4})
	d := sc.State.Device
	site := d.Allocs.Stack[0]
	for filter, want := range map[string]string{
		"live cat:activation sort:-size":  " match cat:activation, alive at the peak: ",
		"live size>=1048576 size<2097152": " match size>=1.00MiB size<2.00MiB, alive at the peak: ",
		"size1048576 seize4096":           " match size1048576 seize4096: ",
		"sort:-size":                      " allocations: ",
		fmt.Sprintf("live site:%d", site): " allocations alive at the peak, from " + sites.Name(d, site) +
			": ",
		fmt.Sprintf("site:%d model.py", site): " allocations match model.py, from " + sites.Name(d, site) +
			": ",
	} {
		sc.State.QueryText, sc.State.Query.LiveAt = filter, d.Totals.PeakAt
		if got := v.sentence(sc.State); !strings.Contains(got, want) {
			t.Errorf("%s: %q has no %q", filter, got, want)
		}
	}
}
