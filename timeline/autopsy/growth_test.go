package autopsy

import (
	"context"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Steps that each list only what they used cannot show a leak, and the answer says so: nothing about growth
// would read as if there was none.
func TestWhereGrowthDoesNotShowTheAnswerSaysSo(t *testing.T) {
	for loss, says := range map[string]bool{"": false, traces.LossBetweenWindows: true} {
		b := traces.NewBuilder()
		cpu := b.Device(traces.DeviceCPU, 0)
		for i := range int64(12) {
			for k, a := range []traces.Action{traces.Alloc, traces.Free} {
				b.Event(traces.Event{Time: 100*i + int64(k), Addr: 4096, Size: 1 << 20, Action: a,
					Stack: traces.NoStack, Device: cpu})
			}
			b.T.Marks = append(b.T.Marks, traces.Mark{Start: 100 * i, End: 100*i + 100,
				Name: b.String("step"), Kind: traces.MarkIteration})
		}
		if loss != "" {
			b.Lose(loss, traces.DataLoss, 1, "")
		}
		tl, err := timeline.Build(t.Context(), b.Finish(), nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := Of(context.Background(), tl.Main(), timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		const sentence = "This recording cannot show whether memory grows"
		if got := strings.Contains(a.Sentence, sentence); got != says {
			t.Errorf("loss %q: %s", loss, a.Sentence)
		}
	}
}
