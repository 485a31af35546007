package pytorch_test

import "testing"

// Under a plan that has optimizer state wait on the host, every optimizer learns the same to the bit, code
// that looks at the state in between finds it, and afterwards all is as before.
func TestOptimizersLearnTheSameWhileTheirStateWaitsOnTheHost(t *testing.T) {
	t.Parallel()
	withAgent(t, python(t), "testdata/parked.py")
}
