package joint

// nominal is when compute reaches each position if it never waits for a copy.
type nominal struct {
	clock []int64 // when all ops before it are done
	start []int64 // when its op starts; with several streams those of the queues, until they are walked
	ways  int     // how often variants had been changed
	bare  bool    // there are no reruns
}
