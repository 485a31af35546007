package leaf

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/theme"
)

func answerOf(n int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { return n, nil }
}

func TestALateAnswerIsDropped(t *testing.T) {
	var q Query[string, int]
	first := q.Ask("a", answerOf(1))
	second := q.Ask("b", answerOf(2))
	if !q.Take(second()) || !q.Take(first()) {
		t.Fatal("an answer was not recognised")
	}
	if k, v, ok := q.Value(); k != "b" || v != 2 || !ok {
		t.Errorf("the answer is %d to %q", v, k)
	}
}

func TestANewQuestionCancelsTheOldOne(t *testing.T) {
	var q Query[string, int]
	var old context.Context
	first := q.Ask("a", func(ctx context.Context) (int, error) { old = ctx; return 1, nil })
	first()
	q.Ask("b", answerOf(2))
	if old.Err() == nil {
		t.Error("the old question was not cancelled")
	}
}

func TestACancelledQuestionIsAskedAgain(t *testing.T) {
	var q Query[string, int]
	var old context.Context
	first := q.Ask("a", func(ctx context.Context) (int, error) { old = ctx; return 1, ctx.Err() })
	q.Cancel()
	late := first()
	if old.Err() == nil || q.Pending() {
		t.Errorf("it goes on after being cancelled: %v, pending %v", old.Err(), q.Pending())
	}
	again := q.Ask("a", answerOf(2))
	if q.Take(late); !q.Pending() || q.Err() != nil {
		t.Errorf("the cancelled question was answered: pending %v, %v", q.Pending(), q.Err())
	}
	q.Take(again())
	if _, v, ok := q.Value(); v != 2 || !ok {
		t.Errorf("the answer is %d, %v", v, ok)
	}
}

func TestTheSameQuestionIsAskedOnce(t *testing.T) {
	var q Query[string, int]
	cmd := q.Ask("a", answerOf(1))
	if q.Ask("a", answerOf(1)) != nil {
		t.Error("it was asked again before the answer")
	}
	q.Take(cmd())
	if q.Ask("a", answerOf(1)) != nil {
		t.Error("it was asked again after the answer")
	}
	if q.Pending() {
		t.Error("it is still running")
	}
}

func TestOldAnswerStaysUntilTheNewOneArrives(t *testing.T) {
	var q Query[string, int]
	q.Take(q.Ask("a", answerOf(1))())
	cmd := q.Ask("b", answerOf(2))
	if k, v, ok := q.Value(); k != "a" || v != 1 || !ok {
		t.Errorf("until then the answer is %d to %q", v, k)
	}
	q.Take(cmd())
	if k, _, _ := q.Value(); k != "b" {
		t.Errorf("then it is of %q", k)
	}
}

func TestAnAnswerToAnotherQueryIsIgnored(t *testing.T) {
	var p, q Query[string, int]
	if q.Take(p.Ask("a", answerOf(1))()) {
		t.Error("it is")
	}
}

func TestErrorsAndPanicsAreNotAnswers(t *testing.T) {
	for name, f := range map[string]func(context.Context) (int, error){
		"error": func(context.Context) (int, error) { return 7, errors.New("no") },
		"panic": func(context.Context) (int, error) { panic("no") },
	} {
		var q Query[string, int]
		msg := q.Ask("a", f)()
		q.Take(msg)
		if _, _, ok := q.Value(); ok || q.Err() == nil || q.Pending() {
			t.Errorf("%s: ok %v, err %v, pending %v", name, ok, q.Err(), q.Pending())
		}
		if v, stack := msg.(Panicked).Panic(); (v != nil) != (name == "panic") ||
			(len(stack) > 0) != (name == "panic") {
			t.Errorf("%s: the panic is %v", name, v)
		}
	}
}

