package live

// verdict keeps what is said of a job's memory from flipping: at the threshold between steady and a leak the
// trend over the last steps crosses it back and forth from look to look. A verdict that differs from the one
// before is unsettled, and said to be, until it has held for some steps. The first one holds at once.
type verdict struct {
	known   bool
	process int   // whose it is
	leaking bool  // the newest one
	settled int64 // the step from which on it is settled
}

// settling is for how many steps a changed verdict is unsettled.
const settling = 32

// take takes the trend of a look, and marks the look as long as it is unsettled.
func (v *verdict) take(l *Look) {
	n := len(l.Steps)
	if n == 0 || l.Report.Trend.Points < 8 {
		return
	}
	step, leaking := l.Steps[n-1].Index, l.Report.Trend.Leaking
	switch {
	case !v.known || v.process != l.Chosen:
		*v = verdict{known: true, process: l.Chosen, leaking: leaking}
	case leaking != v.leaking:
		v.leaking, v.settled = leaking, step+settling
	}
	l.unsettled = step < v.settled
}
