package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

func TestAFlagIsNeverBrokenAtItsHyphens(t *testing.T) {
	const text = "aaaa aaaa aaaa aaaa --at-sequence-of-a-flag b"
	if got, want := Wrap(text, 24), "aaaa aaaa aaaa aaaa\n--at-sequence-of-a-flag\nb"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestContinuationsHangBelowTheLastColumn(t *testing.T) {
	for in, want := range map[string]string{
		"plain text that is longer than thirty":       "plain text that is longer than\nthirty",
		"  indented text that is longer than it":      "  indented text that is longer\n  than it",
		"  a  12 MiB  says what it is at some length": "  a  12 MiB  says what it is at some length",
		"  a  b  says what it is at some length":      "  a  b  says what it is at\n        some length",
		"ééééé  ééééé ééééé ééééé ééééé ééééé":        "ééééé  ééééé ééééé ééééé ééééé\n       ééééé",
		"short": "short",
	} {
		if got := Hang(in, 30); got != want {
			t.Errorf("%q becomes\n%s\nnot\n%s", in, got, want)
		}
	}
}

func TestNoTwoBlankLinesFollowEachOther(t *testing.T) {
	r := &OOM{Devices: []OOMDevice{{Sentence: "No out-of-memory here.",
		Holders: []StackRow{{Site: "train.py:3", Bytes: 512, Blocks: 1}}}}}
	var b bytes.Buffer
	if err := r.WriteText(&b, Options{}); err != nil {
		t.Fatal(err)
	}
	const want = "No out-of-memory here.\n\nwho held the memory\n"
	if !strings.HasPrefix(b.String(), want) {
		t.Errorf("it prints\n%s\nnot\n%s", &b, want)
	}
}

// TestReportsWrapAtATerminalsWidth checks that wrapping loses no word, fits, and leaves commands, which the
// reader copies, on one line.
func TestReportsWrapAtATerminalsWidth(t *testing.T) {
	saves := int64(403 << 20)
	command := "loss = sum(checkpoint(lambda h, y: F.cross_entropy(lm_head(h), y)) for h, y in zip(a, b))"
	r := &OOM{Devices: []OOMDevice{{
		Sentence: "All but 4.34 MiB of the 11.0 GiB reserved on GPU 0 are in use: this looks like a " +
			"snapshot taken after running out of memory.",
		Levers: []Lever{{Name: "chunked_loss", Saves: &saves, Command: command,
			Text: "compute the output layer and the loss in 8 chunks of the tokens: 500 MiB " +
				"at that moment are logits"}},
	}}}
	text := func(w int) string {
		var b bytes.Buffer
		if err := r.WriteText(&b, Options{Width: w}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	whole := strings.Fields(text(0))
	for _, w := range []int{40, 60, 80, 100} {
		wrapped := text(w)
		if !slices.Equal(strings.Fields(wrapped), whole) {
			t.Errorf("at %d cells words change:\n%s", w, wrapped)
		}
		for line := range strings.Lines(wrapped) {
			n := ansi.StringWidth(strings.TrimRight(line, "\n"))
			if n > w && !strings.Contains(line, command) {
				t.Errorf("at %d cells a line has %d:\n%s", w, n, line)
			}
		}
		if !strings.Contains(wrapped, command+"\n") {
			t.Errorf("at %d cells the command is broken:\n%s", w, wrapped)
		}
	}
}
