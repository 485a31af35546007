package fidelity

// SetFirstEvents replaces firstEvents and returns the old value.
func SetFirstEvents(n int) (old int) {
	old, firstEvents = firstEvents, n
	return old
}
