package autopsy

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
)

// A loop with a graph keeps blocks of all of its iterations, of each quarter at least half of its share. What
// is alive of only some of them was not freed yet.
func TestALoopKeepsBlocksOfEveryQuarterOfItsIterations(t *testing.T) {
	for _, c := range []struct {
		live string // each block that the loop made, in order: x if it is live
		want bool
	}{
		{"xxxxxxxxxxxxxxxx", true},
		{"x...x...x...x...", true}, // the first of each quarter
		{"...x...x...x...x", true}, // the last of each quarter
		{"....xxxx.xxx.xxx", false},
		{"xxxx....x.x.x.x.", false},
		{"x.xxxxx.........", false},
		{"xx.x....xx..xx..", false}, // none from 4 to 7
		{"xx..xx......xxx.", false}, // none from 8 to 11
		{"xx..xx..x.x.....", false}, // none from 12 to 15
		{"xxxxx...xxxxxxxx", false}, // one in the second quarter, of thirteen
		{"xxxxxx..xxxxxxxx", true},  // two, of fourteen
		{"x...xx..xx..xxx.", true},  // exactly half of its share
		{"xxxxx..", false},
		{"x.x.x.x", true}, // quarters of one, two, two and two
		{".xxxxxx", false},
	} {
		m := loopMade{sizes: map[int64]int{}}
		for _, r := range c.live {
			m.all += 512
			m.made = append(m.made, r == 'x')
			if r == 'x' {
				m.ids = append(m.ids, timeline.AllocID(len(m.made)-1))
				m.bytes += 512
				m.sizes[512]++
			}
		}
		if got := m.throughout(); got != c.want {
			t.Errorf("%s: %v, want %v", c.live, got, c.want)
		}
		slices.Reverse(m.made)
		if got := m.throughout(); len(m.made)%4 == 0 && got != c.want {
			t.Errorf("%s from its end: %v, want %v", c.live, got, c.want)
		}
	}
}
