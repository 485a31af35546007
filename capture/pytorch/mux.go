package pytorch

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Of several processes that connect (the ranks of torchrun, a launcher that imports torch itself) one is
// shown: the first that steps an optimizer, or until then the one of lowest rank. The others stay connected;
// Launch.Each may give them sinks of their own.

// mux brings what several processes and the output send into one sink.
type mux struct {
	job   *Job
	ended capture.Changes // tells of each session that ends
	mu    sync.Mutex
	sink  capture.Sink
	open  int // sessions that run
	// passed has, by process, the last step of a session that was cut off.
	passed map[int]*capture.Step
	met    int // the first process whose agent has connected, 0 for none yet
}

func (m *mux) notice(n capture.Notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sink.Notice(n)
}

func (m *mux) accept(ctx context.Context, work *sync.WaitGroup) {
	for {
		s, err := m.job.listener.Accept(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			m.notice(capture.Say(say.ConnectionFailed, err))
			continue
		}
		m.mu.Lock()
		m.open++
		m.met = cmp.Or(m.met, s.Info().PID)
		s.passed = m.passed[s.Info().PID]
		m.mu.Unlock()
		if f := m.job.launch.Received; f != nil {
			s.received = f(s.Info())
		}
		work.Go(func() {
			p := &process{mux: m, session: s}
			if err := s.Run(ctx, p); err != nil && ctx.Err() == nil {
				m.notice(capture.Say(say.ConnectionFailed, err))
				m.tell(func(f Family) { f.Severed(s.Info(), err) })
			}
			m.job.hungUp(s)
			m.mu.Lock()
			m.passed[s.Info().PID] = s.passed
			m.open--
			m.mu.Unlock()
			m.ended.Tell()
		})
	}
}

// tell calls f with the sink if that follows each process.
func (m *mux) tell(f func(Family)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.sink.(Family); ok {
		f(s)
	}
}

// drainTime is how long sessions may take to read what processes sent before ending.
const drainTime = 2 * time.Second

// drain waits until the sessions have ended, for drainTime at most.
func (m *mux) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	for {
		version := m.ended.Now()
		m.mu.Lock()
		open := m.open
		m.mu.Unlock()
		if open == 0 || m.ended.Wait(ctx, version) != nil {
			return
		}
	}
}

// tailEvery is how often we read the command's output. It is a file, and not every file system signals writes
// of other processes.
const tailEvery = 100 * time.Millisecond

// tail reads what the command writes, until ctx is done, and then to the end.
func (m *mux) tail(ctx context.Context) {
	f, err := os.Open(m.job.output.Name())
	if err != nil {
		m.notice(capture.Say(say.OutputUnread, err))
		return
	}
	defer f.Close()
	buf := make([]byte, 64<<10)
	var read int64
	for last := false; ; {
		n, err := f.Read(buf)
		read += int64(n)
		m.keepRoom(read)
		if n > 0 {
			m.mu.Lock()
			m.sink.Output(buf[:n])
			m.mu.Unlock()
			if echo := m.job.launch.Echo; echo != nil {
				_, _ = echo.Write(buf[:n])
			}
			continue
		}
		if err != nil && err != io.EOF || last {
			return
		}
		select {
		case <-ctx.Done():
			last = true
		case <-time.After(tailEvery):
		}
	}
}

// keepRoom makes sure that the command can go on printing, once read bytes of its output are read.
func (m *mux) keepRoom(read int64) {
	gaveUp, err := m.job.room.hold(read)
	switch {
	case err != nil:
		m.notice(capture.Say(say.DiskFull, filepath.Dir(m.job.output.Name())))
	case gaveUp:
		m.notice(capture.Say(say.DiskGivenUp, m.job.output.Name()))
	}
}

// process is the sink of one process of the job: it passes on messages of the process that is shown.
type process struct {
	mux     *mux
	session *Session
	info    capture.Info
	own     capture.Sink
	asked   bool
	stepped bool
}

