package joint

// forbidden is the price of what may not be done. Any negative price means the same.
const forbidden = -1

// prices are the costs of candidates while gaps are chosen. Time on a copy engine is worth a share of the
// same time on the compute stream: nothing while the engine is idle, all of it when the step waits for the
// engine. Only a schedule shows which share it is, so several are tried.
type prices struct {
	// the price of a nanosecond of copying in nanoseconds of compute; forbidden for no swaps
	copy      float64
	recompute float64 // the price of a nanosecond of recomputation; forbidden for no reruns
	// byExcess weighs an absence by the excess over the limit that it spans, instead of by bytes alone.
	byExcess bool
	// dual, if not nil, prices copies and reruns by the dual of the bound's linear program; copy then scales
	// its prices of copies.
	dual *dual
	// fill first swaps at the fullest position as much as copies can carry without anyone waiting. split
	// keeps out of it gaps that are cheaper to recompute, in nanoseconds per 1024 bytes: the copies are
	// better spent on others.
	fill  bool
	split float64
}
