package pytorch

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestAgentMessagesUseTheCatalogue: each frame with words for people, with a known code, with one from a
// newer agent, and as an older agent sends it.
func TestAgentMessagesUseTheCatalogue(t *testing.T) {
	for says, want := range map[string]string{
		`,"says":{"code":"compiled","values":[]}`: "torch.compile is in use",
		`,"says":{"code":"of a newer agent"}`:     "as it came",
		`,"says":{}`:                              "as it came",
		``:                                        "as it came",
	} {
		hello := `{"version":2,"pid":1,"waiting":"as it came"` + says + `}`
		b := slices.Concat(
			raw(frameHello, hello),
			raw(frameNotice, `{"key":"ops","text":"as it came"`+says+`}`),
			raw(frameLost, `{"name":"steps","n":1,"detail":"as it came"`+says+`}`),
			raw(frameAnswer, `{"order":7,"state":"refused","text":"as it came"`+says+`}`),
			raw(frameBye, `{"reason":"detached","detail":"as it came"`+says+
				`,"left":["as it came"],"left_says":[`+
				cmp.Or(strings.TrimPrefix(says, `,"says":`), "{}")+`]}`))
		v, err := run(t, b)
		if err != nil {
			t.Fatal(err)
		}
		got := []string{v.Losses[0].Detail, v.Answers[0].Text, v.End.Detail}
		for _, n := range v.Notices {
			got = append(got, n.Text)
		}
		all := []string{want, want, want + "; left in place: " + want, want, want}
		if !slices.Equal(got, all) {
			t.Errorf("%s: %q", says, got)
		}
	}
	for says, want := range map[string]string{
		`{"code":"compiled"}`: "torch.compile is in use",
		`{}`:                  "as it came",
	} {
		_, err := shake(nil, frameBye, []byte(`{"pid":1,"detail":"as it came","says":`+says+`}`))
		if !errors.Is(err, errRefused) || !strings.HasSuffix(err.Error(), want) {
			t.Error(err)
		}
	}
}

// TestLabelsInAWindowUseTheCatalogue: a captured step has the same labels from this agent as from an older
// one, which sends the sentence itself.
func TestLabelsInAWindowUseTheCatalogue(t *testing.T) {
	const mm, untouched = "workspace of aten::mm", "not touched by these steps"
	for block, want := range map[string]string{
		`"label":"workspace: aten::mm","says":{"code":"workspace","values":["aten::mm"]}`: mm,
		`"label":"untouched","says":{"code":"untouched","values":[]}`:                     untouched,
		`"label":"as it came","says":{"code":"of a newer agent"}`:                         "as it came",
		`"label":"as it came","says":7`:                                                   "as it came",
		`"label":"workspace of aten::mm"`:                                                 mm,
	} {
		window := `{"gmemtop":"described","version":1,"torch":"2.9","steps":[[0,9]]}` + "\n" +
			`{"k":"alloc","id":0,"size":8,"t":0,"on":"cpu",` + block + "}\n"
		v, err := run(t, slices.Concat(
			raw(frameHello, aHello), raw(frameWindow, `{"how":"ops"}`), raw(frameData, deflate(window)),
			raw(frameWhole, `{}`), raw(frameBye, `{"reason":"detached"}`)))
		if err != nil || len(v.Windows) != 1 {
			t.Fatalf("%s: %d windows, %v", block, len(v.Windows), err)
		}
		tr := v.Windows[0].Trace
		if got := tr.Text(tr.DetailOf(0).UserMetadata); got != want {
			t.Errorf("%s: %q, not %q", block, got, want)
		}
	}
}