// elect decides whether this process is the one that is shown, and reports whether it has just become so.
func (p *process) elect(stepping bool) (shown, now bool) {
	j := p.mux.job
	j.mu.Lock()
	defer j.mu.Unlock()
	was := j.shown
	switch {
	case was == p.session:
	case was == nil, stepping && !j.began, !j.began && !stepping && lower(p.info.Rank, j.rank):
		j.shown = p.session
	}
	shown = j.shown == p.session
	if shown {
		j.rank = p.info.Rank
	}
	j.began = j.began || shown && stepping
	return shown, shown && was != p.session
}

// hungUp forgets a session that ended without a bye, so that its process is shown again when it comes back.
func (j *Job) hungUp(s *Session) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.shown == s {
		j.shown, j.began = nil, false
	}
}

// hasBegun reports whether the process that is shown is settled: it has stepped.
func (j *Job) hasBegun() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.began
}

// lower reports whether rank a goes before rank b; a process without a rank goes last.
func lower(a, b maybe.Int) bool { return a.IsKnown() && a.Or(0) < b.Or(math.MaxInt64) }

// to calls f with the sink for this process's messages, if there is one.
func (p *process) to(stepping bool, f func(capture.Sink)) {
	shown, now := p.elect(stepping)
	if shown {
		p.mux.mu.Lock()
		defer p.mux.mu.Unlock()
		if now {
			p.mux.sink.Begin(p.info)
		}
		f(p.mux.sink)
		return
	}
	// Until a process has stepped, this one may still become the one shown.
	if !p.asked && p.mux.job.launch.Each != nil && (stepping || p.mux.job.hasBegun()) {
		p.asked = true
		if p.own = p.mux.job.launch.Each(p.session); p.own != nil {
			p.own.Begin(p.info)
		}
	}
	if p.own != nil {
		f(p.own)
	}
}

func (p *process) Begin(t capture.Info) {
	p.info = t
	p.to(false, func(s capture.Sink) { s.Begin(t) })
}
func (p *process) Step(x capture.Step) {
	p.stepped = true
	p.to(true, func(s capture.Sink) { s.Step(x) })
}
func (p *process) Window(x capture.Window) { p.to(true, func(s capture.Sink) { s.Window(x) }) }
func (p *process) Answer(x capture.Answer) { p.to(false, func(s capture.Sink) { s.Answer(x) }) }
func (p *process) Notice(x capture.Notice) { p.to(false, func(s capture.Sink) { s.Notice(x) }) }
func (p *process) Output([]byte)           {}
func (p *process) Lose(n string, k int64, d string) {
	p.to(false, func(s capture.Sink) { s.Lose(n, k, d) })
}

// Family is a sink of a job that follows each of its processes.
type Family interface {
	// Ended says how the process that is shown ended, or how the agent left it. The job's own end comes to
	// the sink.
	Ended(capture.Info, capture.End)
	// Severed says that the connection to a process is lost although the process goes on.
	Severed(capture.Info, error)
}

// End keeps how the process that is shown ended, for the job's end, which comes when the command has ended. A
// launcher's end, which only says that its child failed, does not replace that of a process that trained.
func (p *process) End(e capture.End) {
	shown, _ := p.elect(false)
	j := p.mux.job
	j.mu.Lock()
	if shown {
		if p.stepped || !j.trained {
			j.last, j.trained = e, p.stepped
		}
		j.shown, j.began = nil, false
	}
	j.mu.Unlock()
	if shown {
		p.mux.tell(func(f Family) { f.Ended(p.info, e) })
		if e.Reason != capture.Exited {
			n := capture.Say(say.AgentGone, e.Reason)
			if e.Detail != "" {
				n.Text += ": " + e.Detail
			}
			p.mux.notice(n)
		}
	}
	if p.own != nil {
		p.own.End(e)
	}
}
