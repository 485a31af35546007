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

// batches opens the view, asks for the largest batch as if recorded at sizes, and returns the messages sent
// before.
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
	if !strings.HasPrefix(text, "The largest batch in 1.27 GiB: ~") ||
		!strings.Contains(text, " with caching. To fit in") {
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
	for text, why := range map[string]string{
		"": "not a batch size", "0": "not a batch size", "-3": "not a batch size", "much": "not a batch size",
		"2000000": "not a batch size", "8x0": "not a batch size", "1,2,3": "two recordings",
		"32, 64": "gmemtop replay A B opens two", "8x512": "says nothing about other lengths",
	} {
		if msg, err := ask.Answer(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q is taken as %v, %v", text, msg, err)
		}
	}
}

func TestWithoutABudgetTheLargestBatchAsksForTheMemoryThatThereIs(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{Kind: traces.Lifetimes}) // opens without a budget
	sc.Press("B")
	ask, ok := sc.Sent[len(sc.Sent)-1].(leaf.AskMsg)
	if !ok || ask.Text != "256MiB" || !strings.Contains(ask.Title, "fits in") {
		t.Fatalf("without a budget B sends %v", sc.Sent)
	}
	for _, text := range []string{"", "none", "0"} {
		if _, err := ask.Answer(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	msg, err := ask.Answer("2GiB")
	if err != nil {
		t.Fatal(err)
	}
	sc.Send(msg)
	ask, ok = sc.Sent[len(sc.Sent)-1].(leaf.AskMsg)
	if !ok || ask.Title != "recorded at batch" || v.Budget() != 2<<30 {
		t.Fatalf("with a budget of %d it goes on with %v", v.Budget(), sc.Sent)
	}
	msg, err = ask.Answer("8")
	if err != nil {
		t.Fatal(err)
	}
	sc.Send(msg)
	if text := v.Headline(sc.State); !strings.HasPrefix(text, "The largest batch in 2.00 GiB: ~") {
		t.Errorf("the sentence is %q", text)
	}
}

// lengths opens two recordings of one batch at two sequence lengths and types their sizes.
func lengths(t *testing.T) (*viewtest.Screen, *managers.View, leaf.PickMsg) {
	t.Helper()
	short, long := watchedStep(t, 1), watchedStep(t, 2)
	f := &plannertest.Planner{Double: long.Main()}
	v := managers.New(f)
	v.After = viewtest.AtOnce
	sc := viewtest.Open(t, v, short, long)
	sc.Press("B")
	ask, ok := sc.Sent[len(sc.Sent)-1].(leaf.AskMsg)
	if !ok {
		t.Fatalf("B sends %v", sc.Sent)
	}
	for text, why := range map[string]string{
		"8,8": "write the two that differ", "8x512,16": "of both, or of neither",
		"8x512,16x1024": "differ in both", "8x512,8x512": "write the two that differ",
		"8x512,8x1024,8x2048": "two recordings",
	} {
		if msg, err := ask.Answer(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q is taken as %v, %v", text, msg, err)
		}
	}
	msg, err := ask.Answer("8x512, 8×1024")
	if err != nil {
		t.Fatal(err)
	}
	sc.Send(msg)
	pick, ok := sc.Sent[len(sc.Sent)-1].(leaf.PickMsg)
	if !ok {
		t.Fatalf("two lengths send %v", sc.Sent)
	}
	return sc, v, pick
}

func TestTwoLengthsTellTheLongestSequenceAndTheLargestBatchAtAnother(t *testing.T) {
	sc, v, pick := lengths(t)
	var titles []string
	for _, c := range pick.Choices {
		titles = append(titles, c.Title)
	}
	if got, want := strings.Join(titles, "; "),
		"the longest sequence at batch 8; the largest batch at 512 tokens; the largest batch at 1,024 "+
			"tokens; the largest batch at 2,048 tokens; "+
			"the largest batch at another length …; the longest sequence at another batch …"; got != want {
		t.Errorf("the choices are %s", got)
	}
	sc.Send(pick.Choices[0].Msg)
	if text := v.Headline(sc.State); !strings.HasPrefix(text,
		"The longest sequence at batch 8 in 1.27 GiB: ~") || !strings.Contains(text, " tokens, with ") {
		t.Errorf("the sentence is %q", text)
	}
	sc.Golden("longest-sequence")
	sc.Send(pick.Choices[3].Msg)
	if text := v.Headline(sc.State); !strings.HasPrefix(text,
		"The largest batch at 2,048 tokens in 1.27 GiB: ~") {
		t.Errorf("the sentence is %q", text)
	}
	sc.Send(pick.Choices[5].Msg)
	ask, ok := sc.Sent[len(sc.Sent)-1].(leaf.AskMsg)
	if !ok {
		t.Fatalf("another batch sends %v", sc.Sent)
	}
	if _, err := ask.Answer("many"); err == nil {
		t.Error("many is a batch")
	}
	msg, err := ask.Answer("4")
	if err != nil {
		t.Fatal(err)
	}
	sc.Send(msg)
	if text := v.Headline(sc.State); !strings.HasPrefix(text,
		"The longest sequence at batch 4 in 1.27 GiB: ~") {
		t.Errorf("the sentence is %q", text)
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
	if text := v.Headline(sc.State); !strings.HasPrefix(text,
		"Looking for the largest batch in 1.27 GiB: 0 of 5 managers") {
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
