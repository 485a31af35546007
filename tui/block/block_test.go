package block_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/block"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

func TestABlocksFactsMatchItsColumns(t *testing.T) {
	s := viewtest.State(viewtest.Training{Iterations: 2, Layers: 6, Pools: true, Leak: true}.Timeline(t))
	al := &s.Device.Allocs
	pending, never := 0, 0
	for i := range al.Len() {
		a := timeline.AllocID(i)
		for _, f := range block.Facts(s, a) {
			switch f.Label {
			case "category":
				if !strings.HasPrefix(f.Text, al.Category[a].String()) {
					t.Errorf("block %d of category %s is shown as %s", i, al.Category[a], f.Text)
				}
			case "pending":
				pending++
			case "alive":
				if said := strings.Contains(f.Text, "never freed"); said != (al.Requested[a] == timeline.Never) {
					t.Errorf("block %d, freed at %d, is shown as alive %s", i, al.Requested[a], f.Text)
				}
				if al.Requested[a] == timeline.Never {
					never++
				}
			}
		}
	}
	if pending == 0 || never == 0 {
		t.Errorf("%d blocks wait for their free and %d are never freed: this tests nothing", pending, never)
	}
}

func TestStacksShowPythonAndCountTheRest(t *testing.T) {
	b := traces.NewBuilder()
	frame := func(fn, file string, line int32) traces.FrameID {
		return b.Frame(traces.Frame{File: b.String(file), Func: b.String(fn), Line: line})
	}
	stack := b.Stack([]traces.FrameID{
		frame("torch::unwind::unwind()", "??", 0), frame("at::empty", "RegisterCUDA.cpp", 0),
		frame("linear", "/lib/site-packages/torch/nn/functional.py", 9), frame("forward", "/home/user/model.py", 41),
	})
	b.Event(traces.Event{Addr: 4096, Size: 512, Stack: stack, Device: b.Device(traces.DeviceGPU, 0), Action: traces.Alloc})
	tl, err := timeline.Build(t.Context(), b.Finish(), func(int64, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	s := viewtest.State(tl)
	for _, c := range []struct {
		h    int
		want []string
	}{
		{6, []string{"linear functional.py:9", "forward model.py:41", "2 frames of native code and wrappers left out"}},
		{2, []string{"linear functional.py:9", "forward model.py:41"}},
		{1, []string{"forward model.py:41"}},
	} {
		cv := canvas.New(60, c.h, canvas.NoColor, false)
		block.Stack(s, cv, stack)
		got := strings.Split(strings.TrimRight(ansi.Strip(cv.String()), "\n"), "\n")
		if strings.Join(got, "|") != strings.Join(c.want, "|") {
			t.Errorf("in %d rows the stack is %q, want %q", c.h, got, c.want)
		}
	}
}

func TestNoBlockSaysHowToSelectOne(t *testing.T) {
	s := viewtest.State(viewtest.Training{Iterations: 1}.Timeline(t))
	c := canvas.New(60, 3, canvas.NoColor, false)
	block.Draw(s, c, timeline.NoAlloc)
	if text := ansi.Strip(c.String()); !strings.Contains(text, "select a block") {
		t.Errorf("without a block, the text is %q", text)
	}
}

func TestTheUsersOwnFrameIsShownHoweverDeepTheLibraryIs(t *testing.T) {
	b := traces.NewBuilder()
	var ids []traces.FrameID
	for _, place := range []string{"torch/optim/a.py", "torch/optim/b.py", "torch/optim/c.py", "torch/optim/d.py", "/home/user/train.py", "/home/user/main.py"} {
		ids = append(ids, b.Frame(traces.Frame{File: b.String(place), Func: b.String("f"), Line: 7}))
	}
	stack := b.Stack(ids)
	b.Event(traces.Event{Addr: 4096, Size: 512, Stack: stack, Device: b.Device(traces.DeviceGPU, 0), Action: traces.Alloc})
	tl, err := timeline.Build(t.Context(), b.Finish(), func(int64, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	cv := canvas.New(60, 4, canvas.NoColor, false)
	block.Stack(viewtest.State(tl), cv, stack)
	got := strings.Split(strings.TrimRight(ansi.Strip(cv.String()), "\n"), "\n")
	if want := "f a.py:7|… 3 frames between|f train.py:7|… 1 more caller"; strings.Join(got, "|") != want {
		t.Errorf("the stack is %q, want %q", got, want)
	}
}

func TestSourceLinesAreLinksWhereTheyAreWanted(t *testing.T) {
	tl := viewtest.Training{Iterations: 2, Layers: 6}.Timeline(t)
	s := viewtest.State(tl)
	places := tl.Places()
	places.Process.Host = "box\x1b]0;title\a"
	at := traces.NoStack
	for id := range traces.StackID(places.Stacks.Len()) {
		if file, _ := leaf.UserFrame(s.Device, id); strings.HasPrefix(file, "/") {
			at = id
		}
	}
	if at == traces.NoStack {
		t.Fatal("no stack has a frame with an absolute path")
	}
	file, line := leaf.UserFrame(s.Device, at)
	drawn := func(links bool) string {
		s.Links = links
		c := canvas.New(100, 20, canvas.TrueColor, false)
		block.Stack(s, c, at)
		return c.String()
	}
	if text := drawn(false); strings.Contains(text, "]8;") {
		t.Errorf("links are off, but it draws %q", text)
	}
	text := drawn(true)
	want := fmt.Sprintf("%s#%d\a", file, line)
	if !strings.Contains(text, want) || strings.Contains(text, "\x1b]0;") {
		t.Errorf("%q lacks %q, or a host's name ends its sequence", text, want)
	}
	if plain := ansi.Strip(drawn(false)); ansi.Strip(text) != plain {
		t.Errorf("links change the text from %q to %q", plain, ansi.Strip(text))
	}
}
