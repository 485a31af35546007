package capture

// resumed is a Sink through which another source continues a job. It is for one goroutine, like sources.
type resumed struct {
	Sink
	step, window int64            // the last known of each, -1 for none
	known        map[string]int64 // losses already reported
}

// Resume returns a Sink that passes on to sink what another source reports about the job that s has seen so
// far. It leaves out the steps, windows and losses that s already has, and counts missing steps in between as
// lost.
func Resume(s *History, sink Sink) Sink {
	v := s.Snapshot()
	r := &resumed{Sink: sink, step: -1, window: -1, known: map[string]int64{}}
	if n := len(v.Steps); n > 0 {
		r.step = v.Steps[n-1].Index
	}
	for _, w := range v.Windows {
		r.window = max(r.window, w.Last)
	}
	for _, l := range v.Losses {
		r.known[l.Name] = l.Count
	}
	return r
}

// Step implements Sink.
func (r *resumed) Step(x Step) {
	if x.Index <= r.step {
		return
	}
	if missing := x.Index - r.step - 1; missing > 0 && r.step >= 0 {
		r.Sink.Lose("steps", missing, "they ended while this viewer switched from one source to another")
	}
	r.step = x.Index
	r.Sink.Step(x)
}

// Window implements Sink.
func (r *resumed) Window(w Window) {
	if w.First > r.window {
		r.window = w.Last
		r.Sink.Window(w)
	}
}

// Lose implements Sink.
func (r *resumed) Lose(name string, n int64, detail string) {
	told := min(n, r.known[name])
	r.known[name] -= told
	if n > told {
		r.Sink.Lose(name, n-told, detail)
	}
}
