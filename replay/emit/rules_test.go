package emit

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
)

// TestSharedRulesKeepTheOrderOfWhatOneLoadBringsBack: tensors of one site share a rule, unless that would put
// one of them before a tensor of another site that the same load brings back first.
func TestSharedRulesKeepTheOrderOfWhatOneLoadBringsBack(t *testing.T) {
	rule := func(site string, save, fetch int) live.Rule {
		return live.Rule{Site: site, Save: save, Bytes: 512, How: "swap", Release: save + 1, Fetch: fetch}
	}
	var b strings.Builder
	writeSwaps(&b, &live.Rules{Values: []live.Rule{
		rule("relu", 9, 1), rule("add", 8, 1), rule("relu", 7, 2), rule("relu", 6, 1),
	}}, timeline.IEC)
	const want = `    # relu, 2 of 512 B each
    swap(512, (9, 10, 1), (7, 8, 2)),
    # add, 512 B
    swap(512, (8, 9, 1)),
    # relu, 512 B
    swap(512, (6, 7, 1)),
`
	if _, got, _ := strings.Cut(b.String(), "at a load.\n"); got != want {
		t.Errorf("the rules are\n%s\nnot\n%s", got, want)
	}
}

func TestBackupsAreRulesOfTheirOwn(t *testing.T) {
	var b strings.Builder
	ops := []live.Numeral{{Name: "aten::view", N: 1}, {Name: "aten::mm", N: 4}}
	writeBackups(&b, &live.Rules{Backups: [][]live.Numeral{ops}})
	const want = `    # Made again by these calls only if the loop changed what the model returned.
    backup({"view": [1], "mm": [4]}),
`
	if b.String() != want {
		t.Errorf("the rules are\n%s\nnot\n%s", b.String(), want)
	}
}
