package managers_test

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/managers"
	"github.com/gmemtop/gmemtop/tui/managers/plannertest"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

// batches opens the view, asks for the largest batch as if recorded at sizes, and returns what was sent before.
func batches(t *testing.T, f *plannertest.Planner, sizes string) (*viewtest.Screen, *managers.View) {
	t.Helper()
	sc, v := show(t, f)
	sc.Press("B")
	ask, ok := sc.Sent[len(sc.Sent)-1].(leaf.AskMsg)
	if !ok {
		t.Fatalf("B sends %v", sc.Sent)
	}
	msg, err := ask.Answer(sizes)
	if err != nil {
		t.Fatal(err)
	}
	sc.Send(msg)
	return sc, v
}

func TestTheLargestBatchIsFoundForEveryManagerAndMarkedAsInferred(t *testing.T) {
	sc, v := batches(t, &plannertest.Planner{}, "8")
	text := v.Headline(sc.State)
	if !strings.HasPrefix(text, "The largest batch in 1.30 GiB: ~") || !strings.Contains(text, " with caching. To fit in") {
		t.Errorf("the sentence is %q", text)
	}
	sc.Golden("largest-batch")
	sc.Press("-")
	if text := v.Headline(sc.State); strings.Contains(text, "largest batch") {
		t.Errorf("at another budget it says %q", text)
	}
	sc.Press("+")
	if again := v.Headline(sc.State); again != text {
		t.Errorf("back at the first budget it says %q", again)
	}
}

func TestTheLargestBatchNeedsABudgetAndSizesThatMakeSense(t *testing.T) {
	sc, _ := show(t, &plannertest.Planner{})
	sc.Press("B")
	ask := sc.Sent[len(sc.Sent)-1].(leaf.AskMsg)
	for _, text := range []string{"", "0", "-3", "much", "32,32", "1,2,3", "2000000"} {
		if msg, err := ask.Answer(text); err == nil {
			t.Errorf("%q is taken as %v", text, msg)
		}
	}
	msg, err := ask.Answer("32, 64")
	if err != nil {
		t.Fatal(err)
	}
	sc.Send(msg)
	if toast, ok := sc.Sent[len(sc.Sent)-1].(leaf.ToastMsg); !ok || !strings.Contains(toast.Text, "one recording is open") {
		t.Errorf("two sizes for one recording: %v", sc.Sent[len(sc.Sent)-1])
	}
	life, _ := show(t, &plannertest.Planner{Kind: traces.Lifetimes}) // opens without a budget
	life.Press("B")
	if toast, ok := life.Sent[len(life.Sent)-1].(leaf.ToastMsg); !ok || !strings.Contains(toast.Text, "set one with b") {
		t.Errorf("without a budget B sends %v", life.Sent)
	}
}

func TestTheSearchForTheLargestBatchSaysHowFarItIsAndStops(t *testing.T) {
	f := &plannertest.Planner{}
	sc, v := show(t, f)
	sc.Press("B")
	msg, err := sc.Sent[len(sc.Sent)-1].(leaf.AskMsg).Answer("8")
	if err != nil {
		t.Fatal(err)
	}
	f.Hold = make(chan struct{})
	cmd := v.Update(sc.State, msg)
	if text := v.Headline(sc.State); !strings.HasPrefix(text, "Looking for the largest batch in 1.30 GiB: 0 of 5 managers") {
		t.Errorf("at first it says %q", text)
	}
	v.Update(sc.State, cmd())
	if text := v.Headline(sc.State); !strings.Contains(text, "caching tries 1") {
		t.Errorf("then it says %q", text)
	}
	v.Update(sc.State, viewtest.Key("esc"))
	if text := v.Headline(sc.State); strings.Contains(text, "argest batch") {
		t.Errorf("stopped, it says %q", text)
	}
	close(f.Hold)
}
