package main

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
)

// silent takes orders and does nothing, while steps go by.
type silent struct {
	capture.Carrier
	session *capture.Session
	asked   atomic.Int64
	next    int64
}

func (d *silent) DescribeSaves(context.Context, int) error {
	d.asked.Add(1)
	for range unanswered + 10 {
		d.session.Step(capture.Step{Index: d.next})
		d.next++
	}
	return nil
}

func TestADescriptionThatDoesNotComeIsAskedForAgainAndThenGivenUp(t *testing.T) {
	defer func(was time.Duration) { answerWithin = was }(answerWithin)
	answerWithin = 0
	s := capture.NewSession(capture.Limits{})
	d := &silent{session: s}
	_, err := (&trainer{session: s, control: d}).Describe(context.Background())
	if err == nil || !strings.Contains(err.Error(), "none was described") || d.asked.Load() != mostAsked {
		t.Errorf("asked %d times, and then %v", d.asked.Load(), err)
	}
}
