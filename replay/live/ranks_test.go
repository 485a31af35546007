package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/timeline"
)

// TestWhatIsMeasuredBeginsTogether has ranks of different speed go through some stretches, one leave early,
// and one come late.
func TestWhatIsMeasuredBeginsTogether(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var g Gate
	var mu sync.Mutex
	var said []string
	say := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, text)
	}
	seats := []*Seat{g.Seat(), g.Seat(), g.Seat()}
	for _, s := range seats {
		s.Begin()
	}
	var work sync.WaitGroup
	for i, s := range seats {
		work.Go(func() {
			defer s.Leave()
			for stretch := range 4 {
				if i == 2 && stretch == 2 {
					return // it is gone, and nobody waits for it
				}
				time.Sleep(time.Duration(i*i) * 5 * time.Millisecond)
				say(fmt.Sprintf("%d %d", stretch, i))
				if err := s.Next(ctx); err != nil {
					t.Error(i, stretch, err)
				}
			}
		})
	}
	work.Wait()
	for i := 1; i < len(said); i++ {
		if said[i][0] < said[i-1][0] {
			t.Errorf("one begins a stretch before another has ended the one before: %v", said)
		}
	}
	if len(said) != 10 {
		t.Errorf("they said %v", said)
	}

	// Nobody waits for a rank whose plan is on, nor does it wait; one that comes late waits for nobody.
	late := g.Seat()
	late.Begin()
	for range 5 {
		if err := late.Next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	again := seats[0] // planned for again, from the first stretch on
	again.Begin()
	over := make(chan error, 1)
	go func() { over <- late.Next(ctx) }()
	select {
	case err := <-over:
		t.Errorf("it does not wait for one who begins again: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	again.Leave()
	if err := <-over; err != nil {
		t.Error(err)
	}

	// A waiting rank is told when everything is over.
	again.Begin()
	short, end := context.WithCancel(ctx)
	go func() { over <- late.Next(short) }()
	end()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	var nobody *Seat
	nobody.Begin()
	if err := nobody.Next(ctx); err != nil {
		t.Error(err)
	}
	nobody.Leave()
}

const mib = 1 << 20

// rankOn is a rank whose plan is on.
func rankOn(name string, before, peak, step int64) Rank {
	return Rank{Name: name, News: News{Stage: On, Steps: 40, Before: 100e6, Step: step, P95: step,
		PredictedStep: 101e6, PeakBefore: before * mib, Peak: peak * mib,
		Predicted: peak * mib, Out: 3, In: 2, Again: 1, Missed: 1, Checked: 5}}
}

func TestOfSeveralRanksTheHighestAndTheSlowestCount(t *testing.T) {
	off := func(r Rank, err error) Rank {
		r.Err = err
		return r
	}
	dead := func(r Rank) Rank {
		r.Gone = true
		return off(r, errors.New("the training ended: exit code 1"))
	}
	doing := func(name string, what Stage) Rank { return Rank{Name: name, News: News{Stage: what}} }
	never := func(r Rank, added int64) Rank {
		r.News.Before, r.News.PredictedStep, r.News.Added = 0, 0, added
		return r
	}
	refused := errors.New("not today")
	for _, c := range []struct {
		what  string
		ranks []Rank
		want  string
	}{
		{"all on", []Rank{rankOn("rank 0", 140, 100, 110e6), rankOn("rank 1", 130, 106, 120e6)},
			"m has been on for 40 steps: 106 MiB instead of 130 MiB (predicted 106 MiB), at rank 1, step " +
				"120 ms instead of 100 ms, +20.0 % (predicted +1.0 %); 10 tensors " +
				"compared, all bit-identical; " +
				"2 tensors stayed in memory but should have left; on in 2 of 2 ranks"},
		{"one refuses and holds most", []Rank{off(rankOn("rank 0", 140, 70, 0), refused),
			rankOn("rank 1", 130, 106, 120e6)},
			"m has been on for 40 steps: 140 MiB instead of 140 MiB, at rank 0, step 120 ms instead of 100 " +
				"ms, +20.0 % (predicted +1.0 %); 5 tensors compared, all bit-identical; " +
				"1 tensor stayed in memory but should have left; on in 1 of 2 ranks, rank 0 off: not today"},
		{"one has died", []Rank{rankOn("rank 0", 140, 100, 110e6), dead(rankOn("rank 1", 130, 106, 120e6))},
			"m has been on for 40 steps: 100 MiB instead of 140 MiB (predicted 100 MiB), at rank 0, step " +
				"110 ms instead of 100 ms, +10.0 % (predicted +1.0 %); 5 tensors " +
				"compared, all bit-identical; " +
				"1 tensor stayed in memory but should have left; on in 1 of 2 ranks, rank 1 has ended"},
		{"one is not as far as the other", []Rank{doing("rank 0", Planning), doing("rank 1", Describing)},
			"m: recording ops; on in 0 of 2 ranks"},
		{"one has come late", []Rank{doing("rank 0", Describing), rankOn("rank 1", 130, 106, 120e6)},
			"m has been on for 40 steps: 106 MiB instead of 130 MiB (predicted 106 MiB), at rank 1, step " +
				"120 ms instead of 100 ms, +20.0 % (predicted +1.0 %); 5 tensors " +
				"compared, all bit-identical; " +
				"1 tensor stayed in memory but should have left; on in 1 of 2 ranks"},
		{"there are no steps without", []Rank{never(rankOn("rank 0", 140, 100, 110e6), 3e6),
			never(rankOn("rank 1", 130, 106, 120e6), 4e6)},
			"m has been on for 40 steps: 106 MiB instead of 130 MiB (predicted 106 MiB), at rank 1, step " +
				"120 ms, of which the plan is predicted to add 4.00 ms; 10 tensors " +
				"compared, all bit-identical; " +
				"2 tensors stayed in memory but should have left; on in 2 of 2 ranks"},
		{"none is left", []Rank{dead(rankOn("rank 0", 1, 1, 1)), dead(rankOn("rank 0", 1, 1, 1))},
			"m: ended; on in 0 of 2 ranks, rank 0 has ended, rank 0 has ended"},
	} {
		for range 2 { // whichever is first
			n := Together(c.ranks)
			if got := n.Sentence("m", timeline.IEC); got != c.want {
				t.Errorf("%s:\n%s\nnot\n%s", c.what, got, c.want)
			}
			slices.Reverse(c.ranks)
		}
	}
}

func TestTheReasonNoRankRunsAPlanIsGivenOnceIfAllAgree(t *testing.T) {
	a, b := errors.New("compiled"), errors.New("no room")
	if err := Failed([]Rank{{Name: "rank 0", Err: a}, {Name: "rank 1"}}); err != nil {
		t.Errorf("one carries it out: %v", err)
	}
	if err := Failed([]Rank{{Name: "rank 0", Err: a}, {Name: "rank 1", Err: a}}); err != a {
		t.Errorf("%v", err)
	}
	if err := Failed([]Rank{{Name: "rank 0", Err: a}, {Name: "rank 1", Err: b}}); err.Error() != "rank 0: compiled; rank 1: no room" || !errors.Is(err, a) || !errors.Is(err, b) {
		t.Errorf("%v", err)
	}
	if err := Refused([]Rank{{Name: "rank 0"}, {Name: "rank 1", Err: b}}); err.Error() != "rank 1: no room" || !errors.Is(err, b) {
		t.Errorf("%v", err)
	}
	if err := Refused([]Rank{{Name: "rank 0"}}); err != nil {
		t.Errorf("%v", err)
	}
	if got := (&Rank{Name: "rank 3", Err: b}).Line(timeline.IEC); got != "rank 3 off: no room" {
		t.Error(got)
	}
	r := rankOn("rank 0", 140, 100, 110e6)
	if got := r.Line(timeline.IEC); got != "rank 0 on, 100 MiB instead of 140 MiB, step 110 ms" {
		t.Error(got)
	}
}

// TestTheReasonAPlanEndedIsShownUntilTheNextIsOn also names the rank, if there are several.
func TestTheReasonAPlanEndedIsShownUntilTheNextIsOn(t *testing.T) {
	const why = "the program captures a CUDA graph"
	n := News{Stage: Planning, Ended: why}
	if s := n.Sentence("ours", timeline.IEC); s != "ours: planning; the previous plan ended: "+why {
		t.Error(s)
	}
	if n.Stage = On; strings.Contains(n.Sentence("ours", timeline.IEC), why) {
		t.Error("it is said of the next plan")
	}
	all := Together([]Rank{{Name: "rank 0", News: News{Stage: Planning}}, {Name: "rank 1", News: News{Stage: Planning, Ended: why}}})
	if all.Ended != "rank 1: "+why {
		t.Errorf("of two ranks: %q", all.Ended)
	}
}

// How many steps of a job are timed is that of the rank with most to go, and in a stage that some have left,
// that of those still in it.
func TestOfSeveralRanksTheOneWithMostStepsToTimeCounts(t *testing.T) {
	at := func(stage Stage, timed, of int) Rank {
		return Rank{News: News{Stage: stage, Timed: timed, Time: of}}
	}
	for _, c := range []struct {
		ranks []Rank
		want  string
	}{
		{[]Rank{at(MeasuringWithout, 3, 5), at(MeasuringWithout, 1, 5)}, "without the plan: 1 of 5 steps"},
		{[]Rank{at(MeasuringWithout, 2, 20), at(MeasuringWithout, 1, 5)}, "without the plan: 2 of 20 steps"},
		{[]Rank{at(MeasuringWith, 2, 5), at(MeasuringWithout, 4, 5)}, "without the plan: 4 of 5 steps"},
		{[]Rank{at(MeasuringWithout, 4, 5), at(MeasuringWith, 2, 5)}, "without the plan: 4 of 5 steps"},
	} {
		n := Together(c.ranks)
		if got := n.Doing()[0]; got != "timing steps "+c.want {
			t.Errorf("%v: %s, not %s", c.ranks, got, c.want)
		}
	}
}

func TestHowManyStepsAreTimed(t *testing.T) {
	o := Options{Steps: 20, Patience: 10 * time.Second}
	for each, want := range map[time.Duration]int{0: 20, time.Millisecond: 20, 500 * time.Millisecond: 20,
		time.Second: 10, 2 * time.Second: 5, 30 * time.Second: 5} {
		if got := o.toTime(int64(each)); got != want {
			t.Errorf("of steps of %s, %d are timed, not %d", each, got, want)
		}
	}
	few := Options{Steps: 3, Patience: 10 * time.Second}
	if got := few.toTime(int64(time.Hour)); got != 3 {
		t.Errorf("%d steps are timed where 3 were asked for", got)
	}
}