func TestAWindowNeverLeavesTheRecording(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	full := timeline.Window{From: -500, To: 1 << 40}
	w := full
	for range 20000 {
		switch rng.IntN(3) {
		case 0:
			w = Zoom(w, full, w.From+rng.Int64N(Span(w)), 1+rng.Int64N(7), 1+rng.Int64N(7))
		case 1:
			w = Pan(w, full, rng.Int64N(Span(full))-Span(full)/2)
		case 2:
			pos := full.From + rng.Int64N(Span(full))
			if w = Show(w, full, pos); pos < w.From || pos >= w.To {
				t.Fatalf("%d is not among %v", pos, w)
			}
		}
		if w.From < full.From || w.To > full.To || w.To <= w.From {
			t.Fatalf("the window is %v", w)
		}
	}
}

func TestCountSeparatesThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567",
		-1000: "-1,000"} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestAPercentThatIsNotZeroIsNotPrintedAsZero(t *testing.T) {
	for _, c := range []struct {
		part, whole int64
		want        string
	}{{0, 10, "0 %"}, {1, 1 << 40, "<1 %"}, {1, 2, "50 %"}, {5, 0, "0 %"}, {999, 1000, "100 %"}} {
		if got := Percent(c.part, c.whole); got != c.want {
			t.Errorf("Percent(%d, %d) = %q, want %q", c.part, c.whole, got, c.want)
		}
	}
}

func TestLinesNeverBreakInsideAFigure(t *testing.T) {
	text := "Peak ≥ 4 MiB, -64.0 MiB at a micro-batch, then 100.0 % below 12 B, 408 ms " +
		"after ≥ 2.5 GiB of 9 s."
	for w := 13; w < len(text); w++ {
		for _, line := range Wrap(text, w)[1:] {
			switch first, _, _ := strings.Cut(line, " "); strings.Trim(first, ",.") {
			case "64.0", "batch", "MiB", "GiB", "B", "%", "ms", "s", "4", "2.5":
				t.Errorf("at width %d a line begins with %q", w, line)
			}
		}
		if got := strings.Join(Wrap(text, w), " "); got != text {
			t.Errorf("at width %d the text became %q", w, got)
		}
	}
}

func TestOnlyTheAnswerOfASentenceStandsOut(t *testing.T) {
	text := "Peak 1.03 GiB here: 38 % activations. Largest holder: step."
	for _, w := range []int{21, 40, 90} { // the colon ends a line, stands within one, and all is one line
		c := canvas.New(w, 18, canvas.TrueColor, false)
		Sentence(&State{Display: Display{Theme: theme.Dark()}}, c, text)
		shown, bold := "", ""
		for y := range 3 {
			for x := range w {
				cell := c.At(x, y)
				shown += string(cell.Rune)
				if c.StyleOf(cell.Style).Bold {
					bold += string(cell.Rune)
				}
			}
		}
		if strings.TrimSpace(bold) != "Peak 1.03 GiB here:" || !strings.Contains(shown, "holder:") {
			t.Errorf("in %d cells, %q is highlighted in %q", w, bold, shown)
		}
	}
}

func TestATitleKeepsTheCaseOfCode(t *testing.T) {
	for phrase, want := range map[string]string{
		"mixed precision":              "Mixed precision",
		"scaled_dot_product_attention": "scaled_dot_product_attention",
		"torch.no_grad()":              "torch.no_grad()",
	} {
		if got := Title(phrase); got != want {
			t.Errorf("%q becomes %q", phrase, got)
		}
	}
}

// An answer that is too long ends after a sentence or a clause, if one ends in its last row.
func TestALongAnswerEndsAfterASentence(t *testing.T) {
	for text, want := range map[string]string{
		"One two. Three four five.":             "One two.\nThree four\nfive.",
		"One two three. Four five six. Seven.":  "One two\nthree. Four\nfive six. …",
		"One two three; four five six; seven x": "One two\nthree; four\nfive six; …",
		"One two three. Four five six seven.":   "One two\nthree. Four\nfive six se…",
		"One. Two three four five six seven x.": "One. Two\nthree four\nfive six se…",
	} {
		if got := strings.Join(fit(text, 12, 3), "\n"); got != want {
			t.Errorf("%q becomes\n%s\nwant\n%s", text, got, want)
		}
	}
}
