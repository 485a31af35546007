package progress

import (
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/replay"
)

func TestAManagersProgressSaysWhatIsKnown(t *testing.T) {
	now := time.Unix(1000, 0)
	for want, u := range map[string]replay.Progress{
		"joint":            {Manager: "joint", Began: now},
		"joint 34 %, 12 s": {Manager: "joint", Finished: 34, Total: 100, Began: now.Add(-12 * time.Second)},
		"joint 34 %, within 4 % of the bound, 12 s": {
			Manager: "joint", Finished: 34, Total: 100, Gap: 0.04, Bounded: true,
			Began: now.Add(-12 * time.Second),
		},
		"joint, at the bound": {Manager: "joint", Bounded: true, Began: now},
	} {
		if got := underWay(&u, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
