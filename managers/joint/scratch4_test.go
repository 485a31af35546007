package joint

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
)

func TestScratchQuality(t *testing.T) {
	if os.Getenv("Q") == "" {
		t.Skip("Q")
	}
	for _, name := range []string{"vgg16", "resnet50", "GPT-2 small"} {
		p := netProblem(t, name, 12e9)
		m := compile(p)
		line := name
		var sum float64
		for k := range 10 {
			b := m.floor + (m.peak*95/100-m.floor)*int64(9-k)/9
			if k == 9 {
				b += m.floor / 30
			}
			var mean float64
			for seed := range uint64(3) {
				f := newFinder(context.Background(), p, plan.Request{Budget: b}, mechanisms{})
				s := f.s
				for i := range s.limit {
					s.limit[i] = b
				}
				f.rnd = rand.New(rand.NewPCG(seed, 2))
				c := f.search()
				if c.over > 0 {
					mean += 3
				}
				mean += float64(c.time)/float64(m.baseTime) - 1
			}
			line += " " + pct(int64(mean/3*1e6), 1e6)
			sum += mean / 3
		}
		t.Logf("%s sum %.4f", line, sum)
	}
}
