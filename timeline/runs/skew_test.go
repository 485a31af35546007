package runs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Each row of times is a rank: its class, and its times in steps 0, 1, ...; - where it lacks one.
func TestTheSkewOfAStepIsOfItsSlowestRank(t *testing.T) {
	for _, c := range []struct{ name, times, want string }{
		{"nobody", "", ""},
		{"one rank", "0 5 5 5", ""},
		{"alike", "0 5 5, 0 5 5", "0:0 1:0"},
		{"late once", "0 5 9 5, 0 5 5 5, 0 5 5 5", "0:0 1:4@0 2:0"},
		{"another one each time", "0 5 9 5, 0 5 5 5, 0 5 5 7", "0:0 1:4@0 2:2@2"},
		{"a fast one keeps nobody waiting", "0 5 1, 0 5 5, 0 5 5, 0 5 5", "0:0 1:0@1"},
		{"classes differ by design", "0 5 5, 0 5 5, 1 50 50, 1 50 52", "0:0 1:2@3"},
		{"half of them took the last step", "0 5 5, 0 5 7, 0 5, 0 5", "0:0 1:2@1"},
		{"too few of them did", "0 5 5, 0 5, 0 5 7, 0 5, 0 5", "0:0"},
		{"one that has no times", "0, 0 5 6, 0 5 5, 0 5 5", "0:0@1 1:1@1"},
		{"a step that is missing", "0 5 - 9, 0 5 5 5, 0 5 5 5", "0:0 1:0@1 2:4@0"},
		{"the newest three", "0 5 5 5 5 9, 0 5 5 5 5 5, 0 5 5 5 5 5", "2:0 3:0 4:4@0"},
	} {
		var class []int
		var times [][]Sample
		for rank := range strings.SplitSeq(c.times, ",") {
			words := strings.Fields(rank)
			if len(words) == 0 {
				continue
			}
			var list []Sample
			for step, word := range words[1:] {
				var s Sample
				if n, _ := fmt.Sscan(word, &s.Value); n == 1 {
					s.Step = int64(step)
					list = append(list, s)
				}
			}
			class = append(class, int(words[0][0]-'0'))
			times = append(times, list)
		}
		var got []string
		for _, s := range SkewsOf(class, times, 3) {
			text := fmt.Sprintf("%d:%d", s.Step, s.By)
			if s.Rank > 0 || s.By > 0 {
				text += fmt.Sprintf("@%d", s.Rank)
			}
			got = append(got, text)
		}
		if want := strings.Fields(c.want); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
}
