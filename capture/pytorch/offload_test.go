package pytorch_test

import "testing"

// A training that does not fit completes no step to plan from. While all its saved tensors wait on the host
// it learns the same, and its description reads as if nothing had left, but for what the program itself
// holds.
func TestATrainingIsDescribedAsIfNothingHadBeenOffloaded(t *testing.T) {
	t.Parallel()
	withAgent(t, python(t), "testdata/offload.py")
}

func TestAnInterruptedCostTrialLeavesNothing(t *testing.T) {
	t.Parallel()
	withAgent(t, python(t), "testdata/costs.py")
}

func TestAReachedProcessOffloadsFromTheNextStepOn(t *testing.T) {
	t.Parallel()
	withAgent(t, python(t), "testdata/reached.py")
}

func TestAnAgentThatLeavesWaitsForTheWindowThatIsBeingOpened(t *testing.T) {
	t.Parallel()
	withAgent(t, python(t), "testdata/leaves.py")
}
