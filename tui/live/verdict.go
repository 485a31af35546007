package live

import "slices"

// verdict keeps the sentence about a job's memory from flipping. Near the threshold between steady and
// leaking the trend of the last steps crosses it back and forth. A changed verdict counts as unsettled, and
// the sentence says so, until it has held for some steps. The first verdict holds at once.
type verdict struct {
	known   bool
	process int   // the one it is about
	leaking bool  // the newest verdict
	settled int64 // the step at which it settles
}

// settling is how many steps a changed verdict stays unsettled.
const settling = 32

// take takes in the trend of a look, and marks the look while the verdict is unsettled.
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
	if l.unsettled = step < v.settled; l.unsettled {
		l.retractLeak()
	}
}

// retractLeak withdraws the alert about a leak: the headline says that it is too early to call it one, and no
// other view may contradict that.
func (l *Look) retractLeak() {
	isLeak := func(a Alert) bool { return a.Kind == Leak }
	l.Alerts = slices.DeleteFunc(slices.Clone(l.Alerts), isLeak)
	for i := range l.Ranks {
		if r := &l.Ranks[i]; r.ID == l.Chosen {
			l.Ranks = slices.Clone(l.Ranks)
			l.Ranks[i].Alerts = slices.DeleteFunc(slices.Clone(r.Alerts), isLeak)
		}
	}
}
