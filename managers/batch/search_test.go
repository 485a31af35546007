package batch_test

import (
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/gmemtop/gmemtop/managers/batch"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// sized makes problems that say their batch size and nothing else.
func sized(n int) (*plan.Problem, error) { return &plan.Problem{Outside: int64(n)}, nil }

func TestTheLargestBatchThatFitsIsFoundInFewQuestions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	answers := []int{0, 1, 2, 3, 4, 5, 1023, 1024, 1025, batch.Limit - 1, batch.Limit, batch.Limit + 5}
	for range 200 {
		answers = append(answers, r.IntN(batch.Limit))
	}
	for _, answer := range answers {
		asked := 0
		got, err := batch.MaxBatch(context.Background(), sized, func(p *plan.Problem) (bool, error) {
			asked++
			if p.Outside > batch.Limit {
				t.Fatalf("asked about batch %d", p.Outside)
			}
			return p.Outside <= int64(answer), nil
		})
		if want := min(answer, batch.Limit); err != nil || got != want {
			t.Errorf("found %d, %v, want %d", got, err, want)
		}
		if most := 2*bits.Len(uint(answer)) + 1; asked > most {
			t.Errorf("%d questions for %d, want %d at most", asked, answer, most)
		}
	}
}

func TestTooSmallIsANoAndOtherErrorsEndTheSearch(t *testing.T) {
	got, err := batch.MaxBatch(context.Background(), sized, func(p *plan.Problem) (bool, error) {
		if p.Outside > 37 {
			return false, &plan.TooSmall{Budget: 1, Need: 2, Held: "parameters alone"}
		}
		return true, nil
	})
	if err != nil || got != 37 {
		t.Errorf("found %d, %v, want 37", got, err)
	}
	broken := errors.New("broken")
	if got, err := batch.MaxBatch(context.Background(), sized, func(p *plan.Problem) (bool, error) {
		if p.Outside > 10 {
			return false, broken
		}
		return true, nil
	}); !errors.Is(err, broken) || got != 8 {
		t.Errorf("found %d, %v, want 8 and the error", got, err)
	}
	if _, err := batch.MaxBatch(context.Background(), func(int) (*plan.Problem, error) {
		return nil, broken
	}, nil); !errors.Is(err, broken) {
		t.Errorf("%v, want the error of making the problem", err)
	}
}

func TestACancelledSearchReturnsWhatItHas(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	got, err := batch.MaxBatch(ctx, sized, func(p *plan.Problem) (bool, error) {
		if p.Outside == 64 {
			cancel()
		}
		return true, nil
	})
	if !errors.Is(err, context.Canceled) || got != 64 {
		t.Errorf("found %d, %v, want 64 and the context's error", got, err)
	}
}

func TestTheLargestBatchFromTwoRecordingsIsTheTrueOne(t *testing.T) {
	const budget = 12 << 30
	fits := func(p *plan.Problem) (bool, error) {
		live, _ := p.PeakLive()
		return live <= budget, nil
	}
	for _, name := range []string{"vgg-16", "resnet-50", "gpt2-small"} {
		n, _ := networks.ByName(name)
		m, err := batch.Fit(recording(t, name, 4, n.Sequence, networks.Options{}),
			recording(t, name, 8, n.Sequence, networks.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		got, err := batch.MaxBatch(context.Background(), m.Scaled, fits)
		if err != nil {
			t.Fatal(err)
		}
		here, _ := fits(recording(t, name, got, n.Sequence, networks.Options{}).Problem)
		next, _ := fits(recording(t, name, got+1, n.Sequence, networks.Options{}).Problem)
		if !here || next {
			t.Errorf("%s: batch %d fits: %v, one more: %v", name, got, here, next)
		}
		t.Logf("%s keeps everything within 12 GiB up to batch %d", name, got)
	}
}
