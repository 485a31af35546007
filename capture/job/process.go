package job

import (
	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
)

// Process is a watched process. It is a sink for its source, and takes orders for it. It is made of three
// parts, each with its own state: the orders, the recording, and the process's life. Its methods are safe for
// concurrent use.
type Process struct {
	// History is what we keep of the process.
	History *capture.History
	// ID tells the processes of a job apart. The first has 0.
	ID int

	orders
	recording
	life

	job *Job // nil unless it belongs to a command
}

// Candidate is a process of a training that may carry out plans: it takes orders, or says why it does not.
type Candidate struct {
	*Process // nil where Err is not
	PID      int
	Name     string
	Err      error
}

// newProcess returns a process that has not connected.
func newProcess(l capture.Limits) *Process {
	p := &Process{History: capture.NewHistory(l)}
	p.orders.session = p.History
	p.recording.relay = pytorch.NewRelay(p.History, &p.orders)
	p.is(capture.Info{})
	return p
}

// joins adds the process to a job.
func (p *Process) joins(j *Job) { p.job, p.life.count = j, j.roster.count }

// Tell shows a notice to all viewers of the process. It is not recorded.
func (p *Process) Tell(n capture.Notice) { p.relay.Notice(n) }

// Record writes the process to a file from now on.
func (p *Process) Record(o capture.RecordOptions) error {
	o.Control = &p.orders
	return p.recording.begin(o, p.Info())
}

// candidate returns the process as one that takes orders.
func (p *Process) candidate() Candidate {
	t := p.History.Snapshot().Info
	return Candidate{Process: p, PID: t.PID, Name: t.Name()}
}

// trains notes that the process steps.
func (p *Process) trains() {
	if p.life.steps() && p.job != nil {
		p.job.admit(p)
	}
}

// Begin implements capture.Sink.
func (p *Process) Begin(t capture.Info) {
	p.is(t)
	p.sink().Begin(t)
	p.heard()
}

// heard tells the job that there is something new about the process.
func (p *Process) heard() {
	if p.job != nil {
		p.job.Heard.Tell()
	}
}

// Step implements capture.Sink.
func (p *Process) Step(s capture.Step) {
	p.trains()
	p.sink().Step(s)
	p.heard()
}

// Precede adds spans of steps that came before all that were seen one by one.
func (p *Process) Precede(list []capture.Span) {
	p.trains()
	p.History.Precede(list)
	p.recording.precede(list)
}

// Window implements capture.Sink.
func (p *Process) Window(w capture.Window) {
	p.trains()
	p.sink().Window(w)
}

// Notice implements capture.Sink.
func (p *Process) Notice(n capture.Notice) {
	if n.Unmet && p.job != nil && p.job.Unmet != nil {
		p.job.Unmet(p.Info(), n.Text)
	}
	p.sink().Notice(n)
}

// Answer implements capture.Sink.
func (p *Process) Answer(a capture.Answer) { p.sink().Answer(a) }

// Lose implements capture.Sink.
func (p *Process) Lose(name string, n int64, detail string) { p.sink().Lose(name, n, detail) }

// Output implements capture.Sink.
func (p *Process) Output(b []byte) { p.sink().Output(b) }

// End implements capture.Sink. Of several ends the first counts, unless a later one says more.
func (p *Process) End(e capture.End) {
	switch {
	case p.life.ends():
		p.sink().End(e)
	case e.Detail != "" || e.Code.Or(0) > 0:
		p.History.End(e)
	}
	p.heard()
}
