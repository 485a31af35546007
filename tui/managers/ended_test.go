package managers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/replay/live"
)

func TestALivePlanThatEndsByItselfSaysWhy(t *testing.T) {
	r := watch(t)
	r.press("T")
	r.tell(on)
	r.until("ours on")
	r.f.Fail <- errors.New("the training ended: exit code 0")
	r.until("live: ours is off: the training ended: exit code 0")
	if !r.toast("the training ended: exit code 0") {
		t.Errorf("it is not said: %v", r.said)
	}
	if status := r.v.Status(r.State); !strings.HasSuffix(status, "live: the training ended: exit code 0") {
		t.Errorf("the status is %q", status)
	}
	r.Golden("live-ended")
}

// Why PyTorch runs no part of a plan takes more than a line of 80 columns, and is read whole all the same.
func TestALongReasonIsReadWhole(t *testing.T) {
	r := watch(t)
	r.press("T")
	r.tell(on)
	r.until("ours on")
	r.f.Fail <- errors.New("eager PyTorch can run no part of this plan: it moves and drops nothing that " +
		"autograd saves")
	r.until("ours is off: eager PyTorch")
	r.Golden("live-refused")
}

func TestALivePlanWhoseTrainingChangedSaysSo(t *testing.T) {
	r := watch(t)
	r.press("T")
	r.tell(on)
	r.until("ours on")
	r.tell(live.News{Stage: live.Describing})
	r.until("1 of 5, recording steps op by op, which slows them, again because the steps changed")
	r.tell(on)
	r.until("ours on for")
}
