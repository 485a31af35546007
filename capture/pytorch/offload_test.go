package pytorch_test

import "testing"

// A training that does not fit runs no step to plan on. While all that it saves waits on the host it learns
// the same, and a description of it reads as if nothing had gone.
func TestATrainingIsDescribedAsIfNothingHadBeenOffloaded(t *testing.T) {
	t.Parallel()
	withAgent(t, python(t), "testdata/offload.py")
}

func TestTryingWhatPlansCostLeavesNothingThoughItIsInterrupted(t *testing.T) {
	t.Parallel()
	withAgent(t, python(t), "testdata/costs.py")
}

func TestAReachedProcessOffloadsFromTheNextStepOn(t *testing.T) {
	t.Parallel()
	withAgent(t, python(t), "testdata/reached.py")
}
