package job

import "context"

// Attach brings the agent into a running process that becomes one of the job's, for as long as ctx lasts. It
// returns at once; if the agent cannot get in, the process has ended before it began. leave removes the agent
// and waits until nothing of it is left.
func (j *Job) Attach(ctx context.Context, pid int, started uint64) (p *Process, leave func() error) {
	o := j.main.options
	o.Totals = true
	w := NewWatch(o)
	w.joins(j)
	j.roster.add(w.Process)
	run, stop := context.WithCancel(ctx)
	w.Connect(run, pid, started)
	return w.Process, func() error {
		err := w.letGo()
		stop()
		w.Wait()
		return err
	}
}
